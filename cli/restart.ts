import type { Command } from 'cac';
import { readRelayLock } from '../lib/host/node/relay-lock.ts';
import { requireManager, unitServes } from '../lib/operator/service/service.ts';
import { createSystemd } from '../lib/operator/service/systemd.ts';
import { loadConfig } from './environment.ts';
import { flag, type Options } from './options.ts';
import { type CommandContext, CommandError, printable } from './output.ts';
import { relayProcess } from './relay-process.ts';
import { serviceDeps } from './service.ts';
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
  const environment = loadConfig(context.env);
  const { config } = environment;
  const lock = config.stateFile === null ? null : readRelayLock(config.stateFile);
  const found = await relayProcess(config);
  // The manager has its flags in the unit.
  const args = found?.isService ? [] : (lock?.args ?? []);
  const service = await serviceDeps(environment, context, config.port);
  if (await unitServes(service)) {
    // The service will start it. Whatever keeps that from happening has to be found before the relay is stopped.
    if (args.length > 0) {
      throw new CommandError(
        `the relay (process ${lock?.pid}) keeps running: it was started with ${args[0]}, which is not for the service`,
        `Put its settings into ${printable(config.agentHome)}/.env, then stop it with 'svc down', and start the service with 'svc up'.`,
      );
    }
    await requireManager(createSystemd(service.host));
  }
  await stopRelay(context);
  await bringUp(args, flag(options, '--json'), context);
}
