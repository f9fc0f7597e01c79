import { resolve } from 'node:path';
import type { Command } from 'cac';
import type { Config } from '../lib/config.ts';
import type { Host } from '../lib/host/index.ts';
import { base64 } from '../lib/kit/bytes.ts';
import { sha256 } from '../lib/kit/sha256.ts';
import type { StoredRow } from '../storage/sql-driver.ts';
import { type Item, newHeader, writeContent } from './backup/format.ts';
import { inventoryOf, readFiles } from './backup/inventory.ts';
import { type Snapshot, takeSnapshot } from './backup/snapshot.ts';
import { type Environment, loadConfig } from './environment.ts';
import { newFile } from './new-file.ts';
import { flag, isGiven, type Options } from './options.ts';
import {
  amount,
  type CommandContext,
  CommandError,
  createStyle,
  printAligned,
  printable,
  printJson,
  sentence,
  UsageError,
} from './output.ts';
import { PASSPHRASE_OPTIONS, readPassphrase } from './passphrase.ts';
import { defaultRelay, NO_RELAY_OPTION, refuseRelayElsewhere } from './remote-relay.ts';

/** Characters of rows that share a line of the backup. */
const BATCH = 512 * 1024;
/** Attempts at a backup, which starts again when a file changes meanwhile. */
const ATTEMPTS = 5;

/** `svc backup <file>`: everything by which this relay is itself, in one file (contract 11 §3). */
export function define(command: Command): void {
  for (const option of PASSPHRASE_OPTIONS) command.option(...option);
  command
    .option('--plain', 'write it without a passphrase; needs --yes')
    .option('--yes', 'with --plain: whoever has the file is this relay and its operator')
    .option('--force', 'replace the file if there is one')
    .option(...NO_RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} backup relay.svc`)
    .example((name) => `${name} backup relay.svc --passphrase-file ~/.backup-passphrase --force`)
    .example((name) => `pass show svc-backup | ${name} backup relay.svc --passphrase-stdin`)
    .action(run);
}

async function run(file: string, options: Options, context: CommandContext): Promise<void> {
  refuseRelayElsewhere(options, 'backup');
  const isPlain = flag(options, '--plain');
  if (isPlain && !flag(options, '--yes')) {
    throw new UsageError('--plain writes every credential of the relay as it is: confirm with --yes');
  }
  if (isPlain && (isGiven(options, '--passphrase-file') || flag(options, '--passphrase-stdin'))) {
    throw new UsageError('--plain takes no passphrase');
  }
  const environment = loadConfig(context.env);
  const { config } = environment;
  const host = await context.createHost(config.agentHome);
  const path = resolve(file);
  const create = await newFile(path, flag(options, '--force'));
  if (!(await hasRelay(config, host))) {
    throw new CommandError(
      `there is no relay in ${printable(config.agentHome)} yet`,
      'Start one with: svc up. For another agent home, set SVC_HOME.',
    );
  }
  const elsewhere = relayElsewhere(environment);
  const passphrase = isPlain ? undefined : await readPassphrase(options, context, { host, isNew: true });
  const header = newHeader(context.ownPackage.version, Math.floor(Date.now() / 1000), !isPlain);
  const copy = await takeCopy(config, host);
  try {
    const summary: Summary = { bytes: 0, rows: 0, devices: 0 };
    await create((put) =>
      writeContent(header, passphrase, contentOf(copy, summary), async (bytes) => {
        await put(bytes);
        summary.bytes += bytes.length;
      }),
    );
    const { leftOut } = inventoryOf(config);
    const absent = config.stateFile === null ? ['RELAY_STATE_FILE is empty: sessions are in memory only'] : [];
    if (elsewhere !== undefined) absent.push(elsewhere);
    report(
      { ...summary, path, isPlain, names: [...copy.files.keys()], leftOut: [...absent, ...leftOut] },
      options,
      context,
    );
  } finally {
    copy.snapshot?.remove();
  }
}

/** The remote relay that commands use here, which is not in this backup. */
function relayElsewhere(environment: Environment): string | undefined {
  try {
    const chosen = defaultRelay(environment);
    return chosen && `the relay ${chosen.url.origin}, although ${chosen.tried}`;
  } catch (error) {
    if (error instanceof UsageError) return undefined;
    throw error;
  }
}

async function hasRelay(config: Config, { files }: Host): Promise<boolean> {
  if (config.stateFile !== null && (await files.stat(config.stateFile))) return true;
  return (await readFiles(inventoryOf(config).names, config, files)).size > 0;
}

interface Copy {
  config: Config;
  files: Map<string, Uint8Array>;
  snapshot: Snapshot | null;
}

/**
 * Files and stores of one moment: the files are the same before and after the state was copied. A credential in one of
 * them is then in the state too, unless it was revoked.
 */
async function takeCopy(config: Config, host: Host): Promise<Copy> {
  const { names } = inventoryOf(config);
  const read = () => readFiles(names, config, host.files);
  const digest = (files: Map<string, Uint8Array>) =>
    sha256([...files].map(([name, bytes]) => `${name} ${base64(bytes)}`).join('\n'));
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    const files = await read();
    const snapshot = config.stateFile === null ? null : await takeSnapshot(config, config.stateFile);
    try {
      if (digest(await read()) === digest(files)) return { config, files, snapshot };
    } catch (error) {
      snapshot?.remove();
      throw error;
    }
    snapshot?.remove();
  }
  throw new CommandError('the files of the relay keep changing', 'Try again while nobody changes its settings.');
}

interface Summary {
  bytes: number;
  rows: number;
  devices: number;
}

async function* contentOf({ config, files, snapshot }: Copy, summary: Summary): AsyncGenerator<Item> {
  yield { home: { agent_home: config.agentHome, home: config.home, has_state: snapshot !== null } };
  for (const [file, bytes] of files) yield { file, data: base64(bytes) };
  if (snapshot) {
    const { readSnapshot } = await import('../storage/sqlite.ts');
    let batch: StoredRow[] = [];
    let size = 0;
    for (const row of readSnapshot(snapshot.path)) {
      // The relay, too, leaves out what it cannot read.
      if (row === null) continue;
      summary.rows++;
      if (row[0] === 'sessions') summary.devices++;
      batch.push(row);
      size += row[1].length + row[2].length;
      if (size < BATCH) continue;
      yield { rows: batch };
      [batch, size] = [[], 0];
    }
    if (batch.length > 0) yield { rows: batch };
  }
  yield { end: { files: files.size, rows: summary.rows } };
}

interface Report extends Summary {
  path: string;
  isPlain: boolean;
  names: string[];
  leftOut: string[];
}

function report(result: Report, options: Options, context: CommandContext): void {
  const { path, bytes, rows, devices, isPlain, names, leftOut } = result;
  if (flag(options, '--json')) {
    const facts = { file: path, bytes, encrypted: !isPlain, devices, records: rows, files: names, left_out: leftOut };
    printJson(context.stdout, { ok: true, ...facts });
    return;
  }
  const { bold } = createStyle(context.stdout, context.env);
  sentence(
    context.stdout,
    `The relay with ${amount(devices, 'device')} is in ${printable(path)} (${sizeText(bytes)}).`,
  );
  const held: [string, string][] = [
    ['Stores', `${rows} records: sessions, queue, history, push keys, Reach`],
    ['Files', names.map((name) => name.replace(/^(?:agent|relay)\//, '')).join(', ') || 'none'],
    ['Not in it', [...leftOut, 'files of the agent, recordings, pictures'].join('; ')],
  ];
  printAligned(context.stdout, held);
  const who = isPlain ? 'the file, which has no passphrase,' : 'the file and its passphrase';
  sentence(context.stdout, `Whoever has ${who} is this relay and its operator.`);
  sentence(context.stdout, `Next, on the other machine: ${bold(`svc restore ${printable(file(path))}`)}`);
}

const file = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

const sizeText = (bytes: number): string =>
  bytes < 1024 * 1024 ? `${Math.ceil(bytes / 1024)} KB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`;
