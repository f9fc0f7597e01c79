import { rmdirSync, rmSync } from 'node:fs';
import { lstat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import type { Command } from 'cac';
import { type Config, readConfig } from '../lib/config.ts';
import { describeError } from '../lib/errors.ts';
import { errnoOf, unlessMissing } from '../lib/host/errors.ts';
import { makeDirectory } from '../lib/host/node/files.ts';
import { fromBase64, utf8ToBytes } from '../lib/kit/bytes.ts';
import { decodeEnvFile, parseEnvFile, setInEnvFile } from '../lib/kit/env-file.ts';
import { asObject } from '../lib/kit/json.ts';
import { LOCATIONS } from '../storage/index.ts';
import type { SqlExecutor, StoredRow } from '../storage/sql-driver.ts';
import { carryOut, type Journal, openStaging, type Staging, type Step } from './backup/apply.ts';
import { damaged, type Header, type Origin, readContent, readHeader } from './backup/format.ts';
import { inventoryOf, isKnownFile, MAX_FILE, placeOf } from './backup/inventory.ts';
import { isUnfinished, restoreFolder } from './backup/journal.ts';
import { confirm } from './confirm.ts';
import { loadConfig } from './environment.ts';
import { holdState } from './hold-state.ts';
import { flag, type Options } from './options.ts';
import {
  amount,
  type CommandContext,
  CommandError,
  createStyle,
  printAligned,
  printable,
  printJson,
  printWarning,
  sentence,
} from './output.ts';
import { PASSPHRASE_OPTIONS, readPassphrase } from './passphrase.ts';
import { NO_RELAY_OPTION, refuseRelayElsewhere } from './remote-relay.ts';
import { minuteOf, stamp } from './times.ts';

const MAX_FILES = 64;
const SETTINGS = 'agent/.env';
/** Name of the prepared database among the prepared files. */
const STATE = 'state.db';
/** Variables that may name a file of the agent home, which has another path on another machine. */
const PATHS = [
  ...['RELAY_STATE_FILE', 'SVC_RELAY_HOME', 'RELAY_SSL_CERT', 'RELAY_SSL_KEY'],
  ...['RELAY_SECURE_LINK_CERT', 'RELAY_SECURE_LINK_KEY', 'RELAY_SECURE_LINK_BROKER_HOST_ID_FILE'],
];

/** `svc restore <file>`: makes this home that of a backup (contract 11 §3). */
export function define(command: Command): void {
  for (const option of PASSPHRASE_OPTIONS) command.option(...option);
  command
    .option('--replace', 'into a home that has a relay already: its state is kept aside')
    .option('--yes', 'with --replace: do not ask')
    .option(...NO_RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} restore relay.svc`)
    .example((name) => `${name} restore relay.svc --replace --yes --passphrase-file ~/.backup-passphrase`)
    .action(run);
}

async function run(file: string, options: Options, context: CommandContext): Promise<void> {
  refuseRelayElsewhere(options, 'restore');
  const path = resolve(file);
  const header = await readHeader(path).catch((error) => {
    throw error instanceof CommandError ? error : unreadable(path, error);
  });
  const { config } = loadConfig(context.env);
  const host = await context.createHost(config.agentHome);
  const releases = [await holdState(config.stateFile, running)];
  try {
    releases.push(await holdRestore(config));
    const present = await presentFiles(config);
    if (present.length > 0 && !flag(options, '--replace')) throw occupied(config, present);
    const passphrase = header.salt ? await readPassphrase(options, context, { host, isNew: false }) : undefined;
    const staging = await openStaging(config.agentHome);
    try {
      const content = await stage({ path, header, passphrase }, staging);
      const home = { config, present, ...restoredConfig(content, context.env, config) };
      if (home.restored.stateFile !== config.stateFile)
        releases.push(await holdState(home.restored.stateFile, running));
      const plan = await planOf(content, home, staging);
      if (present.length > 0 && !flag(options, '--yes')) await ask(content, config, header, context);
      await staging.commit(plan.journal);
      await carryOut(config.agentHome, plan.journal);
      report({ content, plan, header, home }, options, context);
    } finally {
      // A committed restore is left for the next command.
      if (!isUnfinished(config.agentHome)) await staging.discard();
    }
  } finally {
    for (const release of releases) release();
  }
}

const unreadable = (path: string, error: unknown) =>
  new CommandError(
    `${printable(path)} ${errnoOf(error) === 'ENOENT' ? 'does not exist' : `cannot be read: ${describeError(error)}`}`,
    'Give the file that svc backup wrote.',
  );

const running = (stateFile: string) =>
  new CommandError(
    `a relay is running on ${printable(stateFile)}; nothing was changed`,
    'Stop it with: svc down. Then restore again.',
  );

/** One restore at a time, since another one would remove the prepared files. */
async function holdRestore({ agentHome }: Config): Promise<() => void> {
  const path = `${restoreFolder(agentHome)}.lock`;
  const first = await makeDirectory(dirname(path));
  const { tryLock } = await import('../storage/sqlite.ts');
  const release = tryLock(path);
  if (!release) {
    throw new CommandError(
      'another restore is under way; nothing was changed',
      'Wait until it has ended, and try again.',
    );
  }
  return () => {
    release();
    rmSync(path, { force: true });
    // Removes the created folders if they stay empty.
    for (let made = dirname(path); first && made.length >= first.length; made = dirname(made)) removeEmpty(made);
  };
}

function removeEmpty(folder: string): void {
  try {
    rmdirSync(folder);
  } catch {
    // Not empty.
  }
}

/** Relay files that exist in this home. */
async function presentFiles(config: Config): Promise<string[]> {
  const files = inventoryOf(config).names.map((name) => placeOf(name, config));
  const state = config.stateFile === null ? [] : [config.stateFile, ...logsOf(config.stateFile)];
  const found = await Promise.all([...files, ...state].map(async (path) => ((await exists(path)) ? [path] : [])));
  return found.flat();
}

const logsOf = (stateFile: string): string[] => ['-wal', '-shm', '-journal'].map((suffix) => stateFile + suffix);

const exists = async (path: string): Promise<boolean> => (await unlessMissing(lstat(path))) !== null;

function occupied({ agentHome }: Config, present: string[]): CommandError {
  const names = present.slice(0, 4).map((path) => printable(path.replace(`${agentHome}/`, '')));
  const more = present.length > names.length ? ` and ${present.length - names.length} more` : '';
  return new CommandError(
    `${printable(agentHome)} has a relay already (${names.join(', ')}${more}); nothing was changed`,
    'Put the backup in its place with --replace, which keeps it aside; or set SVC_HOME to another folder.',
  );
}

interface Content {
  origin: Origin;
  files: Map<string, Uint8Array>;
  hasState: boolean;
  rows: number;
  devices: number;
  /** Stores of another version, which are skipped. */
  ignored: Set<string>;
}

/** Reads and checks the whole backup, and prepares its database; its files stay in memory. */
async function stage(
  { path, header, passphrase }: { path: string; header: Header; passphrase: string | undefined },
  staging: Staging,
): Promise<Content> {
  const [{ openStateFile }, { createTable, putRows }] = await Promise.all([
    import('../storage/sqlite.ts'),
    import('../storage/sql-driver.ts'),
  ]);
  const files = new Map<string, Uint8Array>();
  const ignored = new Set<string>();
  let origin: Origin | undefined;
  let isOver = false;
  let rows = 0;
  let devices = 0;
  let state: SqlExecutor | undefined;
  try {
    await readContent(path, header, passphrase, (item) => {
      if (isOver || 'home' in item === (origin !== undefined)) throw damaged('its parts are out of order');
      if ('home' in item) {
        origin = originOf(item.home);
        if (!origin.has_state) return;
        state = openStateFile(staging.path(STATE), () => {});
        createTable(state);
      } else if ('file' in item) {
        const bytes = typeof item.data === 'string' ? fromBase64(item.data) : null;
        if (typeof item.file !== 'string') throw damaged('a file of it has no name');
        if (!isKnownFile(item.file)) {
          throw damaged(`it holds a file that no relay has: ${printable(item.file).slice(0, 80)}`);
        }
        if (!bytes || bytes.length > MAX_FILE || files.has(item.file) || files.size === MAX_FILES) {
          throw damaged(`its file ${item.file}`);
        }
        files.set(item.file, bytes);
      } else if ('rows' in item) {
        if (!state) throw damaged('it has records of no state');
        const read = rowsOf(item.rows);
        rows += read.length;
        devices += read.filter(([store]) => store === 'sessions').length;
        for (const [store] of read) if (!isStored(store)) ignored.add(store);
        putRows(
          state,
          read.filter(([store]) => isStored(store)),
        );
      } else {
        const end = asObject(item.end);
        if (end?.files !== files.size || end.rows !== rows) throw damaged('a part of it is missing');
        isOver = true;
      }
    });
    if (!isOver || !origin) throw damaged('its end is missing');
    if (state) putRows(state, [['restored', 'restored', JSON.stringify({ at: Math.floor(Date.now() / 1000) })]]);
    return { origin, files, hasState: state !== undefined, rows, devices, ignored };
  } finally {
    // Moves the rest of its log into the file, and syncs it.
    state?.close?.();
  }
}

const isStored = (store: string): boolean =>
  Object.hasOwn(LOCATIONS, store) && LOCATIONS[store as keyof typeof LOCATIONS].node === 'disk';

function originOf(value: unknown): Origin {
  const { agent_home, home, has_state } = asObject(value) ?? {};
  if (typeof agent_home !== 'string' || typeof home !== 'string') throw damaged('where it is from');
  return { agent_home, home, has_state: has_state === true };
}

function rowsOf(value: unknown): StoredRow[] {
  const isRow = (row: unknown) =>
    Array.isArray(row) && row.length === 3 && row.every((part) => typeof part === 'string');
  if (!Array.isArray(value) || !value.every(isRow)) throw damaged('its records');
  return value as StoredRow[];
}

interface Plan {
  journal: Journal;
  /** Variables with another value than in the backup, because their paths belong to another machine. */
  moved: Record<string, string>;
}

interface Home {
  /** The configuration of this home now, and the one after the restore. */
  config: Config;
  restored: Config;
  moved: Record<string, string>;
  /** Files of the present relay. */
  present: string[];
}

/** Prepares the files of a backup, and the steps that move them into place. */
async function planOf({ files, hasState }: Content, home: Home, staging: Staging): Promise<Plan> {
  const { config, restored, moved, present } = home;
  const { agentHome } = config;
  const text = files.get(SETTINGS);
  if (text && Object.keys(moved).length > 0) {
    files.set(SETTINGS, utf8ToBytes(setInEnvFile(decodeEnvFile(text), moved)));
  }
  const databases = [config.stateFile, restored.stateFile].filter((path) => path !== null);
  const old = new Set(present);
  const steps: Step[] = [];
  for (const [name, bytes] of files) {
    const staged = String(steps.length);
    await staging.put(staged, bytes);
    const target = placeOf(name, restored);
    steps.push({
      target,
      aside: old.delete(target) || (await exists(target)) ? asideName(target, config) : null,
      staged,
    });
  }
  for (const target of old) {
    if (!databases.includes(target)) steps.push({ target, aside: asideName(target, config), staged: null });
  }
  // The state comes last, when no files of an old one are left beside it.
  for (const target of new Set(databases)) {
    const staged = target === restored.stateFile && hasState ? STATE : null;
    const aside = (await exists(target)) ? asideName(target, config) : null;
    if (staged !== null || aside !== null) steps.push({ target, aside, staged });
  }
  const aside = await unusedName(join(agentHome, 'svc-relay', `replaced-${stamp()}`));
  const state = restored.stateFile ?? config.stateFile ?? join(agentHome, 'svc-relay', STATE);
  return { journal: { aside, state, steps }, moved };
}

/** The name of an old file below the folder that keeps it. */
function asideName(path: string, { agentHome, relayHome }: Config): string {
  if (path.startsWith(`${agentHome}/`)) return `agent/${path.slice(agentHome.length + 1)}`;
  return path.startsWith(`${relayHome}/`) ? `relay/${path.slice(relayHome.length + 1)}` : `elsewhere${resolve(path)}`;
}

async function unusedName(path: string): Promise<string> {
  for (let count = 1; ; count++) {
    const name = count === 1 ? path : `${path}-${count}`;
    if (!(await exists(name))) return name;
  }
}

/**
 * The configuration of the backup's settings for this home. Paths below the agent home of the other machine become paths
 * below this one; state and home of the relay stay where this home has them, or at the default.
 */
function restoredConfig(
  content: Content,
  env: CommandContext['env'],
  config: Config,
): Pick<Home, 'restored' | 'moved'> {
  const { files, origin } = content;
  const text = files.get(SETTINGS);
  const variables = text ? parseEnvFile(decodeEnvFile(text)) : {};
  const { agentHome, home } = config;
  const moved: Record<string, string> = {};
  for (const name of PATHS) {
    const value = variables[name];
    if (value?.startsWith(`${origin.agent_home}/`) && origin.agent_home !== agentHome) {
      moved[name] = agentHome + value.slice(origin.agent_home.length);
    }
  }
  const read = () => readConfig({ ...env, ...variables, ...moved }, { agentHome, home }).config;
  try {
    const { stateFile, relayHome } = read();
    const isOwn = (path: string) => `${resolve(path)}/`.startsWith(`${agentHome}/`);
    if (stateFile !== null && !isOwn(stateFile) && stateFile !== config.stateFile) {
      moved.RELAY_STATE_FILE = join(agentHome, 'svc-relay', STATE);
    }
    const usual = join(home, '.svc-relay');
    if (!isOwn(relayHome) && ![config.relayHome, usual].includes(relayHome)) moved.SVC_RELAY_HOME = usual;
    const restored = read();
    if (!content.hasState || restored.stateFile !== null) return { restored, moved };
  } catch (error) {
    throw new CommandError(
      `the settings in the backup cannot be used: ${describeError(error)}; nothing was changed`,
      'Mend that setting where the backup is from, and make another one.',
    );
  }
  throw new CommandError(
    'RELAY_STATE_FILE is empty here, so there is no place for the sessions of the backup; nothing was changed',
    'Take RELAY_STATE_FILE out of the environment, and restore again.',
  );
}

async function ask(content: Content, { agentHome }: Config, header: Header, context: CommandContext): Promise<void> {
  const withoutTerminal = 'restore asks before it replaces a relay: confirm with --yes';
  if (context.stdin.isTTY && context.stderr.isTTY) {
    const made = `The backup is of ${minuteOf(header.createdAt)}, with ${amount(content.devices, 'device')}.`;
    sentence(context.stderr, `${made} The relay in ${printable(agentHome)} is kept aside.`);
  }
  if (await confirm(context, 'Replace it with the backup?', withoutTerminal)) return;
  throw new CommandError('nothing was changed', 'To restore beside it, set SVC_HOME to another folder.');
}

interface Restored {
  content: Content;
  plan: Plan;
  header: Header;
  home: Home;
}

function report({ content, plan, header, home }: Restored, options: Options, context: CommandContext): void {
  const { moved, journal } = plan;
  const { agentHome } = home.config;
  const aside = journal.steps.some((step) => step.aside !== null) ? journal.aside : null;
  if (flag(options, '--json')) {
    printJson(context.stdout, {
      ok: true,
      restored: agentHome,
      made_at: header.createdAt,
      version: header.version,
      devices: content.devices,
      records: content.rows,
      files: [...content.files.keys()],
      kept_aside: aside,
      settings_changed: moved,
      ignored_stores: [...content.ignored],
    });
    return;
  }
  const { bold } = createStyle(context.stdout, context.env);
  sentence(
    context.stdout,
    `${printable(agentHome)} is the relay of ${minuteOf(header.createdAt)}, with ${amount(content.devices, 'device')}.`,
  );
  const rows: [string, string][] = [
    ['From', `svc-relay ${printable(header.version)}, ${printable(content.origin.agent_home)}`],
    ...(aside === null ? [] : [['Old state', printable(aside)] as [string, string]]),
    ...Object.entries(moved).map(([name, value]): [string, string] => [
      'Setting',
      `${name} is now ${printable(value)}`,
    ]),
  ];
  printAligned(context.stdout, rows);
  for (const store of content.ignored) {
    printWarning(context, `records of '${printable(store)}' are left out: this version has no such store`);
  }
  if (aside !== null) sentence(context.stdout, 'The old state holds credentials: remove it when you do not need it.');
  sentence(context.stdout, 'Two relays must not run with the same credentials: keep the other one stopped.');
  sentence(context.stdout, `Next: start it with ${bold('svc up')}`);
}
