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
import { createSilence } from './silence.ts';

const CALL_TIMEOUT = 30_000;
const SILENCE = 30 * 60_000;
const MAX_ANSWER = 16 * 1024 * 1024;
const MAX_ERROR_BODY = 8 * 1024;
const SHOWN_OF_ERROR = 200;

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
 * The agent's API server, as far as chat needs it (contract 02 §5.2). Every failure is a RelayError with the sentence
 * for the client; an aborted call rejects with the reason of its signal.
 */
export interface AgentApi {
  createSession(profile: string | undefined, signal: AbortSignal): Promise<AgentSession>;
  /** The bytes of one turn's event stream. Throws when they break off, and after 30 minutes without any. */
  stream(
    turn: { sessionId: string; message: string; profile?: string },
    signal: AbortSignal,
  ): Promise<AsyncIterable<Uint8Array>>;
  listSessions(profile: string | undefined, signal: AbortSignal): Promise<Payload[]>;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what an id may not have
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;

/** Whether a session id can be asked for. `.` and `..` would be steps of the path, and not an id in it. */
export const isSessionId = (id: string): boolean =>
  id.length >= 1 && id.length <= 256 && !CONTROL.test(id) && id.isWellFormed() && id !== '.' && id !== '..';

const unavailable = (message: string) => new RelayError('unavailable', message);

export function createAgentApi({ config, upstream, clock, log }: AgentApiParts): AgentApi {
  const key = config.apiServerKey ?? '';
  const authorization: Record<string, string> = {};
  if (key !== '' && isPrintable(key)) authorization.authorization = `Bearer ${key}`;
  else if (key !== '')
    log.warn('the API key has characters that no header can carry; the API server is called without');

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

  /** A call whose whole answer is JSON. */
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
        bytes = await readUpTo(body, MAX_ANSWER + 1);
      } catch (error) {
        signal.throwIfAborted();
        throw unavailable(`${failure}: ${upstreamReason(error)}`);
      }
      if (bytes.length > MAX_ANSWER) throw unavailable(`${failure}: the answer is too large`);
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

  /** The beginning of an error's body, for the client. What cannot be read is left out. */
  async function errorText(body: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<string> {
    const bytes = await readUpTo(body, MAX_ERROR_BODY).catch(() => new Uint8Array());
    signal.throwIfAborted();
    const text = decodeUtf8(bytes);
    const safe = key === '' ? text : text.replaceAll(key, '[REDACTED]');
    return safe.trim().slice(0, SHOWN_OF_ERROR).toWellFormed();
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
      const silence = createSilence(clock, SILENCE, () =>
        controller.abort(new RelayError('timeout', 'The API server sent nothing for 30 minutes')),
      );
      const end = () => {
        silence.stop();
        signal.removeEventListener('abort', forward);
      };
      try {
        silence.begin();
        const { status, body } = await call(
          {
            method: 'POST',
            path: `/api/sessions/${encodeURIComponent(sessionId)}/chat/stream`,
            body: JSON.stringify({ message, profile }),
            accept: 'text/event-stream',
          },
          controller.signal,
        );
        if (status === 200) return watched(body);
        const text = await withTimeout(controller.signal, (signal) => errorText(body, signal)).catch(() => '');
        throw unavailable(`API server error (${status}): ${text}`);
      } catch (error) {
        end();
        throw error;
      }

      /** Time in which nobody asks for bytes is no silence of the server. */
      async function* watched(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
        const chunks = body[Symbol.asyncIterator]();
        try {
          for (;;) {
            silence.begin();
            const { done, value } = await chunks.next();
            silence.end();
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
