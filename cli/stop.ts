import type { Command } from 'cac';
import { isAlive } from '../lib/host/node/relay-lock.ts';
import { createSystemd } from '../lib/operator/service/systemd.ts';
import { UNIT } from '../lib/operator/service/unit.ts';
import { loadConfig } from './environment.ts';
import { flag, type Options } from './options.ts';
import { type CommandContext, CommandError, printJson, sentence } from './output.ts';
import { pause } from './pause.ts';
import { callRelay, localRelay } from './relay-client.ts';
import { relayProcess } from './relay-process.ts';

/** Milliseconds for a relay to stop; it ends by itself after 5 s. */
const TIMEOUT = 10_000;
const POLL = 50;
const ANSWER_TIMEOUT = 2000;

export interface Stopped {
  stopped: boolean;
  pid: number | null;
  by: 'signal' | 'systemd' | null;
}

/** `svc stop`: stops the relay of this machine in an orderly way, as a service or in a terminal. */
export function define(command: Command): void {
  command
    .option('--json', 'print one JSON document')
    .example((name) => `${name} stop`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const result = await stopRelay(context);
  if (flag(options, '--json')) return printJson(context.stdout, result);
  const { stopped, pid, by } = result;
  if (!stopped) sentence(context.stdout, 'No relay is running.');
  else if (by === 'signal') sentence(context.stdout, `Stopped the relay (process ${pid}).`);
  else {
    sentence(context.stdout, `Stopped the service ${UNIT}. It starts again at the next sign-in.`);
    sentence(context.stdout, 'To keep it from that: svc relay service remove. To start it now: svc up');
  }
}

/** Stops the relay of this machine, and waits until its process has ended. */
export async function stopRelay(context: CommandContext): Promise<Stopped> {
  const { config } = loadConfig(context.env);
  const found = await relayProcess(config);
  if (found === null) {
    const answer = await callRelay(localRelay(config), {
      method: 'GET',
      path: '/health',
      timeout: ANSWER_TIMEOUT,
    }).catch(() => undefined);
    if (!answer) return { stopped: false, pid: null, by: null };
    throw new CommandError(
      `something answers on port ${config.port}, but it is no relay on this state that this user can stop`,
      "Look at it with 'svc status', and stop it as the user that started it.",
    );
  }
  const { pid, isService } = found;
  if (isService) await stopService(context, config.agentHome);
  else signal(pid);
  const deadline = performance.now() + TIMEOUT;
  while (isAlive(pid)) {
    if (performance.now() > deadline) {
      throw new CommandError(`the relay (process ${pid}) does not stop`, `End it at once with: kill -9 ${pid}`);
    }
    await pause(POLL);
  }
  return { stopped: true, pid, by: isService ? 'systemd' : 'signal' };
}

/** The manager would restart a relay that ended by itself. */
async function stopService(context: CommandContext, agentHome: string): Promise<void> {
  const systemd = createSystemd(await context.createHost(agentHome));
  if (await systemd.call('stop', UNIT)) return;
  throw new CommandError(`systemctl --user stop ${UNIT} failed`, `Find out why with: systemctl --user status ${UNIT}`);
}

/** @throws CommandError if the process belongs to another user. */
function signal(pid: number): void {
  try {
    process.kill(pid, 'SIGTERM');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') return;
    throw new CommandError(`the relay (process ${pid}) belongs to another user`, `Stop it as that user, or as root.`);
  }
}
