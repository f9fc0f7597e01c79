import type { DesktopClient } from '../support/desktop.ts';
import { post, type Target } from '../support/relay.ts';

export type Refusal = [status: number, error_code: unknown];

/** Calls a tool as the session of `caller`. */
export const call = (
  target: Target,
  caller: Pick<DesktopClient, 'headers'>,
  tool: string,
  args: unknown = {},
  init: RequestInit & { headers?: Record<string, string> } = {},
): Promise<Response> =>
  target.fetch(`/desktop/${tool}`, { ...post(args), ...init, headers: { ...init.headers, ...caller.headers } });

/** Status and code of a refusal, which must have the form of one. */
export async function refusalOf(response: Response | Promise<Response>): Promise<Refusal> {
  const settled = await response;
  const body = await settled.json();
  if (body.ok !== false || typeof body.error !== 'string' || body.error === '') {
    throw new Error(`not a refusal: ${settled.status} ${JSON.stringify(body)}`);
  }
  return [settled.status, body.error_code];
}

export const health = async (target: Target, caller: Pick<DesktopClient, 'headers'>) =>
  (await target.fetch('/desktop/health', { headers: caller.headers })).json();

/** The newest command of the ring. */
export const newest = async (target: Target, caller: Pick<DesktopClient, 'headers'>) =>
  (await health(target, caller)).recent_commands[0];
