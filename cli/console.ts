import { isIP } from 'node:net';
import { userInfo } from 'node:os';
import type { Command } from 'cac';
import { describeError } from '../lib/errors.ts';
import { openInBrowser } from './open-in-browser.ts';
import { openOperatorRelay } from './operator-relay.ts';
import { flag, type Options } from './options.ts';
import { aligned, type CommandContext, createStyle, line, printable, printJson, printWarning } from './output.ts';
import { RELAY_OPTION } from './remote-relay.ts';

/** `svc console`: where the operator's page is, and how to get there from another machine (contract 09 §5). */
export function define(command: Command): void {
  command
    .option('--open', 'open it in a browser of this machine')
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} console`)
    .example((name) => `${name} console --open`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const relay = await openOperatorRelay(options, context);
  // Without a relay there is no page to name.
  await relay.call({ method: 'GET', path: '/relay/info' });
  const { url: remote, port } = relay;
  const url = `${remote ?? `${relay.tls ? 'https' : 'http'}://127.0.0.1:${port}`}/console/`;
  const ssh = remote === undefined ? tunnel(port, context.env) : null;
  if (flag(options, '--open')) {
    openInBrowser(url, context.env, (error) =>
      printWarning(context, `no browser could be opened: ${describeError(error)}`),
    );
  }
  if (flag(options, '--json')) return printJson(context.stdout, { url, ssh });
  const { bold } = createStyle(context.stdout, context.env);
  const rows: [string, string][] = [['Console', bold(url)]];
  if (remote) rows.push(['Token', `svc relay operator-token --relay ${remote}`]);
  for (const text of aligned(rows)) line(context.stdout, text);
  if (remote) line(context.stdout, 'Open it in any browser, and paste a new token there.');
  else if (ssh === null) line(context.stdout, 'Open it in a browser of this machine.');
  else {
    line(context.stdout, 'Run this on the machine in front of you, leave it open, and open the console there:');
    line(context.stdout, `  ${bold(ssh)}`);
  }
}

/** The ssh tunnel to this machine, for a user who is logged in by ssh; null otherwise. */
function tunnel(port: number, env: Record<string, string | undefined>): string | null {
  const [, , host = ''] = env.SSH_CONNECTION?.split(' ') ?? [];
  if (isIP(host) === 0) return null;
  return `ssh -L ${port}:127.0.0.1:${port} ${printable(userInfo().username)}@${host}`;
}
