import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Readable, Writable } from 'node:stream';
import { ConnectTimeout, IdleTimeout, type LocalLink } from './local-link.ts';

/** Limits of one forwarded call: bytes, and milliseconds. */
export interface ForwardLimits {
  maxRequest: number;
  maxResponse: number;
  idle: number;
  total: number;
}

/** Why a call has no answer. */
export type Failure =
  | { kind: 'request-too-large' | 'response-too-large' | 'timeout' }
  | { kind: 'unreachable'; error: unknown };

/** Bytes sent to the server. */
export interface Call {
  method: string;
  path: string;
  /** Alternating names and values, complete except for those that frame the body. */
  headers: string[];
  /** Undefined if the request's body is not read. */
  body?: IncomingMessage;
  /** Bytes of both bodies that have passed so far. */
  bytes: { request: number; response: number };
}

/** Ends a call with a refusal, or breaks off an answer that has started. */
export type Fail = (failure: Failure) => void;
export type Answered = (answer: IncomingMessage, fail: Fail) => void;

export interface ForwarderDeps {
  link: LocalLink;
  limits: ForwardLimits;
  /** Answers a call that failed before its response began. */
  refuse(res: ServerResponse, failure: Failure): void;
  /** Called with the number of bytes of each chunk, in either direction, to free their buffers (`gc.ts`). */
  carried(bytes: number): void;
}

export type Forwarder = ReturnType<typeof createForwarder>;

/** Forwards HTTP requests to a server on this host, with `node:http` streams in both directions. */
export function createForwarder({ link, limits, refuse, carried }: ForwarderDeps) {
  /**
   * Sends a call and passes its answer to `answered`. Ends with the client, or at a limit. A body is read no faster than the
   * server accepts it.
   */
  function forward(call: Call, res: ServerResponse, answered: Answered, isRepeated = false): void {
    const { method, path, headers, body } = call;
    // A call without a body can be repeated if a kept connection turns out to be closed.
    const keepAlive = !isRepeated && body === undefined && (method === 'GET' || method === 'HEAD');
    const request = { method, path, headers, keepAlive };
    const upstream: ClientRequest = link.request(request, (response) => onResponse(response));
    let answer: IncomingMessage | undefined;
    let isOver = false;
    let stopBody = () => {};

    const end = () => {
      isOver = true;
      clearTimeout(timer);
      res.off('close', onClosed);
      stopBody();
    };
    const fail: Fail = (failure) => {
      if (isOver) return;
      end();
      upstream.destroy();
      // A client that has received a part must not take it for the whole.
      if (res.headersSent) res.destroy();
      else refuse(res, failure);
      if (body && !body.complete) discard(body);
    };
    const onClosed = () => {
      end();
      if (!answer?.complete) upstream.destroy();
      if (body && !body.complete) discard(body);
    };
    const timer = setTimeout(() => fail({ kind: 'timeout' }), limits.total);
    res.once('close', onClosed);

    const onResponse = (response: IncomingMessage) => {
      answer = response;
      response.on('error', ignore);
      response.once('close', () => {
        if (!response.complete) failWith(response.socket.errored ?? new Error('connection reset'));
      });
      // Node's parser accepts a status such as 99, which its server refuses to send.
      if ((response.statusCode as number) < 200) failWith(unusable());
      else answered(response, fail);
    };
    const failWith = (error: Error) => {
      const isTimeout = error instanceof ConnectTimeout || error instanceof IdleTimeout;
      fail(isTimeout ? { kind: 'timeout' } : { kind: 'unreachable', error });
    };
    upstream.on('error', (error) => {
      // An answer that came before the connection broke is still passed on.
      if (isOver || answer) return;
      if (keepAlive && upstream.reusedSocket && !(error instanceof IdleTimeout)) {
        end();
        forward(call, res, answered, true);
      } else failWith(error);
    });
    // Node ends the connection without an error if the server changes the protocol unasked.
    upstream.once('close', () => {
      if (!answer) failWith(unusable());
    });
    if (!body) {
      upstream.end();
      return;
    }
    stopBody = carry(body, upstream, (size) => {
      call.bytes.request += size;
      carried(size);
      if (call.bytes.request <= limits.maxRequest) return true;
      fail({ kind: 'request-too-large' });
      return false;
    });
    // The server may answer without reading the whole body.
    upstream.once('close', () => {
      stopBody();
      if (!body.complete) discard(body);
    });
  }

  return {
    /**
     * Adds the body of a request to a call, framed as received; one without a length is sent in chunks. False if its
     * announced length is too large.
     */
    addBody(call: Call, req: IncomingMessage): boolean {
      const length = req.headers['content-length'];
      if (Number(length) > limits.maxRequest) return false;
      if (req.headers['transfer-encoding'] !== undefined) {
        call.headers.push('transfer-encoding', 'chunked');
        call.body = req;
      } else if (length !== undefined || !BODILESS.has(call.method)) {
        call.headers.push('content-length', length ?? '0');
        if (Number(length) > 0) call.body = req;
      }
      return true;
    },

    forward: (call: Call, res: ServerResponse, answered: Answered): void => forward(call, res, answered),

    /** Passes on the rest of an answer's body as it arrives. `length` is the announced length, if any. */
    carryAnswer(call: Call, answer: IncomingMessage, res: ServerResponse, fail: Fail, length = 0): void {
      const { bytes } = call;
      const admit = (size: number) => {
        bytes.response += size;
        carried(size);
        if (bytes.response <= limits.maxResponse) return true;
        fail({ kind: 'response-too-large' });
        return false;
      };
      if (length > 0 && length <= MAX_SINGLE) carrySmall(answer, res, length, admit);
      else carry(answer, res, admit);
      // Node holds a head back until there is a body, but an event stream may start with a long silence.
      setImmediate(() => {
        if (bytes.response === 0 && !res.writableEnded && !res.destroyed) res.flushHeaders();
      });
    },
  };
}

/** The announced length of an answer's body: 0 without one, and for `HEAD`. */
export function announcedLength({ method }: Call, headers: readonly string[]): number {
  if (method === 'HEAD') return 0;
  for (let at = 0; at < headers.length; at += 2) {
    const name = headers[at] as string;
    if (name.length === 14 && name.toLowerCase() === 'content-length') return Number(headers[at + 1]);
  }
  return 0;
}

/** Bytes of a body that is sent together with its head if it arrives in one piece. */
const MAX_SINGLE = 16 * 1024;

/**
 * Ends a response with its whole body, if that is the first chunk: head and body then go out in one write, which saves a
 * tenth of a small call. The rest of any other body is carried.
 */
function carrySmall(from: IncomingMessage, to: ServerResponse, length: number, admit: (size: number) => boolean): void {
  // An answer such as 304 announces a body that it does not have.
  const onEnd = () => void to.end();
  from.once('end', onEnd);
  from.once('data', (chunk: Buffer) => {
    from.off('end', onEnd);
    if (!admit(chunk.length)) return;
    // Node joins the head with a string only.
    if (chunk.length === length) to.end(chunk.toString('latin1'), 'latin1');
    else {
      to.write(chunk);
      carry(from, to, admit);
    }
  });
}

/** Methods whose requests have no length unless they have a body. */
const BODILESS = new Set(['GET', 'HEAD', 'OPTIONS']);

/**
 * Carries a body chunk by chunk, no faster than it is read. `admit` gets the size of each chunk, and returns false to drop
 * it. Returns a function that stops.
 */
function carry(from: Readable, to: Writable, admit: (size: number) => boolean): () => void {
  const onData = (chunk: Buffer) => {
    if (admit(chunk.length) && !to.write(chunk)) from.pause();
  };
  const onDrain = () => void from.resume();
  const onEnd = () => void to.end();
  from.on('data', onData);
  from.on('end', onEnd);
  to.on('drain', onDrain);
  return () => {
    from.off('data', onData);
    from.off('end', onEnd);
    to.off('drain', onDrain);
  };
}

/** Milliseconds for which the rest of a refused body is discarded, so that its sender can read the refusal. */
const DISCARD_TIMEOUT = 5_000;

/** Discards the rest of a body for a while, and then drops a client that keeps sending. */
export function discard(body: IncomingMessage): void {
  body.resume();
  const timer = setTimeout(() => {
    if (!body.complete) body.destroy();
  }, DISCARD_TIMEOUT);
  timer.unref();
  body.once('end', () => clearTimeout(timer));
  body.once('close', () => clearTimeout(timer));
}

const unusable = () => new Error('its answer cannot be used');
const ignore = () => {};
