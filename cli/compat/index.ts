/** Argument that an older agent API server passes to a startup hook (contract 07 §5.4). */
export interface HostApp {
  hasRoute(method: string, path: string): boolean;
  addRoute(method: string, path: string, handler: HostHandler): void;
  /** The server's own authentication: false, or an answer that refuses, stops the request; so does a throw. */
  checkAuth(request: Request): unknown;
}

export type HostHandler = (request: Request) => Promise<Response>;

/** The routes that this entry can answer. `{name}` in a path is one segment. */
const routes: [method: string, path: string, answer: (request: Request) => Response | Promise<Response>][] = [
  ['PUT', '/api/skills/toggle', skillToggle],
];

/**
 * Adds the routes that the server lacks; its own win, per method and path (contract 07 §5.4). Each answers under the
 * server's own authentication. Nothing of the relay is started or opened by it.
 */
export function register(app: HostApp): void {
  for (const [method, path, answer] of routes) {
    if (app.hasRoute(method, path)) continue;
    app.addRoute(method, path, async (request) => (await refusal(app, request)) ?? (await answer(request)));
  }
}

async function refusal(app: HostApp, request: Request): Promise<Response | null> {
  try {
    const verdict = await app.checkAuth(request);
    if (verdict instanceof Response) return verdict.ok ? null : verdict;
    return verdict === false ? unauthorized() : null;
  } catch {
    return unauthorized();
  }
}

const unauthorized = () => Response.json({ ok: false, error: 'not authorized' }, { status: 401 });

/** The same answer as the relay's own stub (contract 07 §1.5): clients then show no toggle. */
function skillToggle(): Response {
  const detail = 'Skills are switched in the configuration of the agent.';
  return Response.json({ ok: false, error: 'skill_toggle_not_implemented', detail }, { status: 501 });
}
