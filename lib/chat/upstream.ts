import type { Config } from '../config.ts';
import { RelayError } from '../errors.ts';
import { type Upstream, type UpstreamRequest, type UpstreamResponse, upstreamReason } from '../host/upstream.ts';
import type { Clock } from '../kit/clock.ts';
import { isObject, parseJson } from '../kit/json.ts';
import { decodeUtf8, isPrintable } from '../kit/text.ts';
import type { Log } from '../log.ts';
import type { Payload } from '../socket/envelope.ts';
import { readUpTo } from '../web/streams.ts';
import { firstText } from './events.ts';
import { createIdleTimer } from './idle-timer.ts';

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

export interface AgentApiParts {
  config: Pick<Config, 'webapiUrl' | 'apiServerKey'>;
  upstream: Upstream;
  clock: Clock;
  log: Log;
}

/**
 * The part of the agent's API server that chat uses (contract 02 §5.2). Every failure is a RelayError with a sentence for
 * the client; an aborted call rejects with the reason of its signal.
 */
export interface AgentApi {
  createSession(profile: string | undefined, signal: AbortSignal): Promise<AgentSession>;
  /** The event stream of a turn. Throws when it breaks, and after 30 minutes without a byte. */
  stream(
    turn: { sessionId: string; message: string; profile?: string },
    signal: AbortSignal,
  ): Promise<AsyncIterable<Uint8Array>>;
  listSessions(profile: string | undefined, signal: AbortSignal): Promise<Payload[]>;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: matches the control characters that an id must not contain
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;

/** Whether a session id can be part of a URL path. `.` and `..` would change the path. */
export const isSessionId = (id: string): boolean =>
  id.length >= 1 && id.length <= 256 && !CONTROL.test(id) && id.isWellFormed() && id !== '.' && id !== '..';

const unavailable = (message: string) => new RelayError('unavailable', message);

export function createAgentApi({ config, upstream, clock, log }: AgentApiParts): AgentApi {
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

  /** Makes a call that is answered with JSON. */
  async function callForJson(
    request: { method: 'GET' | 'POST'; path: string; body?: string },
    { expected, failure, signal }: { expected: number[]; failure: string; signal: AbortSignal },
  ): Promise<unknown> {
    return withTimeout(signal, async (signal) => {
      const { status, body } = await call({ ...request, accept: 'application/json' }, signal);
      if (!expected.includes(status)) {
        throw unavailable(`${failure} (HTTP ${status}): ${await errorText(body, signal)}`);
      }
      let bytes: Uint8Array;
      try {
        bytes = await readUpTo(body, MAX_RESPONSE_BYTES + 1);
      } catch (error) {
        signal.throwIfAborted();
        throw unavailable(`${failure}: ${upstreamReason(error)}`);
      }
      if (bytes.length > MAX_RESPONSE_BYTES) throw unavailable(`${failure}: the answer is too large`);
      const value = parseJson(decodeUtf8(bytes));
      if (value === undefined) throw unavailable(`${failure}: the answer is not JSON`);
      return value;
    });
  }

  async function withTimeout<T>(signal: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const controller = new AbortController();
    const forward = () => controller.abort(signal.reason);
    if (signal.aborted) forward();
    signal.addEventListener('abort', forward);
    const cancel = clock.after(CALL_TIMEOUT, () =>
      controller.abort(new RelayError('timeout', 'Cannot reach the API server: no answer within 30 seconds')),
    );
    try {
      return await work(controller.signal);
    } finally {
      cancel();
      signal.removeEventListener('abort', forward);
    }
  }

  /** The beginning of an error's body, for the client; empty if it cannot be read. */
  async function errorText(body: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<string> {
    const bytes = await readUpTo(body, MAX_ERROR_BYTES).catch(() => new Uint8Array());
    signal.throwIfAborted();
    const text = decodeUtf8(bytes);
    const safe = key === '' ? text : text.replaceAll(key, '[REDACTED]');
    return safe.trim().slice(0, MAX_ERROR_TEXT).toWellFormed();
  }

  return {
    async createSession(profile, signal) {
      const failure = 'Failed to create session';
      const answer = await callForJson(
        { method: 'POST', path: '/api/sessions', body: JSON.stringify({ profile }) },
        { expected: [200, 201], failure, signal },
      );
      const session = isObject(answer) && isObject(answer.session) ? answer.session : answer;
      const { id, session_id, title, model } = isObject(session) ? session : {};
      const usable = firstText(id, session_id);
      if (!isSessionId(usable)) throw unavailable(`${failure}: the answer has no usable session id`);
      return { id: usable, title: firstText(title) || 'New chat', model: firstText(model) || 'unknown' };
    },

    async stream({ sessionId, message, profile }, signal) {
      const controller = new AbortController();
      const forward = () => controller.abort(signal.reason);
      if (signal.aborted) forward();
      signal.addEventListener('abort', forward);
      const idle = createIdleTimer(clock, IDLE_TIMEOUT, () =>
        controller.abort(new RelayError('timeout', 'The API server sent nothing for 30 minutes')),
      );
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
            body: JSON.stringify({ message, profile }),
            accept: 'text/event-stream',
          },
          controller.signal,
        );
        if (status === 200) return withIdleTimeout(body);
        const text = await withTimeout(controller.signal, (signal) => errorText(body, signal)).catch(() => '');
        throw unavailable(`API server error (${status}): ${text}`);
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

    async listSessions(profile, signal) {
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
  };
}
