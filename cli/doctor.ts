import type { Command } from 'cac';
import { variables } from '../lib/config.ts';
import { systemClock } from '../lib/kit/clock.ts';
import { apiBase, dashboardBase } from '../lib/operator/doctor/check.ts';
import { type Diagnosis, diagnose, hasProblems } from '../lib/operator/doctor/doctor.ts';
import { printChecks } from './checks.ts';
import { compatParts } from './compat.ts';
import { loadEnvironment, readVariable } from './environment.ts';
import { keepAlive } from './keep-alive.ts';
import { operatorHeaders } from './operator-key.ts';
import { asHttpUrl, asPort, asTimeout, flag, type Options, option } from './options.ts';
import { aligned, type CommandContext, createStyle, line, printable, printJson, UsageError } from './output.ts';
import { DEFAULT_PORT } from './relay-client.ts';
import { RELAY_OPTION, remoteRelay } from './remote-relay.ts';
import { serviceParts } from './service.ts';

/** Milliseconds for all probes together. */
const DEFAULT_TIMEOUT = 2000;

/** `svc relay doctor` (contract 07 §5.2). */
export function define(command: Command): void {
  command
    .option('--api-url <url>', "the agent's API server (default SVC_API_URL, RELAY_WEBAPI_URL, WEBAPI_URL, port 8642)")
    .option('--dashboard-url <url>', 'its dashboard (default SVC_DASHBOARD_URL, SVC_WEB_URL, DASHBOARD_URL, port 9119)')
    .option('--relay-port <n>', `port of the relay (default RELAY_PORT, else ${DEFAULT_PORT})`)
    .option(...RELAY_OPTION)
    .option('--timeout <seconds>', 'limit for all probes together (default 2)')
    .option('--strict', 'exit 1 for warnings too')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} doctor`)
    .example((name) => `${name} doctor --strict --json`)
    .example((name) => `${name} doctor --dashboard-url http://127.0.0.1:9200`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<number> {
  const timeout = option(options, '--timeout', asTimeout) ?? DEFAULT_TIMEOUT;
  const givenPort = option(options, '--relay-port', asPort);
  const apiUrl = option(options, '--api-url', asHttpUrl);
  const dashboardUrl = option(options, '--dashboard-url', asHttpUrl);
  const strict = flag(options, '--strict');
  const environment = loadEnvironment(context.env);
  const { env, places } = environment;
  const remote = await remoteRelay(options, places.agentHome);
  if (remote && givenPort !== undefined) throw new UsageError('--relay and --relay-port exclude each other');
  const { probe } = await import('../lib/host/node/probe.ts');
  const compat = await compatParts(environment, context);
  const service = await serviceParts(environment, context);
  const port = givenPort ?? service.port;
  const headers = await (remote?.authorize ? remote.authorize() : operatorHeaders(places.agentHome, port));
  const diagnosis = await keepAlive(
    diagnose({
      version: context.ownPackage.version,
      host: compat.host,
      clock: systemClock,
      probe,
      modules: { relay: () => import('./runtime/node/relay.ts'), terminal: () => import('@lydell/node-pty') },
      compat,
      service,
      api: apiBase(apiUrl, env),
      dashboard: dashboardBase(dashboardUrl, env),
      relay: remote
        ? { port: remote.port, tls: remote.tls, url: remote.url, headers }
        : { port, tls: hasCertificate(env), headers },
      operator: {
        requireKey: readVariable(variables.requireOperatorKey, environment),
        uids: readVariable(variables.operatorUids, environment),
        hasKey: Object.keys(headers).length > 0,
        hasDesktopToken: Boolean(env.DESKTOP_RELAY_TOKEN?.trim()),
      },
      timeout,
    }),
  );
  if (flag(options, '--json')) printJson(context.stdout, report(diagnosis), 2);
  else print(diagnosis, context);
  return hasProblems(diagnosis.checks, strict) ? 1 : 0;
}

const hasCertificate = (env: Record<string, string | undefined>): boolean =>
  Boolean(env.RELAY_SSL_CERT?.trim() && env.RELAY_SSL_KEY?.trim());

/** The JSON of contract 07 §5.2. */
const report = ({ checks, ...facts }: Diagnosis) => ({
  schema_version: 1,
  ...facts,
  checks: checks.map(({ id, status, summary }) => ({ id, status, summary })),
});

function print(diagnosis: Diagnosis, context: CommandContext): void {
  const { plugin, standard, relay, checks } = diagnosis;
  line(context.stdout, createStyle(context.stdout, context.env).bold(`svc-relay ${plugin.version}`));
  const header: [string, string][] = [
    ['Installed in', printable(plugin.layout.plugin_dir ?? 'unknown')],
    ['API server', standard.api_url || 'not a URL'],
    ['Dashboard', standard.dashboard_url || 'not a URL'],
    ['Relay', relay.info.url.replace('/relay/info', '')],
  ];
  for (const text of aligned(header)) line(context.stdout, text);
  line(context.stdout);
  printChecks(checks, context);
}
