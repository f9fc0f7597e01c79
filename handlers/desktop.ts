import { refusal } from '../lib/desktop/refusal.ts';
import { isToolName } from '../lib/desktop/tools.ts';
import { type ErrorKind, RelayError } from '../lib/errors.ts';
import type { Session } from '../lib/sessions/session.ts';
import { errorResponse, type JsonText, json, jsonText, readJsonText } from '../lib/web/json.ts';
import { actorOf, label, RUN_ID } from './actor.ts';
import { paired, pairedWithHint } from './guards.ts';
import { type Guard, type Handler, hangUpOf, lastOf, type RelayRequest } from './request.ts';

/** Maximum bytes of a tool's arguments (contract 07 §2.3). */
const LIMIT = 32 * 1024 * 1024;
/** The tool that the relay answers itself. */
const HEALTH = 'desktop_health';
const ALLOW = 'DELETE, GET, HEAD, PATCH, POST, PUT';

export const mayUseDesktop: Guard = pairedWithHint(
  'tools on this host send the token in DESKTOP_RELAY_TOKEN',
  paired('desktop', 'desktop grant required'),
);

/** Every method calls a tool, except `OPTIONS`, because there is no CORS (contract 01 §1). */
export const mayCallTool: Guard = (request, relay) =>
  request.method === 'OPTIONS'
    ? errorResponse(405, 'method not allowed', { allow: ALLOW })
    : mayUseDesktop(request, relay);

/** `GET /desktop/_ping?tool=&device=` (contract 07 §2.3). */
export const pingDesktop: Handler = (request, relay) => {
  const { tool, ...query } = lastOf(request.query);
  const ready = relay.desktop.ping(tool?.trim() || undefined, query);
  return ready === true ? json({ ok: true }) : errorResponse(503, ready);
};

/** `GET /desktop/health` (contract 07 §2.3). */
export const desktopHealth: Handler = (_request, relay) => json(relay.desktop.health());

/** `/desktop/{tool}`: forwards a call to a desktop and returns its response unchanged (contract 07 §2.3). */
export const callTool: Handler = async (request, relay) => {
  const { tool = '' } = request.params;
  if (!isToolName(tool)) throw refusal('not-found', 'unknown_tool', 'no desktop tool has this name');
  if (tool === HEALTH) return desktopHealth(request, relay);
  const query = lastOf(request.query);
  const reply = await relay.desktop.call({
    tool,
    args: await readArguments(request, query),
    query,
    session: request.session as Session,
    run: {
      chatSession: label(request, 'x-svc-relay-chat-session'),
      runId: label(request, RUN_ID),
      profile: label(request, 'x-svc-relay-profile'),
    },
    signal: hangUpOf(request),
    actor: actorOf(request, relay),
  });
  return jsonText(reply);
};

const CODES: Partial<Record<ErrorKind, string>> = { invalid: 'invalid_body', 'too-large': 'payload_too_large' };

/** The arguments in the body, or in the query for `GET`, `HEAD` and a `DELETE` without a body. */
async function readArguments(request: RelayRequest, query: Record<string, string>): Promise<JsonText> {
  const { method } = request;
  const fromQuery = (): JsonText => ({ text: JSON.stringify(query), value: query });
  if (method === 'GET' || method === 'HEAD') return fromQuery();
  try {
    return await readJsonText(request, LIMIT, method === 'DELETE' ? fromQuery : undefined);
  } catch (error) {
    const code = error instanceof RelayError ? CODES[error.kind] : undefined;
    throw code === undefined ? error : refusal((error as RelayError).kind, code, (error as RelayError).message);
  }
}
