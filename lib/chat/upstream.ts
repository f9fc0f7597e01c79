import type { Config } from '../config.ts';
import { RelayError } from '../errors.ts';
import { type Upstream, type UpstreamRequest, type UpstreamResponse, upstreamReason } from '../host/upstream.ts';
import type { Clock } from '../kit/clock.ts';
import { createIdleTimer } from '../kit/idle-timer.ts';
import { isObject, type JsonObject, parseJson } from '../kit/json.ts';
import { decodeUtf8, isPrintable } from '../kit/text.ts';
import { MINUTE } from '../kit/units.ts';
import type { Log } from '../log.ts';
import type { Payload } from '../socket/envelope.ts';
import { readUpTo } from '../web/streams.ts';
import { firstString } from './events.ts';

const CALL_TIMEOUT = 30_000;
const IDLE_TIMEOUT = 30 * 60_000;
const MAX_RESPONSE_BYTES = 16 * 1024 * 1024;
const MAX_ERROR_BYTES = 8 * 1024;
/** Characters of an upstream error that are shown to the client. */
const MAX_ERROR_TEXT = 200;

export interface AgentSession {
  id: string;
  title: string;
  model: string;
}

export interface AgentApiDeps {
  config: Pick<Config, 'webapiUrl' | 'apiServerKey'>;
  upstream: Upstream;
  clock: Clock;
  log: Log;
  /** Whole minutes, in milliseconds, for which a stream may be silent. Default: 30 minutes. */
  idleTimeout?: number;
}

/** The API server answered with an unexpected status. */
export class RefusedCall extends RelayError {
  readonly status: number;
  /** The beginning of the answer, without the key; at most 8 KiB. */
  readonly answer: string;

  constructor(message: string, status: number, answer: string) {
    super('unavailable', message);
    this.status = status;
    this.answer = answer;
  }
}

export interface AgentTurn {
  sessionId: string;
  message: string;
  profile?: string;
  systemMessage?: string;
}

/** Limits of a call, and the beginning of its error message. */
export interface CallLimits {
  /** Beginning of the error message. */
  failure: string;
  /** Whole seconds for the whole call, in milliseconds. Default: 30 seconds. */
  timeout?: number;
  signal: AbortSignal;
}

export type AgentApi = ReturnType<typeof createAgentApi>;

// biome-ignore lint/suspicious/noControlCharactersInRegex: matches the control characters that an id must not contain
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;

/** True if a session id can be part of a URL path. `.` and `..` would change the path. */
export const isSessionId = (id: string): boolean =>
  id.length >= 1 && id.length <= 256 && !CONTROL.test(id) && id.isWellFormed() && id !== '.' && id !== '..';

const unavailable = (message: string) => new RelayError('unavailable', message);

/**
 * The part of the agent's API server that chat and voice use (contract 02 §5.2, contract 06 §5.2). Every failure is a
 * RelayError with a sentence for the client; an aborted call rejects with the reason of its signal.
 */
export function createAgentApi(deps: AgentApiDeps) {
  const { config, upstream, clock, log, idleTimeout = IDLE_TIMEOUT } = deps;
  const key = config.apiServerKey ?? '';
  const authorization: Record<string, string> = {};
  if (key !== '' && isPrintable(key)) authorization.authorization = `Bearer ${key}`;
  else if (key !== '')
    log.warn('the API key has characters that no header can carry; the API server is called without it');

  async function call(
    request: Omit<UpstreamRequest, 'url' | 'headers' | 'signal'> & { path: string; accept: string },
    signal: AbortSignal,
  ): Promise<UpstreamResponse> {
    const { path, accept, ...rest } = request;
    const headers: Record<string, string> = { accept, ...authorization };
    if (rest.body !== undefined) headers['content-type'] = 'application/json';
    try {
      return await upstream({ ...rest, url: config.webapiUrl + path, headers, signal });
    } catch (error) {
      signal.throwIfAborted();
      throw unavailable(`Cannot reach the API server: ${upstreamReason(error)}`);
    }
  }

  /** Makes a call and reads its answer to the end. */
  async function callForBytes(
    request: { method: 'GET' | 'POST'; path: string; body?: string; keepAlive?: boolean },
    { expected, failure, timeout = CALL_TIMEOUT, signal }: CallLimits & { expected: number[] },
  ): Promise<Uint8Array> {
    return withTimeout({ timeout, signal }, async (signal) => {
      const { status, body } = await call({ ...request, accept: 'application/json' }, signal);
      if (!expected.includes(status)) throw await refused(`${failure} (HTTP ${status})`, status, body, signal);
      let bytes: Uint8Array;
      try {
        bytes = await readUpTo(body, MAX_RESPONSE_BYTES + 1);
      } catch (error) {
        signal.throwIfAborted();
        throw unavailable(`${failure}: ${upstreamReason(error)}`);
      }
      if (bytes.length > MAX_RESPONSE_BYTES) throw unavailable(`${failure}: the answer is too large`);
      return bytes;
    });
  }

  /** Makes a call whose answer is JSON. */
  async function callForJson(...call: Parameters<typeof callForBytes>): Promise<unknown> {
    const value = parseJson(decodeUtf8(await callForBytes(...call)));
    if (value === undefined) throw unavailable(`${call[1].failure}: the answer is not JSON`);
    return value;
  }

  async function withTimeout<T>(
    { timeout, signal }: { timeout: number; signal: AbortSignal },
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const controller = new AbortController();
    const forward = () => controller.abort(signal.reason);
    if (signal.aborted) forward();
    signal.addEventListener('abort', forward);
    const timeoutMessage = `Cannot reach the API server: no answer within ${timeout / 1000} seconds`;
    const cancel = clock.after(timeout, () => controller.abort(new RelayError('timeout', timeoutMessage)));
    try {
      return await work(controller.signal);
    } finally {
      cancel();
      signal.removeEventListener('abort', forward);
    }
  }

  /** The error for an unexpected status, with the beginning of its body if that can be read. */
  async function refused(
    failure: string,
    status: number,
    body: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<RefusedCall> {
    const bytes = await readUpTo(body, MAX_ERROR_BYTES).catch(() => new Uint8Array());
    signal.throwIfAborted();
    const text = decodeUtf8(bytes);
    const safe = (key === '' ? text : text.replaceAll(key, '[REDACTED]')).trim();
    return new RefusedCall(`${failure}: ${safe.slice(0, MAX_ERROR_TEXT).toWellFormed()}`, status, safe);
  }

  return {
    async createSession(profile: string | undefined, signal: AbortSignal): Promise<AgentSession> {
      const failure = 'Failed to create session';
      const answer = await callForJson(
        { method: 'POST', path: '/api/sessions', body: JSON.stringify({ profile }) },
        { expected: [200, 201], failure, signal },
      );
      const whole = isObject(answer) ? answer : {};
      const session = isObject(whole.session) ? whole.session : whole;
      const { id, session_id, title, model } = session;
      const usable = firstString(whole.id, whole.session_id, id, session_id);
      if (!isSessionId(usable)) throw unavailable(`${failure}: the answer has no usable session id`);
      return { id: usable, title: firstString(title) || 'New chat', model: firstString(model) || 'unknown' };
    },

    /** The event stream of a turn. Throws when it breaks, and after too long without a byte. */
    async stream(
      { sessionId, message, profile, systemMessage }: AgentTurn,
      signal: AbortSignal,
    ): Promise<AsyncIterable<Uint8Array>> {
      const controller = new AbortController();
      const forward = () => controller.abort(signal.reason);
      if (signal.aborted) forward();
      signal.addEventListener('abort', forward);
      const silent = `The API server sent nothing for ${idleTimeout / MINUTE} minutes`;
      const idle = createIdleTimer(clock, idleTimeout, () => controller.abort(new RelayError('timeout', silent)));
      const end = () => {
        idle.stop();
        signal.removeEventListener('abort', forward);
      };
      try {
        idle.begin();
        const { status, body } = await call(
          {
            method: 'POST',
            path: `/api/sessions/${encodeURIComponent(sessionId)}/chat/stream`,
            body: JSON.stringify({ message, system_message: systemMessage, profile }),
            accept: 'text/event-stream',
          },
          controller.signal,
        );
        if (status === 200) return withIdleTimeout(body);
        const failure = `API server error (${status})`;
        const limits = { timeout: CALL_TIMEOUT, signal: controller.signal };
        throw await withTimeout(limits, (signal) => refused(failure, status, body, signal)).catch(
          () => new RefusedCall(`${failure}: `, status, ''),
        );
      } catch (error) {
        end();
        throw error;
      }

      /** Only the time in which the next bytes are awaited counts as idle. */
      async function* withIdleTimeout(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
        const chunks = body[Symbol.asyncIterator]();
        try {
          for (;;) {
            idle.begin();
            const { done, value } = await chunks.next();
            idle.end();
            if (done) return;
            yield value;
          }
        } catch (error) {
          controller.signal.throwIfAborted();
          throw unavailable(`The connection to the API server broke: ${upstreamReason(error)}`);
        } finally {
          end();
          await chunks.return?.();
        }
      }
    },

    async listSessions(profile: string | undefined, signal: AbortSignal): Promise<Payload[]> {
      const failure = 'Failed to list sessions';
      const query = profile === undefined ? '' : `?${new URLSearchParams({ profile })}`;
      const answer = await callForJson(
        { method: 'GET', path: `/api/sessions${query}` },
        { expected: [200], failure, signal },
      );
      const { data, sessions, items } = isObject(answer) ? answer : {};
      const list = [answer, data, sessions, items].find(Array.isArray);
      if (!list) throw unavailable(`${failure}: the answer has no list`);
      return list.filter(isObject);
    },

    /** JSON at any other path. */
    get: (path: string, limits: CallLimits): Promise<unknown> =>
      callForJson({ method: 'GET', path, keepAlive: true }, { ...limits, expected: [200] }),

    /** Sends JSON to any other path. The body of a success is ignored. */
    async post(path: string, body: JsonObject, limits: CallLimits): Promise<void> {
      const request = { method: 'POST' as const, path, body: JSON.stringify(body) };
      await callForBytes(request, { ...limits, expected: [200, 201, 202, 204] });
    },
  };
}
