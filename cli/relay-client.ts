import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type Config, variables } from '../lib/config.ts';
import { readRelayLock } from '../lib/host/node/relay-lock.ts';
import { upstreamReason } from '../lib/host/upstream.ts';
import { isLoopbackName, unbracket, urlHost } from '../lib/kit/addresses.ts';
import { asObject, parseJson } from '../lib/kit/json.ts';
import type { FormBody } from '../lib/web/form-data.ts';
import { type Environment, readVariable } from './environment.ts';
import { operatorHeaders } from './operator-key.ts';
import { asPort } from './options.ts';
import { type CommandContext, CommandError, printWarning } from './output.ts';

/** The relay's address, as reached by this process. */
export interface RelayAddress {
  host: string;
  port: number;
  tls: boolean;
  /** The origin of a remote relay (`remote-relay.ts`). */
  url?: string;
  /** For a relay of this machine, why this address was used: `no relay holds <state file>`. */
  tried?: string;
  /** Returns the headers that authenticate the operator, new for each call. */
  authorize?(): Promise<Record<string, string>>;
}

export interface RelayCall {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  path: string;
  /** Sent as JSON. */
  body?: object;
  /** Sent in place of `body`, streamed. */
  form?: FormBody;
  /** Milliseconds for the whole exchange, or with `onText`, for each piece. */
  timeout: number;
  headers?: Record<string, string>;
  /** Aborts the call. */
  signal?: AbortSignal;
  /** Bytes, 1 MiB by default. */
  maxAnswer?: number;
  /** Called with the text of a successful answer as it arrives, such as an event stream. The answer then has no body. */
  onText?(text: string): void;
}

export interface RelayAnswer {
  status: number;
  /** The parsed JSON; undefined if the answer is not JSON. */
  body: unknown;
  /** The only line of a plain text answer, such as an error of voice. */
  text?: string;
  /** The called address, with `tls` corrected to the relay's actual protocol. */
  address: RelayAddress;
}

export const DEFAULT_PORT = 8767;
const MAX_ANSWER = 1024 * 1024;
const MAX_LINE = 512;

/** Command that starts the relay of this machine. */
export const START = "Start it with 'svc up', or in this terminal with 'svc relay start'.";

/**
 * The relay of this machine: the address of the one that runs on this state, however it was started, else the configured
 * address (contract 11 §1). A relay on another address also listens on 127.0.0.1.
 */
export function localRelay(config: Config): RelayAddress {
  const { stateFile, agentHome } = config;
  const lock = stateFile === null ? null : readRelayLock(stateFile);
  const { host, port } = lock ?? config;
  return {
    host: isLoopbackName(host) ? unbracket(host) : '127.0.0.1',
    port,
    tls: lock ? lock.tls : Boolean(config.sslCert && config.sslKey),
    tried: lock
      ? `process ${lock.pid} holds ${stateFile}`
      : stateFile === null
        ? 'RELAY_STATE_FILE is empty, so only the configured port was tried'
        : `no relay holds ${stateFile}`,
    authorize: () => operatorHeaders(agentHome, port),
  };
}

/**
 * The port of the relay of this machine, like `localRelay`. An invalid configuration only causes a warning here, unlike for
 * the listener itself.
 */
export function relayPort(environment: Environment, context: CommandContext): number {
  const stateFile = readVariable(variables.stateFile, environment);
  const lock = stateFile === null ? null : readRelayLock(stateFile);
  return lock?.port ?? configuredPort(environment.env, context);
}

/** The port in `RELAY_PORT`, on which a relay will listen. An invalid value only causes a warning here. */
export function configuredPort(env: Record<string, string | undefined>, context: CommandContext): number {
  const value = env.RELAY_PORT?.trim();
  if (!value) return DEFAULT_PORT;
  try {
    return asPort(value);
  } catch {
    printWarning(context, `RELAY_PORT is not a valid port; using ${DEFAULT_PORT}`);
    return DEFAULT_PORT;
  }
}

export const addressText = ({ host, port, url }: RelayAddress): string => url ?? `${urlHost(host)}:${port}`;

/**
 * One call to the relay. If a relay on this machine speaks http where https was expected, or the reverse (started with
 * `--no-ssl`, or with other variables than this command sees), the call is repeated with the other protocol.
 * @throws Error with the socket's `code` if no HTTP answer comes.
 */
export async function callRelay(address: RelayAddress, call: RelayCall): Promise<RelayAnswer> {
  try {
    return await exchange(address, call);
  } catch (error) {
    if (address.url !== undefined || !isLoopbackName(address.host) || !isOtherProtocol(error)) throw error;
    return await exchange({ ...address, tls: !address.tls }, call).catch(() => {
      throw error;
    });
  }
}

/**
 * Calls the relay, which has to answer with success.
 * @param next advice for a refusal whose status suggests none
 * @throws CommandError with the reason and the next step
 */
export async function requireAnswer(address: RelayAddress, call: RelayCall, next?: string): Promise<RelayAnswer> {
  const answer = await callRelay(address, call).catch((error) => {
    throw silent(address, error);
  });
  if (isSuccess(answer)) return answer;
  throw new CommandError(
    `the relay on ${addressText(address)} refused: ${refusal(answer)}`,
    nextAfterRefusal(answer) ?? next,
  );
}

function isOtherProtocol(error: unknown): boolean {
  const code = String((error as { code?: unknown }).code);
  return code === 'ECONNRESET' || code === 'EPROTO' || /^(?:ERR_SSL_|HPE_)/.test(code);
}

async function exchange(address: RelayAddress, call: RelayCall): Promise<RelayAnswer> {
  const operator = await address.authorize?.();
  const content = call.body === undefined ? undefined : Buffer.from(JSON.stringify(call.body));
  return new Promise((resolve, reject) => {
    const request = (address.tls ? httpsRequest : httpRequest)({
      host: address.host,
      port: address.port,
      path: call.path,
      method: call.method,
      agent: false,
      signal: call.signal,
      // The certificate of a relay on this machine is usually self-signed, and nobody can intercept loopback.
      rejectUnauthorized: address.url !== undefined || !isLoopbackName(address.host),
      headers: {
        accept: 'application/json',
        ...call.headers,
        ...operator,
        ...(content && { 'content-type': 'application/json', 'content-length': content.length }),
        ...(call.form && { 'content-type': call.form.contentType, 'content-length': call.form.length }),
      },
    });
    const fail = (error: Error) => {
      clearTimeout(timer);
      request.destroy();
      reject(error);
    };
    const timer = setTimeout(() => {
      fail(Object.assign(new Error(`no answer within ${call.timeout / 1000} s`), { code: 'ETIMEDOUT' }));
    }, call.timeout);
    request.on('error', fail);
    request.on('response', (response) => {
      const chunks: Buffer[] = [];
      let size = 0;
      const { onText } = call;
      const decoder = onText && isSuccess({ status: response.statusCode ?? 0 }) ? new TextDecoder() : undefined;
      response.on('data', (chunk: Buffer) => {
        if (decoder) {
          timer.refresh();
          try {
            onText?.(decoder.decode(chunk, { stream: true }));
          } catch (error) {
            // Thrown on, it would end the process.
            fail(error as Error);
          }
          return;
        }
        size += chunk.length;
        if (size > (call.maxAnswer ?? MAX_ANSWER)) fail(new Error('the answer is too large'));
        else chunks.push(chunk);
      });
      response.on('error', fail);
      response.on('end', () => {
        clearTimeout(timer);
        const text = Buffer.concat(chunks).toString('utf8');
        resolve({
          status: response.statusCode ?? 0,
          body: parseJson(text),
          text: isLine(text, response.headers['content-type']) ? text.trim() : undefined,
          address,
        });
      });
    });
    if (call.form) pipeline(Readable.from(call.form.body, { objectMode: false }), request).catch(fail);
    else request.end(content);
  });
}

/** True if an answer is one line of plain text. */
const isLine = (text: string, type = ''): boolean =>
  type.startsWith('text/plain') && text.length <= MAX_LINE && !text.trim().includes('\n');

export const isSuccess = ({ status }: Pick<RelayAnswer, 'status'>): boolean => status >= 200 && status < 300;

/** The text of the relay's refusal: its error sentence, if any, and the status. */
export function refusal(answer: RelayAnswer): string {
  const sentence = asObject(answer.body)?.error ?? answer.text;
  return typeof sentence === 'string' && sentence !== ''
    ? `${sentence} (HTTP ${answer.status})`
    : `HTTP ${answer.status}`;
}

const KEY_ADVICE =
  'Does the deployment have the key of this machine, and this URL as its own? In [vars] of wrangler.toml, set ' +
  "RELAY_OPERATOR_PUBLIC_KEY to the output of 'svc relay operator-token --public-key' and RELAY_PUBLIC_URL to the URL, " +
  'and deploy again. A clock that is minutes off has the same effect.';

/** Advice on a refusal; undefined when its status suggests none. */
export function nextAfterRefusal({ status, address }: RelayAnswer): string | undefined {
  if (address.url === undefined) {
    const isStranger = status === 401 || status === 403;
    return isStranger
      ? 'Run this as the user that runs the relay, on its own machine and not through a proxy.'
      : undefined;
  }
  if (status === 401 || status === 403) return KEY_ADVICE;
  if (status === 421) return 'Set RELAY_PUBLIC_URL of the deployment to this URL, or add its host to RELAY_HOSTS.';
  if (status === 404) return 'That address serves something else, or a relay of another version.';
  if (status >= 300 && status < 400) return 'Use the address that it redirects to, with https://.';
  return undefined;
}

/** No relay answers: the address that was tried, the reason for it, and how to start the relay (contract 11 §1). */
export const silent = (address: RelayAddress, error: unknown): CommandError =>
  new CommandError(...silence(address, error));

/** Like `silent`, as message and next step. */
export function silence(address: RelayAddress, error: unknown): [message: string, next: string] {
  const { url, tried } = address;
  const why = tried === undefined ? '' : `; ${tried}`;
  return [
    `no relay answers on ${addressText(address)}: ${upstreamReason(error)}${why}`,
    url === undefined ? START : nextAfterSilence(address),
  ];
}

/** Advice for a relay that did not answer. */
export const nextAfterSilence = ({ url }: RelayAddress): string =>
  url === undefined ? 'Try again.' : "Check the URL, and that 'wrangler deploy' has published the relay on that host.";
