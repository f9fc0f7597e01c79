import { RelayError } from '../lib/errors.ts';
import type { Session } from '../lib/sessions/session.ts';
import { errorResponse, readJsonValue } from '../lib/web/json.ts';
import { label, RUN_ID } from './actor.ts';
import { paired } from './guards.ts';
import type { Guard, Handler, RelayRequest } from './request.ts';

/** Bytes of a body (contract 09 §7). */
const LIMIT = 2 * 1024 * 1024;

const device = paired();

/**
 * A paired session. A browser's page must have the relay's own origin, since another page could use a token that it was
 * given.
 */
export const mcpClient: Guard = (request, relay) => {
  if (isForeign(request)) return errorResponse(403, 'pages of other origins may not use MCP');
  return device(request, relay);
};

function isForeign({ headers }: RelayRequest): boolean {
  const origin = headers.get('origin');
  if (origin === null) return false;
  try {
    return new URL(origin).host !== headers.get('host');
  } catch {
    return true;
  }
}

/** `/mcp`: Streamable HTTP of the Model Context Protocol (contract 09 §7). */
export const mcp: Handler = async (request, relay) => {
  // The stream of a `HEAD` would never be read.
  if (request.method === 'HEAD') return errorResponse(405, 'method not allowed', { allow: 'DELETE, GET, POST' });
  const isPost = request.method === 'POST';
  const type = request.headers.get('content-type') ?? '';
  if (isPost && !/^application\/json\s*(?:;|$)/i.test(type)) {
    throw new RelayError('unsupported-media', 'the body must be application/json');
  }
  const body = isPost ? await readJsonValue(request, LIMIT) : undefined;
  return relay.mcp.handle({ request, session: request.session as Session, body, runId: label(request, RUN_ID) });
};
