import { firstString } from '../../../chat/events.ts';
import { cutText } from '../../../chat/preview.ts';
import { type AgentApi, createAgentApi, isSessionId, RefusedCall } from '../../../chat/upstream.ts';
import type { Config } from '../../../config.ts';
import { describeError, RelayError } from '../../../errors.ts';
import type { Upstream } from '../../../host/upstream.ts';
import type { Clock } from '../../../kit/clock.ts';
import { isObject, type JsonObject } from '../../../kit/json.ts';
import { withDeadline } from '../../../kit/timeouts.ts';
import type { Log } from '../../../log.ts';
import { refusedCredential, type UpstreamCredential } from './credential.ts';
import { createSseMap, type MappedEvent } from './sse-map.ts';

export interface RunRequest {
  /** The chat session to continue; without one, a session is created. */
  sessionId?: string;
  /** True if the id came from outside. If upstream does not know it, it is replaced, once. */
  external: boolean;
  profile?: string;
  message: string;
  systemMessage: string;
  /** Cancels the run at once, including upstream. */
  signal: AbortSignal;
}

/** An event of a run. `svc.session.bound` names the chat session that the run uses from then on. */
export type RunEvent =
  | MappedEvent
  | { type: 'svc.session.bound'; session_id: string; profile: string; reason?: 'session_not_found_handoff' };

/** The agent's API server for one voice session (contract 06 §5.2). */
export interface AgentUpstream {
  /**
   * Runs one task. Ends with `end` or `error`, or silently once cancelled; never throws. The stream is read no faster than
   * events are consumed. A run that is cancelled, or left before its end, is stopped upstream too.
   */
  run(request: RunRequest): AsyncGenerator<RunEvent, void>;
  /** Answers a confirmation upstream, if supported; dropped while 8 are in flight. Never rejects. */
  approve(runId: string, confirmationId: string, answer: string): Promise<void>;
  /** The messages of a chat session from upstream; empty after any failure (contract 06 §3.3). */
  history(sessionId: string): Promise<JsonObject[]>;
}

export interface AgentUpstreamDeps {
  config: Pick<Config, 'webapiUrl'>;
  /** Called once per run. */
  credential(): Promise<UpstreamCredential>;
  upstream: Upstream;
  clock: Clock;
  log: Log;
}

const IDLE_TIMEOUT = 120_000;
/** For capabilities and post together. A stopping relay waits no longer than this. */
const SIDE_CALL_TIMEOUT = 3_000;
const HISTORY_TIMEOUT = 5_000;
const MAX_MESSAGE = 240;
/** Concurrent answers to upstream, one per confirmation. */
const MAX_APPROVALS = 8;
const ALLOWING = new Set(['allow', 'allow_once']);

type Offer = 'stop' | 'approval';

export function createAgentUpstream({ config, credential, upstream, clock, log }: AgentUpstreamDeps): AgentUpstream {
  /** Features of upstream, once it has answered. */
  let offers: ReadonlySet<Offer> | undefined;
  let approvals = 0;

  const apiWith = ({ secret }: UpstreamCredential): AgentApi =>
    createAgentApi({
      config: { webapiUrl: config.webapiUrl, apiServerKey: secret },
      upstream,
      clock,
      log,
      idleTimeout: IDLE_TIMEOUT,
    });

  /** Posts about a run if upstream supports it. A failure is only logged. */
  async function postToRun(runId: string, offer: Offer, body: JsonObject): Promise<void> {
    try {
      if (!isSessionId(runId)) return;
      const api = apiWith(await credential());
      await withDeadline({ clock, timeout: SIDE_CALL_TIMEOUT }, async (signal) => {
        offers ??= offersOf(await api.get('/v1/capabilities', { failure: 'No list of capabilities', signal }));
        if (!offers.has(offer)) return;
        await api.post(`/v1/runs/${encodeURIComponent(runId)}/${offer}`, body, { failure: `No ${offer}`, signal });
      });
    } catch (error) {
      // Only the part before the colon, because the rest may quote the API server.
      log.debug(`a run was left as it is upstream: ${describeError(error).split(':')[0]}`);
    }
  }

  /** The events of a run. Throws if it fails. */
  async function* events(api: AgentApi, request: RunRequest, signal: AbortSignal): AsyncGenerator<RunEvent> {
    const { message, systemMessage, external } = request;
    const profile = request.profile === 'default' ? undefined : request.profile;
    const isKnown = request.sessionId !== undefined;
    let sessionId = request.sessionId;
    let body: AsyncIterable<Uint8Array> | undefined;
    if (sessionId !== undefined) {
      try {
        if (!isSessionId(sessionId)) throw new RefusedCall('unusable session id', 404, 'session_not_found');
        body = await api.stream({ sessionId, message, systemMessage, profile }, signal);
      } catch (error) {
        if (!external || !isSessionNotFound(error)) throw error;
      }
    }
    if (!body) {
      sessionId = (await api.createSession(profile, signal)).id;
      const reason = isKnown ? ({ reason: 'session_not_found_handoff' } as const) : {};
      yield { type: 'svc.session.bound', session_id: sessionId, profile: profile ?? 'default', ...reason };
      body = await api.stream({ sessionId, message, systemMessage, profile }, signal);
    }
    const map = createSseMap();
    for await (const bytes of body) yield* map.push(bytes);
    yield* map.end();
  }

  /** The last event of a run that failed. */
  function failureOf(error: unknown, used: UpstreamCredential): RunEvent {
    if (error instanceof RefusedCall && (error.status === 401 || error.status === 403)) {
      return { type: 'error', code: 'svc_broker_auth_failed', message: refusedCredential(error.status, used) };
    }
    if (error instanceof RelayError) return { type: 'error', message: shown(error.message, used.secret) };
    log.error(`a run failed unexpectedly: ${describeError(error)}`);
    return { type: 'error', message: 'internal error' };
  }

  return {
    async *run(request) {
      const { signal } = request;
      const end = new AbortController();
      let used: UpstreamCredential = { secret: '', origin: 'none' };
      let runId: string | undefined;
      let isOver = false;
      const cancel = () => {
        if (end.signal.aborted) return;
        end.abort();
        if (!isOver && runId !== undefined) void postToRun(runId, 'stop', {});
      };
      signal.addEventListener('abort', cancel);
      try {
        used = await credential();
        if (signal.aborted) return;
        for await (const event of events(apiWith(used), request, end.signal)) {
          if (signal.aborted) return;
          if ('run_id' in event) runId = event.run_id ?? runId;
          isOver = event.type === 'end' || event.type === 'error';
          yield event.type === 'error' ? { ...event, message: shown(event.message, used.secret) } : event;
          if (isOver) return;
        }
      } catch (error) {
        if (!signal.aborted) yield failureOf(error, used);
      } finally {
        signal.removeEventListener('abort', cancel);
        cancel();
      }
    },

    async approve(runId, confirmationId, answer) {
      if (approvals >= MAX_APPROVALS) return;
      const choice = ALLOWING.has(answer) ? 'once' : 'deny';
      approvals++;
      await postToRun(runId, 'approval', { confirmation_id: confirmationId, answer, choice });
      approvals--;
    },

    async history(sessionId) {
      if (!isSessionId(sessionId)) return [];
      try {
        const limits = { failure: 'No messages', timeout: HISTORY_TIMEOUT, signal: new AbortController().signal };
        const api = apiWith(await credential());
        const answer = await api.get(`/api/sessions/${encodeURIComponent(sessionId)}/messages`, limits);
        const { data, items, messages } = isObject(answer) ? answer : {};
        return [answer, data, items, messages].find(Array.isArray)?.filter(isObject) ?? [];
      } catch {
        return [];
      }
    },
  };
}

/** A failure in a form for the client. The secret is removed before the cut, which could leave half of it. */
const shown = (message: string, secret: string): string =>
  cutText((secret === '' ? message : message.replaceAll(secret, '[REDACTED]')).trim(), MAX_MESSAGE);

/** True if upstream does not know the chat session, as opposed to the route (contract 06 §5.2). */
function isSessionNotFound(error: unknown): boolean {
  if (!(error instanceof RefusedCall) || error.status !== 404) return false;
  return /session[_ ]not[_ ]found/i.test(error.answer);
}

/**
 * Features for runs in the answer of `GET /v1/capabilities`: enabled features and listed endpoints. Servers use different
 * names.
 */
function offersOf(answer: unknown): ReadonlySet<Offer> {
  const { features, endpoints, capabilities } = isObject(answer) ? answer : {};
  const offers = new Set<Offer>();
  for (const [name, value] of [features, endpoints, capabilities].flatMap(namesIn)) {
    if (value === false || value === null) continue;
    const path = firstString(isObject(value) ? value.path : value);
    if (/^runs?[._-]stop$/i.test(name) || /\/runs\/[^/]+\/stop$/.test(path)) offers.add('stop');
    if (/^runs?[._-]approval([._-]response)?$/i.test(name) || /\/runs\/[^/]+\/approval$/.test(path))
      offers.add('approval');
  }
  return offers;
}

/** Names and values of a list of names, or of an object. */
function namesIn(value: unknown): [name: string, value: unknown][] {
  if (Array.isArray(value)) return value.map((item) => [typeof item === 'string' ? item : '', item]);
  return isObject(value) ? Object.entries(value) : [];
}
