import type { Command } from 'cac';
import { describeError, RelayError } from '../lib/errors.ts';
import {
  installService,
  removeService,
  type ServiceDeps,
  type ServiceInstalled,
  type ServiceRemoved,
  type ServiceStatus,
  serviceStatus,
} from '../lib/operator/service/service.ts';
import { UNIT } from '../lib/operator/service/unit.ts';
import { ACTIONS } from './actions.ts';
import { type Environment, loadEnvironment } from './environment.ts';
import { actionOf, flag, negated, type Options } from './options.ts';
import {
  aligned,
  type CommandContext,
  CommandError,
  createStyle,
  line,
  printable,
  printJson,
  sentence,
  UsageError,
} from './output.ts';
import { configuredPort } from './relay-client.ts';

/** `svc relay service [status|install|remove]`: the relay as a systemd user unit. Never needs root. */
export function define(command: Command): void {
  command
    .option('--no-start', 'with install: start it at the next sign-in only')
    .option('--dry-run', 'with install and remove: show what would change, and change nothing')
    .option('--force', 'with install and remove: include a unit that this command did not write')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} service install`)
    .example((name) => `${name} service                    # status`)
    .example((name) => `${name} service remove`)
    .action(run);
}

async function run(word: string | undefined, options: Options, context: CommandContext): Promise<number> {
  const action = actionOf(word, ...ACTIONS.service);
  const json = flag(options, '--json');
  const change = { dryRun: flag(options, '--dry-run'), force: flag(options, '--force') };
  const start = !negated(options, '--start');
  if (!start && action !== 'install') throw new UsageError('--no-start is of use with install only');
  if (action === 'status' && (change.dryRun || change.force)) {
    throw new UsageError(`${change.force ? '--force' : '--dry-run'} is of use with install and remove only`);
  }
  const environment = loadEnvironment(context.env);
  const deps = await serviceDeps(environment, context, configuredPort(environment.env, context));
  const print = <T>(result: T, text: (result: T, context: CommandContext) => void) =>
    json ? printJson(context.stdout, result, 2) : text(result, context);
  try {
    if (action === 'status') print(await serviceStatus(deps), printStatus);
    else if (action === 'remove') print(await removeService(deps, change), printRemoved);
    else {
      await checkBuilt(deps);
      print(await installService(deps, { ...change, start }), printInstalled);
      if (!json) adviseOnVariables(environment, context);
    }
    return 0;
  } catch (error) {
    throw new CommandError(describeError(error), nextStep(error, deps, context));
  }
}

/** Dependencies that the service actions and the doctor share. */
export async function serviceDeps(
  { directories }: Environment,
  context: Pick<CommandContext, 'createHost' | 'ownPackage' | 'env'>,
  port: number,
): Promise<ServiceDeps> {
  const { directory } = context.ownPackage;
  return {
    host: await context.createHost(directories.agentHome),
    home: directories.home,
    port,
    unit: {
      node: process.execPath,
      script: `${directory ?? ''}/dist/cli/svc-relay.js`,
      agentHome: directories.agentHome,
      path: context.env.PATH?.split(':')
        .filter((entry) => entry.startsWith('/'))
        .join(':'),
    },
  };
}

async function checkBuilt({ host, unit }: ServiceDeps): Promise<void> {
  if ((await host.files.stat(unit.script).catch(() => null))?.kind === 'file') return;
  throw new CommandError(`there is no ${unit.script} to run`, 'In a source tree, run: npm run build');
}

/** Lists the variables of this shell that the service will not see. */
function adviseOnVariables({ env, directories }: Environment, context: CommandContext): void {
  const here = Object.keys(context.env).filter(
    (name) => /^(?:RELAY|API_SERVER)_/.test(name) && context.env[name] === env[name],
  );
  if (here.length === 0) return;
  sentence(context.stdout, `Set in this shell only, and not for the service: ${here.sort().join(', ')}`);
  sentence(context.stdout, `Next: put them into ${printable(directories.agentHome)}/.env`);
}

function nextStep(error: unknown, { unit }: ServiceDeps, context: CommandContext): string | undefined {
  if (error instanceof CommandError) return error.next;
  if (!(error instanceof RelayError)) return undefined;
  const { systemd, call, port } = error.extra ?? {};
  if (port !== undefined) {
    return `If that is a relay in a terminal, stop it there (Ctrl-C) and run this again. To leave it running: ${context.program} service install --no-start`;
  }
  if (systemd === 'absent') {
    return [
      'Nothing was changed. Let the init system of this machine (launchd, OpenRC, runit, cron @reboot) run, as you:',
      `  SVC_HOME=${shellWord(unit.agentHome)} ${shellWord(unit.node)} ${shellWord(unit.script)} start`,
      'Or keep it in a terminal of its own:',
      `  tmux new-session -d -s svc-relay ${shellWord(unit.node)} ${shellWord(unit.script)} start`,
    ].join('\n');
  }
  if (systemd === 'unreachable') {
    return [
      'Nothing was changed. systemd runs a manager for signed-in users only: sign in as this user (over ssh, not with su',
      `or sudo), then run this again. In a container without systemd, run: ${context.program} start`,
    ].join('\n');
  }
  if (typeof call === 'string') return `Find out why with: ${call}; journalctl --user -u ${UNIT} -n 20`;
  if (error.kind === 'conflict') return 'Inspect it and move it away, or go on anyway with --force.';
  return undefined;
}

/** A word quoted for a shell. For display, never executed from here. */
const shellWord = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

const LINGER = 'Next: to keep it running while you are signed out, run once: loginctl enable-linger';

function printInstalled(result: ServiceInstalled, context: CommandContext): void {
  const { bold, green } = createStyle(context.stdout, context.env);
  const path = printable(result.unit_path);
  if (result.dry_run) {
    line(context.stdout, result.changed ? `Would write ${path}, and enable it` : `${path} is up to date`);
    return;
  }
  const state = result.started ? 'enabled and running' : 'enabled; it starts at the next sign-in';
  line(context.stdout, `${green('The relay is a service:')} ${state}`);
  const rows: [string, string][] = [
    ['Unit', `${path}${result.changed ? '' : ' (unchanged)'}`],
    ['Status', bold(`${context.program} service`)],
    ['Log', bold(`journalctl --user -u ${UNIT} -f`)],
    ['Stop', bold(`systemctl --user stop ${UNIT}`)],
  ];
  for (const text of aligned(rows)) line(context.stdout, text);
  if (result.linger === false) sentence(context.stdout, LINGER);
}

function printRemoved(result: ServiceRemoved, context: CommandContext): void {
  const path = printable(result.unit_path);
  if (!result.changed) sentence(context.stdout, `Nothing to remove: there is no ${path}`);
  else line(context.stdout, result.dry_run ? `Would stop the service and remove ${path}` : `Removed ${path}`);
  if (result.changed && !result.dry_run && result.systemd === 'unreachable') {
    line(
      context.stdout,
      'The systemd manager of this user did not answer. If the service is running, it runs until you sign out.',
    );
  }
}

function printStatus(status: ServiceStatus, context: CommandContext): void {
  const { green, yellow, red } = createStyle(context.stdout, context.env);
  const { active } = status;
  const paint = active === 'active' ? green : active === 'failed' ? red : yellow;
  const ended = active !== 'active' && status.exit_status ? ` (ended with exit code ${status.exit_status})` : '';
  const unit = status.installed ? printable(status.unit_path) : yellow('not installed');
  const rows: [string, string][] = [
    ['Unit', `${unit}${status.installed && !status.current ? yellow(' (not as this installation writes it)') : ''}`],
    ['Systemd', status.systemd === 'ready' ? green('answers') : yellow(status.systemd)],
  ];
  if (status.enabled !== null) rows.push(['Enabled', status.enabled ? green('yes') : yellow('no')]);
  if (active !== null) rows.push(['State', `${paint(printable(active))}${ended}`]);
  if (status.installed && status.linger !== null) rows.push(['Signed out', status.linger ? 'keeps running' : 'stops']);
  for (const text of aligned(rows)) line(context.stdout, text);
  for (const text of statusSteps(status, context.program)) sentence(context.stdout, text);
}

function statusSteps(
  { systemd, installed, managed, current, enabled, active, linger }: ServiceStatus,
  program: string,
) {
  if (systemd === 'absent') return ['Next: without systemd, run it in the background with: svc up'];
  if (systemd === 'unreachable')
    return ['Next: sign in as this user (over ssh, not with su or sudo) and run this again.'];
  if (!installed || (managed && !current) || enabled === false) return [`Next: ${program} service install`];
  if (active === 'failed') return [`Next: find out why with: journalctl --user -u ${UNIT} -n 20`];
  if (active !== 'active') return [`Next: systemctl --user start ${UNIT}`];
  return linger === false ? [LINGER] : [];
}
