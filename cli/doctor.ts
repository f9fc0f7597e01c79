import type { CAC } from 'cac';
import type { Options } from './options.ts';
import type { CommandContext } from './output.ts';
import { DEFAULT_PORT } from './relay-port.ts';

/** `svc relay doctor` (contract 07 §5.2). */
export function registerDoctor(program: CAC): void {
  program
    .command('doctor', 'look at this installation, the agent and the relay: what is wrong, what to do')
    .option('--api-url <url>', "the agent's API server (default SVC_API_URL, RELAY_WEBAPI_URL, WEBAPI_URL, port 8642)")
    .option('--dashboard-url <url>', 'its dashboard (default SVC_DASHBOARD_URL, SVC_WEB_URL, DASHBOARD_URL, port 9119)')
    .option('--relay-port <n>', `where the relay listens (default RELAY_PORT, else ${DEFAULT_PORT})`)
    .option('--timeout <seconds>', 'how long everything together may take (default 2)')
    .option('--strict', 'exit 1 for warnings too')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} doctor`)
    .example((name) => `${name} doctor --strict --json`)
    .example((name) => `${name} doctor --dashboard-url http://127.0.0.1:9200`)
    .action(async (options: Options, context: CommandContext) =>
      (await import('./doctor-run.ts')).run(options, context),
    );
}
