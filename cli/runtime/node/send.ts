import type { IncomingMessage, ServerResponse } from 'node:http';
import { sendNodeResponse } from 'srvx/node';

/** How long a client may leave what it is sent unread, before its connection is given up. */
const STALL_TIMEOUT = 300_000;
/** How long what an already refused client still sends is taken in, so that it reads the answer: in all, and unheard. */
const LINGER = 30_000;
const LINGER_IDLE = 1_000;

/** srvx's own response gives its finished parts away, without building a platform one. */
interface FastAnswer {
  _toNodeResponse?(): { status: number; headers: string[]; body: unknown };
}

/**
 * Sends an answer. One of text goes out in a single write, head and body together: through `write` and `end`, as srvx
 * does it, Node corks the socket, which costs a tenth of the requests (2026-11).
 */
export function send(req: IncomingMessage, res: ServerResponse, response: Response): void | Promise<void> {
  const parts = (response as FastAnswer)._toNodeResponse?.();
  if (!parts) return sendNodeResponse(res as never, response);
  if (typeof parts.body === 'string') {
    res.writeHead(parts.status, parts.headers);
    if (!req.complete && closes(parts.headers)) sendEarly(req, res, parts.body);
    else res.end(parts.body);
    return;
  }
  // Every request that follows on the connection gets Node's own limit again.
  if (parts.body) res.socket?.setTimeout(STALL_TIMEOUT);
  // Without a text of its own, Node adds the usual one; srvx's is empty.
  return sendNodeResponse(res as never, { _toNodeResponse: () => ({ ...parts, statusText: undefined }) } as never);
}

const closes = (headers: string[]): boolean =>
  headers.some((name, at) => at % 2 === 0 && name === 'connection' && headers[at + 1] === 'close');

/**
 * Answers in the middle of a body. Closing the connection now would reset it, and the client, which still sends, would
 * never see why: what it sends is thrown away for a while.
 */
function sendEarly(req: IncomingMessage, res: ServerResponse, body: string): void {
  res.write(body);
  const end = () => {
    clearTimeout(limit);
    clearTimeout(idle);
    res.end();
  };
  const limit = setTimeout(end, LINGER).unref();
  const idle = setTimeout(end, LINGER_IDLE).unref();
  // Whoever read the body before has left its listeners.
  req.removeAllListeners('readable').removeAllListeners('data');
  req
    .on('data', () => void idle.refresh())
    .on('error', () => {})
    .on('close', end)
    .on('end', end)
    .resume();
  if (req.destroyed) end();
}
