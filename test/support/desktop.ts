import { authenticate, bearer, type Paired, pair, type Target } from './relay.ts';
import { followCommands, giveUpGrant, type Scripted } from './scripted.ts';

export interface ToolCommand {
  request_id: string;
  tool: string;
  args: Record<string, unknown>;
  target_device_id: string;
  control_session?: Record<string, unknown>;
}

type Script = (command: ToolCommand) => Record<string, unknown> | undefined;

/** Says what it was asked, as `result`. */
export const echo: Script = ({ tool, args }) => ({ ok: true, result: { tool, args } });
/** Never answers. */
export const silent: Script = () => undefined;

/** What a desktop of these tests says of itself. */
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
  /** How it answers from now on: a payload of `desktop.response`, or nothing. */
  script: Script;
  /** Sends a status; resolves when the relay has taken it in. */
  report(status?: Record<string, unknown>): Promise<void>;
  /** Answers a command. */
  answer(command: ToolCommand, payload: Record<string, unknown>): void;
  headers: Record<string, string>;
}

interface DesktopOptions {
  device?: Record<string, unknown>;
  policy?: Record<string, unknown>;
  /** Put over `STATUS` in its first status; null for one that sends none. */
  status?: Record<string, unknown> | null;
  script?: Script;
}

/** Pairs a scripted desktop, which says where it works and then reports itself, as desktops do. */
export async function startDesktop(target: Target, options: DesktopOptions = {}): Promise<DesktopClient> {
  const id = (options.device?.device_id as string) ?? `pc-${crypto.randomUUID().slice(0, 8)}`;
  const device = { device_id: id, device_name: 'PC', client_surface: 'desktop', ...options.device };
  return script(await pair(target, { policy: options.policy, device }), id, options);
}

/** The same desktop on one more socket. */
export async function reconnect(
  target: Target,
  desktop: DesktopClient,
  options: DesktopOptions = {},
): Promise<DesktopClient> {
  const { client, frame } = await authenticate(target, { session_token: desktop.token });
  return script({ ...desktop, client, ok: frame }, desktop.id, options);
}

/** Gives up the `desktop` grant of a device; its socket stays. Resolves when it is gone. */
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
