import type { Command } from 'cac';
import { describeError } from '../lib/errors.ts';
import { createLog } from '../lib/log.ts';
import { asPort, type Options, option } from './options.ts';
import { aligned, type CommandContext, CommandError, createStyle, line } from './output.ts';
import { onSignals } from './signals.ts';

const DEFAULT_PORT = 9119;

/** `svc relay dashboard-demo`: a dashboard to try the plugin without the agent platform (contract 07 §4). */
export function define(command: Command): void {
  command
    .option('--port <n>', `port to listen on, on 127.0.0.1 only (default ${DEFAULT_PORT})`)
    .option('--relay-port <n>', 'port of the relay on this machine (default SVC_RELAY_PORT, RELAY_PORT or 8767)')
    .example((name) => `${name} dashboard-demo`)
    .example((name) => `${name} dashboard-demo --port 9200`)
    .action(run);
}

/** Serves the demo until a signal stops it. */
async function run(options: Options, context: CommandContext): Promise<void> {
  const port = option(options, '--port', asPort) ?? DEFAULT_PORT;
  const relayPort = option(options, '--relay-port', asPort);
  const { directory, version } = context.ownPackage;
  if (directory === null) throw new CommandError('the files of the Relay tab are not in this package');
  const log = createLog('WARNING', (text) => line(context.stderr, text));
  const [{ startDemo }, { createDashboardPlugin }] = await Promise.all([
    import('./dashboard/demo.ts'),
    import('./dashboard/plugin.ts'),
  ]);
  const demo = await startDemo({
    port,
    version,
    assets: `${directory}/dashboard`,
    createPlugin: (host) => createDashboardPlugin({ host, relayPort, env: context.env }),
    log,
  }).catch((error: unknown) => {
    const next = 'Stop what listens there, or use another --port.';
    throw new CommandError(`cannot listen on 127.0.0.1:${port}: ${describeError(error)}`, next);
  });
  const { bold, dim } = createStyle(context.stdout, context.env);
  const rows = aligned([
    ['Address', demo.url],
    ['User name', 'demo'],
    ['Password', demo.password],
  ]);
  line(context.stdout, bold('Dashboard demo of svc-relay'));
  for (const row of rows) line(context.stdout, row);
  line(context.stdout, dim('The password is shown once and holds until this program ends. Press Ctrl+C to stop.'));
  await new Promise<void>((resolve) => {
    const end = onSignals(() => {
      end();
      resolve();
    }, context);
  });
  await demo.close();
}
