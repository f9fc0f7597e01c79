import type { IncomingMessage } from 'node:http';
import { parseJson } from '../../lib/kit/json.ts';
import { operatorHeaders } from '../operator-key.ts';
import type { RelayLink } from './relay-link.ts';
import { refusal } from './route-app.ts';

/** Milliseconds for one call (contract 07 §4.1). */
const CALL_TIMEOUT = 5_000;
/** Bytes of an answer: every list of the relay is bounded far below. */
const MAX_ANSWER = 16 * 1024 * 1024;

export interface OperatorCall {
  method: 'GET' | 'POST' | 'DELETE';
  /** Path and query. */
  path: string;
  /** Sent as JSON. */
  body?: object;
  /** Milliseconds, 5 s by default. */
  timeout?: number;
}

/** Makes a call and returns the JSON value of the answer, or its text. */
export type CallAsOperator = (call: OperatorCall) => Promise<unknown>;

export interface OperatorCallDeps {
  link: Pick<RelayLink, 'host' | 'port' | 'request' | 'unreachable'>;
  agentHome: string;
}

/**
 * Calls to the relay on this host as its operator (contract 01 §1.3, §6.3; 07 §4.1): without `Authorization`, with
 * `X-Svc-Operator`, and with the operator key where this user can read it. No retries, no redirects.
 *
 * A call throws HTTPError: with status and body of the relay for a 4xx, and with 502 for a 5xx, for anything that is
 * no answer to such a call, and without an answer.
 */
export function createOperatorCalls({ link, agentHome }: OperatorCallDeps): CallAsOperator {
  const unreachable = (error: unknown) => refusal(502, link.unreachable(error));

  return async ({ method, path, body, timeout = CALL_TIMEOUT }) => {
    const content = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
    const headers = {
      host: link.host,
      accept: 'application/json',
      'x-svc-operator': '1',
      ...(await operatorHeaders(agentHome, link.port)),
      ...(content && { 'content-type': 'application/json', 'content-length': String(content.length) }),
    };
    const { status, text } = await exchange().catch((error: unknown) => {
      throw unreachable(error);
    });
    const value = parseJson(text);
    const detail = value === undefined ? text : value;
    if (status >= 200 && status < 300) return detail;
    if (status >= 400 && status < 500) throw refusal(status, detail);
    throw unreachable(new Error(`it answered with status ${status}`));

    function exchange(): Promise<{ status: number; text: string }> {
      return new Promise((resolve, reject) => {
        const request = link.request({ method, path, headers, keepAlive: false }, (response: IncomingMessage) => {
          const chunks: Buffer[] = [];
          let size = 0;
          response.on('data', (chunk: Buffer) => {
            size += chunk.length;
            if (size > MAX_ANSWER) fail(new Error('its answer is too large'));
            else chunks.push(chunk);
          });
          response.on('error', fail);
          response.on('close', () => {
            if (!response.complete) fail(new Error('its answer was cut off'));
          });
          response.on('end', () => {
            clearTimeout(timer);
            resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString('utf8') });
          });
        });
        const fail = (error: Error) => {
          clearTimeout(timer);
          request.destroy();
          reject(error);
        };
        const timer = setTimeout(() => fail(new Error(`no answer within ${timeout / 1000} s`)), timeout);
        request.on('error', fail);
        request.end(content);
      });
    }
  };
}
