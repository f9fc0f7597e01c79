/** A refusal or failure of the relay, worded for people. */
export class ApiError extends Error {
  /** HTTP status; 0 if there was no answer. */
  readonly status: number;
  /** Seconds until a retry makes sense, if the relay said so. */
  readonly retryAfter?: number;

  constructor(message: string, status: number, retryAfter?: number) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export interface ApiRequest {
  method?: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Sent as JSON. */
  body?: unknown;
  /** Sent unchanged, in place of `body`. */
  raw?: BodyInit;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Called with the number of bytes sent; starts from 0 again if the request is repeated. */
  onProgress?(sent: number): void;
}

/** The part of a request that its credentials depend on. */
export interface CallerRequest {
  method: string;
  path: string;
  /** True for a body that should not be sent twice. */
  isLarge: boolean;
}

/** Retries with other credentials after a 401: a newer nonce, then a newer token. */
const MAX_RENEWALS = 2;

export interface ApiOptions {
  /** Address of the relay, with a trailing slash, since pages may be below any path. */
  base: string;
  /** The present target of calls, if that is another relay. */
  target?(): string;
  /** Headers that authenticate the caller, requested for every call. */
  credentials(request: CallerRequest): Record<string, string> | Promise<Record<string, string>>;
  /**
   * Called after a 401 with the headers that were sent. Returns true if there are new ones, with which the request is
   * repeated.
   */
  renew?(used: Record<string, string>, response: Response): Promise<boolean>;
  /** A request got no answer. */
  onSilence?(): void;
}

export type Api = ReturnType<typeof createApi>;

/** Calls the relay's routes. Paths are relative to its address: `sessions`, not `/sessions`. */
export function createApi({ base, target = () => base, credentials, renew, onSilence }: ApiOptions) {
  async function send(
    path: string,
    { method = 'GET', body, raw, headers, signal, onProgress }: ApiRequest,
    caller: Record<string, string>,
  ): Promise<Response> {
    const json: Record<string, string> = body === undefined ? {} : { 'content-type': 'application/json' };
    const url = new URL(path, target());
    const init = {
      method,
      headers: { ...json, ...headers, ...caller },
      body: raw ?? (body === undefined ? undefined : JSON.stringify(body)),
      signal,
      cache: 'no-store',
      redirect: 'error',
      credentials: 'omit',
    } as const;
    try {
      return await (onProgress ? upload(url, init, onProgress) : fetch(url, init));
    } catch (error) {
      if (signal?.aborted) throw error;
      onSilence?.();
      throw new ApiError('The relay does not answer.', 0);
    }
  }

  /** The response, with any status. */
  async function fetchRaw(path: string, request: ApiRequest = {}): Promise<Response> {
    const caller = { method: request.method ?? 'GET', path, isLarge: request.raw !== undefined };
    for (let renewals = 0; ; renewals++) {
      const used = await credentials(caller);
      const response = await send(path, request, used);
      if (response.status !== 401) return response;
      // For proofs that arrive twice, when the connection breaks and the browser itself repeats the request.
      if (renewals === MAX_RENEWALS && response.headers.has('dpop-nonce')) {
        throw new ApiError('The relay does not answer.', 0);
      }
      if (renewals === MAX_RENEWALS || !(await renew?.(used, response))) return response;
    }
  }

  /** @throws ApiError for every status other than 2xx. */
  async function open(path: string, request: ApiRequest = {}): Promise<Response> {
    const response = await fetchRaw(path, request);
    if (response.ok) return response;
    throw await errorOf(response);
  }

  return {
    base,
    fetchRaw,
    open,
    /** The parsed JSON of the answer. @throws ApiError */
    async call<T>(path: string, request: ApiRequest = {}): Promise<T> {
      const response = await open(path, request);
      return (await response.json().catch(() => {
        throw new ApiError('The relay sent an answer that cannot be read.', response.status);
      })) as T;
    },
  };
}

interface Upload {
  method: string;
  headers: Readonly<Record<string, string>>;
  body?: BodyInit;
  signal?: AbortSignal;
}

/** Like `fetch`, which cannot report the progress of a request's body. */
function upload(
  url: URL,
  { method, headers, body, signal }: Upload,
  onProgress: (sent: number) => void,
): Promise<Response> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const request = new XMLHttpRequest();
    request.open(method, url);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.responseType = 'blob';
    request.upload.onprogress = ({ loaded }) => onProgress(loaded);
    request.onload = () => {
      const { status } = request;
      const answer = request.response as Blob;
      const type = request.getResponseHeader('content-type');
      const after = request.getResponseHeader('retry-after');
      const nonce = request.getResponseHeader('dpop-nonce');
      const answered = {
        ...(type && { 'content-type': type }),
        ...(after && { 'retry-after': after }),
        ...(nonce && { 'dpop-nonce': nonce }),
      };
      resolve(new Response(answer.size > 0 ? answer : null, { status, headers: answered }));
    };
    request.onerror = () => reject(new TypeError('the connection broke'));
    request.onabort = () => reject(signal?.reason);
    signal?.addEventListener('abort', () => request.abort());
    request.send(body as XMLHttpRequestBodyInit);
  });
}

/** The error for a response with an error status. */
export async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => '');
  const after = Number(response.headers.get('retry-after'));
  return new ApiError(
    sentenceOf(text) ?? `The relay answered ${response.status}.`,
    response.status,
    after > 0 ? after : undefined,
  );
}

function sentenceOf(text: string): string | undefined {
  try {
    const { error } = JSON.parse(text) as { error?: unknown };
    if (typeof error === 'string' && error !== '') return sentence(error);
    return undefined;
  } catch {
    // Errors of voice are a line of text.
    return text !== '' && text.length < 200 && !text.includes('<') ? sentence(text) : undefined;
  }
}

/** The mailbox's two refusals to serve a resource of home (contract 12 §7). */
const OF_HOME = /^home is o(?:ff since|n:)/;

const sentence = (text: string): string =>
  OF_HOME.test(text)
    ? 'Only home can do this, and it cannot be reached now.'
    : `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;
