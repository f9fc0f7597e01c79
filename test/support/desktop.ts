import { authenticate, bearer, type Paired, pair, post, type Target } from './relay.ts';
import { followCommands, giveUpGrant, type Scripted } from './scripted.ts';

export interface ToolCommand {
  request_id: string;
  tool: string;
  args: Record<string, unknown>;
  target_device_id: string;
  control_session?: Record<string, unknown>;
}

type Script = (command: ToolCommand) => Record<string, unknown> | undefined;

/** Answers with the command as `result`. */
export const echo: Script = ({ tool, args }) => ({ ok: true, result: { tool, args } });
/** Never answers. */
export const silent: Script = () => undefined;

/** First status of a scripted desktop. */
export const STATUS = {
  advertised_tools: ['desktop_terminal', 'desktop_read_file', 'desktop_computer_action'],
  host: 'box.local',
  platform: 'linux',
  arch: 'x64',
  node: 'v22.1.0',
  version: '0.9.0',
  pid: 4711,
  started_at_ms: 1_790_000_000_000,
  uptime_ms: 5000,
  interactive: false,
};

export interface DesktopClient extends Paired, Scripted<ToolCommand> {
  id: string;
  /** Computes its answers from now on: a payload of `desktop.response`, or nothing. */
  script: Script;
  /** Sends a status; resolves once the relay has handled it. */
  report(status?: Record<string, unknown>): Promise<void>;
  /** Answers a command. */
  answer(command: ToolCommand, payload: Record<string, unknown>): void;
  headers: Record<string, string>;
}

interface DesktopOptions {
  device?: Record<string, unknown>;
  policy?: Record<string, unknown>;
  /** Overrides members of `STATUS` in the first status; null for a desktop that sends none. */
  status?: Record<string, unknown> | null;
  script?: Script;
}

/** Pairs a scripted desktop, which announces its workspace and then its status, as real ones do. */
export async function startDesktop(target: Target, options: DesktopOptions = {}): Promise<DesktopClient> {
  const id = (options.device?.device_id as string) ?? `pc-${crypto.randomUUID().slice(0, 8)}`;
  const device = { device_id: id, device_name: 'PC', client_surface: 'desktop', ...options.device };
  return script(await pair(target, { policy: options.policy, device }), id, options);
}

/** Connects the same desktop on another socket. */
export async function reconnect(
  target: Target,
  desktop: DesktopClient,
  options: DesktopOptions = {},
): Promise<DesktopClient> {
  const { client, frame } = await authenticate(target, { session_token: desktop.token });
  return script({ ...desktop, client, ok: frame }, desktop.id, options);
}

/** Gives up a device's `desktop` grant; its socket stays. Resolves once the grant is gone. */
export const loseGrant = (target: Target, device: Pick<Paired, 'token' | 'prefix'>): Promise<void> =>
  giveUpGrant(target, device, 'desktop');

async function script(paired: Paired, id: string, options: DesktopOptions): Promise<DesktopClient> {
  const { client } = paired;
  const desktop: DesktopClient = {
    ...paired,
    ...followCommands<ToolCommand>(client, 'desktop', (command) => {
      const answer = desktop.script(command);
      if (answer) desktop.answer(command, answer);
    }),
    id,
    script: options.script ?? echo,
    headers: bearer(paired.token),
    async report(status = {}) {
      client.send('desktop', 'desktop.status', { ...STATUS, ...status });
      await desktop.settled();
    },
    answer({ request_id }, payload) {
      client.send('desktop', 'desktop.response', { request_id, ...payload });
    },
  };
  client.send('desktop', 'workspace', { version: 1, cwd: '/home/me', hostname: 'box' });
  if (options.status !== null) await desktop.report(options.status);
  return desktop;
}

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

/** Status and error code of a refusal. Throws on anything else. */
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

/** The newest command in the ring of `/desktop/health`. */
export const newest = async (target: Target, caller: Pick<DesktopClient, 'headers'>) =>
  (await health(target, caller)).recent_commands[0];
