import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ReadableStream as NodeReadableStream } from 'node:stream/web';
import type { PipedBody } from '../../../lib/host/media.ts';
import { isPiped, WebResponse } from '../../../lib/web/response.ts';

/** Milliseconds for which a client may leave its response unread before its connection is dropped. */
const STALL_TIMEOUT = 300_000;
/** Largest body that is read to its end after an early response, so that the connection stays usable. */
const MAX_UNREAD = 64 * 1024;
/** Milliseconds for which a refused body is still read, so that its client sees the response: in total, and of silence. */
const LINGER = 30_000;
const LINGER_IDLE = 1_000;

/**
 * Sends a response. Text and bytes leave in a single write, head and body together; `write` and `end`, as the adapter would
 * call them, cork the socket, which costs a tenth of the requests (2026-11).
 */
export function send(req: IncomingMessage, res: ServerResponse, response: Response): void | Promise<void> {
  const content = response instanceof WebResponse ? response.content : response.body;
  if (response instanceof WebResponse && response.sent) whenSent(req, res, response.sent);
  const isWhole = content === null || typeof content === 'string' || content instanceof Uint8Array;
  if (isWhole || req.method === 'HEAD' || res.destroyed) {
    if (!isWhole) discard(content);
    const body = isWhole && content !== null ? content : '';
    if (!req.complete && !res.destroyed) sendEarly(req, res, response, body);
    else {
      writeHead(res, response);
      res.end(body);
    }
    return;
  }
  writeHead(res, response);
  // Node sets its own timeout again for the next request on the connection.
  res.socket?.setTimeout(STALL_TIMEOUT);
  if (isPiped(content)) content.pipe(res);
  // A client that disconnects ends the stream, which is not an error.
  else return pipeline(Readable.fromWeb(content as NodeReadableStream), res).catch(() => {});
}

/**
 * Reports whether the whole response was passed to the system. A response queued behind others on its connection is not
 * notified when that ends, and it reports that it has finished although the connection was destroyed before.
 */
function whenSent({ socket }: IncomingMessage, res: ServerResponse, sent: (isWhole: boolean) => void): void {
  if (socket.destroyed) {
    sent(false);
    return;
  }
  const lost = () => end(false);
  const finished = () => end(!socket.destroyed);
  const end = (isWhole: boolean) => {
    socket.off('close', lost);
    res.off('finish', finished);
    sent(isWhole);
  };
  socket.once('close', lost);
  res.once('finish', finished);
}

function discard(content: PipedBody | ReadableStream): void {
  if (isPiped(content)) content.destroy();
  // A stream that has failed cannot be cancelled, which concerns nobody.
  else content.cancel().catch(() => {});
}

function writeHead(res: ServerResponse, { status, headers }: Response): void {
  const fields: string[] = [];
  headers.forEach((value, name) => void fields.push(name, value));
  res.writeHead(status, fields);
}

/**
 * Answers before the body has arrived, then reads and discards it for a while. A small body is read to its end, so that the
 * next request can follow. Otherwise the connection closes, but not at once: that would reset it, and a client that is still
 * sending would never see the response.
 */
function sendEarly(req: IncomingMessage, res: ServerResponse, response: Response, body: string | Uint8Array): void {
  const { socket } = req;
  const { 'content-length': length = Number.POSITIVE_INFINITY } = req.headers;
  if (Number(length) > MAX_UNREAD) response.headers.set('connection', 'close');
  writeHead(res, response);
  const staysOpen = res.shouldKeepAlive && response.headers.get('connection') !== 'close';
  if (staysOpen) res.end(body);
  else res.write(body);

  const limit = setTimeout(close, LINGER).unref();
  const idle = setTimeout(close, LINGER_IDLE).unref();
  function stop(): void {
    clearTimeout(limit);
    clearTimeout(idle);
    if (!staysOpen) res.end();
  }
  function close(): void {
    stop();
    if (staysOpen) socket.destroySoon();
  }
  // A reader that stopped has left its listeners behind, and a stream with one of them does not flow.
  req.removeAllListeners('readable').removeAllListeners('data');
  req
    .on('data', () => void idle.refresh())
    .on('error', () => {})
    .on('close', stop)
    .on('end', stop)
    .resume();
  if (req.destroyed) stop();
}
