import type { Command } from 'cac';
import { readRelayLock } from '../lib/host/node/relay-lock.ts';
import { loadConfig } from './environment.ts';
import { flag, type Options } from './options.ts';
import type { CommandContext } from './output.ts';
import { stopRelay } from './stop.ts';
import { bringUp } from './up.ts';

/** `svc restart`: stops the relay of this machine and starts it in the background, with the same flags. */
export function define(command: Command): void {
  command
    .option('--json', 'print one JSON document')
    .example((name) => `${name} restart`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const { stateFile } = loadConfig(context.env).config;
  const lock = stateFile === null ? null : readRelayLock(stateFile);
  const { by } = await stopRelay(context);
  // The manager has its flags in the unit.
  await bringUp(by === 'systemd' ? [] : (lock?.args ?? []), flag(options, '--json'), context);
}
