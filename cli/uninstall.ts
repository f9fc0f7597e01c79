import { stat } from 'node:fs/promises';
import type { Command } from 'cac';
import { describeError } from '../lib/errors.ts';
import { unlessMissing } from '../lib/host/errors.ts';
import type { Host } from '../lib/host/index.ts';
import { removeService, type ServiceDeps } from '../lib/operator/service/service.ts';
import { UNIT } from '../lib/operator/service/unit.ts';
import { confirm } from './confirm.ts';
import { loadConfig } from './environment.ts';
import { holdState } from './hold-state.ts';
import { flag, type Options } from './options.ts';
import {
  type CommandContext,
  CommandError,
  createStyle,
  line,
  printAligned,
  printable,
  printJson,
  sentence,
  type Writer,
} from './output.ts';
import { configuredPort } from './relay-client.ts';
import { serviceDeps } from './service.ts';
import { stopRelay } from './stop.ts';
import { type Plan, planOf, rowsOf, withoutCompletions } from './uninstall/plan.ts';

/** `svc relay uninstall`: removes everything that the relay has put on this machine, after asking (contract 11 §3). */
export function define(command: Command): void {
  command
    .option('--yes', 'do not ask')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} uninstall             # shows what goes and what stays, and asks`)
    .example((name) => `${name} uninstall --yes --json`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<number> {
  const isJson = flag(options, '--json');
  const environment = loadConfig(context.env);
  const { config } = environment;
  const host = await context.createHost(config.agentHome);
  const service = await serviceDeps(environment, context, configuredPort(environment.env, context));
  const plan = await planOf({ environment, config, host, service, context });
  const isNothing = plan.removals.length === 0 && plan.service === null && plan.relay === null;
  if (isNothing && !isJson) {
    sentence(context.stdout, `There is nothing of a relay in ${printable(config.agentHome)}. ${nextStep(context)}`);
    return 0;
  }
  if (!isNothing && !flag(options, '--yes')) {
    show(plan, isJson ? context.stderr : context.stdout, context);
    const question = 'Remove all of that? Every device has to pair again with the next relay.';
    const isSure = await confirm(context, question, 'uninstall asks before it removes: confirm with --yes');
    if (!isSure)
      throw new CommandError('nothing was changed', 'To keep the state, save it first: svc backup relay.svc');
  }
  return remove(plan, { isJson, host, service, stateFile: config.stateFile, context });
}

function show(plan: Plan, out: Writer, context: CommandContext): void {
  const { bold } = createStyle(out, context.env);
  const rows: [string, string][] = [
    ...(plan.relay ? [['The relay', `process ${plan.relay.pid}, is stopped`] as [string, string]] : []),
    ...(plan.service ? [[printable(plan.service), 'the service'] as [string, string]] : []),
    ...rowsOf(plan.removals),
  ];
  line(out, bold('This goes:'));
  printAligned(out, rows);
  line(out, bold('This stays:'));
  printAligned(out, leftRows(plan));
}

const leftRows = ({ left }: Plan) => left.map(({ path, what }): [string, string] => [printable(path), what]);

interface Doing {
  isJson: boolean;
  host: Host;
  service: ServiceDeps;
  stateFile: string | null;
  context: CommandContext;
}

async function remove(plan: Plan, { isJson, host, service, stateFile, context }: Doing): Promise<number> {
  // A running relay would write its state again.
  const { pid } = plan.relay ? await stopRelay(context) : { pid: null };
  const release = await holdState(stateFile, started);
  const removed: string[] = [];
  const edited: string[] = [];
  const failed: { path: string; error: string }[] = [];
  const step = async (path: string, done: string[], work: () => Promise<unknown>) => {
    try {
      await work();
      done.push(path);
    } catch (error) {
      failed.push({ path, error: describeError(error) });
    }
  };
  try {
    if (plan.service) {
      // The service goes first: left behind, it would start the relay again.
      await removeService(service, { dryRun: false, force: false }).catch((error) =>
        Promise.reject(serviceStays(error)),
      );
      removed.push(plan.service);
    }
    for (const { path, isEdit } of plan.removals) {
      if (isEdit) await step(path, edited, () => edit(path, host));
      else await step(path, removed, () => host.files.removeAll(path));
    }
  } finally {
    release();
  }
  if (isJson) {
    const facts = { stopped: pid, service: plan.service !== null, removed, edited, failed, left: plan.left };
    printJson(context.stdout, { ok: failed.length === 0, ...facts });
    return failed.length === 0 ? 0 : 1;
  }
  if (pid !== null) sentence(context.stdout, `Stopped the relay (process ${pid}).`);
  if (plan.service) sentence(context.stdout, `Removed the service ${UNIT}.`);
  sentence(
    context.stdout,
    `Removed ${removed.length} files and folders${edited.length > 0 ? `, and changed ${edited.map(printable).join(', ')}` : ''}.`,
  );
  line(context.stdout, 'Left:');
  printAligned(context.stdout, leftRows(plan));
  if (failed.length > 0) {
    const [first] = failed;
    throw new CommandError(
      `${failed.length === 1 ? '' : `${failed.length} could not be removed, such as `}${printable(first?.path ?? '')}${failed.length === 1 ? ' could not be removed' : ''}: ${first?.error}`,
      'Mend that, and type the same again.',
    );
  }
  sentence(context.stdout, nextStep(context));
  return 0;
}

/** The file keeps its mode; of a link, the target is changed. It is read again, since it may have changed since it was shown. */
async function edit(path: string, { files }: Host): Promise<void> {
  const edited = await withoutCompletions(path, files);
  if (edited === null) return;
  const place = (await files.realPath(path)) ?? path;
  const mode = (await unlessMissing(stat(place)))?.mode ?? 0o600;
  await files.writeAtomic(place, edited.rest, mode & 0o777);
}

const serviceStays = (error: unknown) =>
  new CommandError(
    `the service ${UNIT} could not be removed: ${describeError(error)}. Nothing was removed; the relay is stopped`,
    `Find out why with: systemctl --user status ${UNIT}. Then type the same again. To keep the relay: svc up`,
  );

const started = () =>
  new CommandError('a relay has started meanwhile; nothing was removed', 'Stop it with: svc down. Then try again.');

function nextStep({ ownPackage: { directory } }: CommandContext): string {
  if (directory === null) return 'Next: remove the program.';
  if (directory.endsWith('/lib/node_modules/svc-relay')) return 'Next: npm uninstall -g svc-relay';
  return `Next: remove the program, in ${printable(directory)}`;
}
