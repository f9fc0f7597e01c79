import type { Command } from 'cac';
import { readConfig } from '../lib/config.ts';
import { attempt } from '../lib/kit/attempt.ts';
import { type Diagnosis, diagnose, hasProblems } from '../lib/operator/doctor/doctor.ts';
import { groupChecks } from '../lib/operator/doctor/groups.ts';
import { reportOf } from '../lib/operator/doctor/report.ts';
import { printGroups } from './checks.ts';
import { loadEnvironment } from './environment.ts';
import { printFreeze } from './freeze-text.ts';
import { keepAlive } from './keep-alive.ts';
import { operatorHeaders } from './operator-key.ts';
import { asHttpUrl, asPort, asTimeout, flag, type Options, option } from './options.ts';
import { aligned, type CommandContext, createStyle, line, printable, printJson, UsageError } from './output.ts';
import { DEFAULT_PORT, relayPort } from './relay-client.ts';
import { relayProcess } from './relay-process.ts';
import { RELAY_OPTION, remoteRelay } from './remote-relay.ts';

/** `svc relay doctor` (contract 07 §5.2). */
export function define(command: Command): void {
  command
    .option('--api-url <url>', "the agent's API server (default SVC_API_URL, RELAY_WEBAPI_URL, WEBAPI_URL, port 8642)")
    .option('--dashboard-url <url>', 'its dashboard (default SVC_DASHBOARD_URL, SVC_WEB_URL, DASHBOARD_URL, port 9119)')
    .option('--relay-port <n>', `port of the relay (default: that of the running relay, RELAY_PORT, ${DEFAULT_PORT})`)
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
  const strict = flag(options, '--strict');
  const diagnosis = await examine(options, context);
  const isFailure = hasProblems(diagnosis.checks, strict);
  if (flag(options, '--json'))
    printJson(context.stdout, { ...reportOf(diagnosis), ...verdict(diagnosis, isFailure) }, 2);
  else {
    printFreeze(diagnosis.frozen, context);
    print(diagnosis, context);
  }
  return isFailure ? 1 : 0;
}

/** The members `ok`, `error` and `next` of a failure, taken from its first finding (contract 11 §1). */
function verdict(diagnosis: Diagnosis, isFailure: boolean) {
  if (!isFailure) return {};
  const findings = groupChecks(diagnosis).flatMap(({ checks }) => checks);
  const first = findings.find(({ status }) => status === 'error') ?? findings.find(({ status }) => status === 'warn');
  return {
    ok: false,
    error: first ? `${first.id}: ${first.summary}` : 'a check has failed',
    next: first?.next ?? null,
  };
}

/** Makes every check, with the options of the command. */
export async function examine(options: Options, context: CommandContext): Promise<Diagnosis> {
  const timeout = option(options, '--timeout', asTimeout);
  const givenPort = option(options, '--relay-port', asPort);
  const apiUrl = option(options, '--api-url', asHttpUrl);
  const dashboardUrl = option(options, '--dashboard-url', asHttpUrl);
  const environment = loadEnvironment(context.env);
  const { env, directories } = environment;
  const remote = await remoteRelay(options, environment);
  if (remote && givenPort !== undefined) throw new UsageError('--relay and --relay-port exclude each other');
  const { doctorDeps } = await import('./doctor-deps.ts');
  const port = givenPort ?? relayPort(environment, context);
  const headers = await (remote?.authorize ? remote.authorize() : operatorHeaders(directories.agentHome, port));
  // The relay itself reports invalid variables.
  const config = attempt(() => readConfig(env, directories).config);
  const deps = await doctorDeps(environment, context, {
    relay: remote
      ? { port: remote.port, tls: remote.tls, url: remote.url, headers }
      : { port, tls: hasCertificate(env), headers },
    port,
    modules: { relay: () => import('./runtime/node/relay.ts'), terminal: () => import('@lydell/node-pty') },
    apiUrl,
    dashboardUrl,
    config,
    process: async () => (config && (await relayProcess({ ...config, port }))?.pid) ?? null,
    timeout,
  });
  return keepAlive(diagnose(deps));
}

const hasCertificate = (env: Record<string, string | undefined>): boolean =>
  Boolean(env.RELAY_SSL_CERT?.trim() && env.RELAY_SSL_KEY?.trim());

function print(diagnosis: Diagnosis, context: CommandContext): void {
  const { plugin, standard, relay } = diagnosis;
  line(context.stdout, createStyle(context.stdout, context.env).bold(`svc-relay ${plugin.version}`));
  const header: [string, string][] = [
    ['Installed in', printable(plugin.layout.plugin_dir ?? 'unknown')],
    ['API server', standard.api_url || 'not a URL'],
    ['Dashboard', standard.dashboard_url || 'not a URL'],
    ['Relay', relay.info.url.replace('/relay/info', '')],
  ];
  for (const text of aligned(header)) line(context.stdout, text);
  line(context.stdout);
  printGroups(groupChecks(diagnosis), context);
}
