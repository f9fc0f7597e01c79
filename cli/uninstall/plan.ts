import { lstat, readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Config } from '../../lib/config.ts';
import { unlessUnreadable } from '../../lib/host/errors.ts';
import type { Host, HostFiles } from '../../lib/host/index.ts';
import { listRelayLocks } from '../../lib/host/node/relay-lock.ts';
import { UPLOAD_PREFIX, uploadWriter } from '../../lib/media/host-media.ts';
import { compatStatus } from '../../lib/operator/compat.ts';
import { type ServiceDeps, serviceStatus, unitServes } from '../../lib/operator/service/service.ts';
import { qrSecretPath } from '../../lib/pairing/secret.ts';
import { DIRECTORY, EARLIER_DIRECTORY } from '../../lib/secure-link/identity.ts';
import { socketOf } from '../../lib/terminal/tmux.ts';
import { compatDeps } from '../compat.ts';
import type { Environment } from '../environment.ts';
import { type CommandContext, printable } from '../output.ts';
import { relayProcess } from '../relay-process.ts';

/** Maximum files of a folder that are counted; more are reported as such. */
const MAX_FILES = 20_000;
const MAX_TEXT = 1024 * 1024;
/** Milliseconds. */
const TMUX_TIMEOUT = 2000;

const PAIRING_PICTURE = /^svc-pair-[\w-]{16}\.png$/;
const INBOX_PICTURE = /^clip_[\w.-]+$/;
/** Files beside a state file: its log, the lock of its relay, and copies that were set aside or made for a backup. */
const BESIDE_STATE = /^(?:-wal|-shm|-journal|\.lock|(?:\.corrupt-|-snapshot-)[\w.-]+)?$/;
/** The lines that `svc completion` tells people to add, and the scripts that it prints. */
const COMPLETION_LINE =
  /^[ \t]*(?:source <\(svc(?:-relay)? completion (?:bash|zsh)\)|svc(?:-relay)? completion fish \| source)[ \t]*$/;
const COMPLETION_SCRIPT = /^(?:# Completes svc and svc-relay in|#compdef svc svc-relay\n)/;

/** An item that an uninstallation removes. */
export interface Removal {
  path: string;
  what: string;
  bytes: number;
  /** True for a file that only loses lines. */
  isEdit?: boolean;
}

/** An item that stays, and how to remove it. */
export interface Left {
  path: string;
  what: string;
}

export interface Plan {
  /** The running relay, and whether systemd runs it. */
  relay: { pid: number; isService: boolean } | null;
  /** The unit file of the service of this home. */
  service: string | null;
  removals: Removal[];
  left: Left[];
}

interface Deps {
  environment: Environment;
  config: Config;
  host: Host;
  service: ServiceDeps;
  context: CommandContext;
}

/**
 * Plans an uninstallation without any change.
 * @throws if the disk fails, since unseen items would silently be left behind.
 */
export async function planOf(deps: Deps): Promise<Plan> {
  const { config, service } = deps;
  const [relay, serves, status] = await Promise.all([
    relayProcess(config),
    unitServes(service),
    serviceStatus(service),
  ]);
  const isOwn = status.installed && status.managed && serves;
  const others = listRelayLocks(config.relayHome).filter((lock) => lock.agent_home !== config.agentHome);
  const isShared = others.length > 0;
  const removals = [
    ...(await completions(deps)),
    ...(isShared ? [] : await recordings(deps)),
    ...(await pictures(deps, relay?.pid)),
    ...(await state(deps)),
  ];
  const left = await leftovers(deps, isShared);
  if (status.installed && !isOwn)
    left.unshift({ path: status.unit_path, what: 'a service of another home, or of your own' });
  if (isOwn && status.linger)
    left.push({
      path: 'linger',
      what: 'programs of this user run while signed out; to end that: loginctl disable-linger',
    });
  return { relay, service: isOwn ? status.unit_path : null, removals, left };
}

/** A file of a shell without the lines that load completions; null if it has none. */
export async function withoutCompletions(
  path: string,
  files: HostFiles,
): Promise<{ rest: Buffer; bytes: number } | null> {
  const bytes = await files.read(path, MAX_TEXT);
  // A longer file would lose its end.
  if (bytes === null || bytes.length >= MAX_TEXT) return null;
  // Keeps every byte, also those of other encodings than UTF-8.
  const rows = Buffer.from(bytes).toString('latin1').split('\n');
  const rest = rows.filter((row) => !COMPLETION_LINE.test(row));
  if (rest.length === rows.length) return null;
  const left = Buffer.from(rest.join('\n'), 'latin1');
  return { rest: left, bytes: bytes.length - left.length };
}

async function completions({ config: { home }, host }: Deps): Promise<Removal[]> {
  const found: Removal[] = [];
  for (const name of ['.bashrc', '.zshrc', '.config/fish/config.fish']) {
    const path = join(home, name);
    const edited = await unlessUnreadable(withoutCompletions(path, host.files));
    if (edited) found.push({ path, what: 'the line that loads completions', bytes: edited.bytes, isEdit: true });
  }
  const scripts = ['svc', 'svc-relay'].flatMap((name) => [
    `.local/share/bash-completion/completions/${name}`,
    `.config/fish/completions/${name}.fish`,
    `.zfunc/_${name}`,
    `.zsh/completions/_${name}`,
  ]);
  for (const name of scripts) {
    const path = join(home, name);
    const text = await unlessUnreadable(host.files.readText(path, MAX_TEXT));
    if (text && COMPLETION_SCRIPT.test(text)) found.push({ path, what: 'completions', bytes: text.length });
  }
  return found;
}

/** Logs and recordings of voice, and everything else in the relay's own home besides settings. */
async function recordings({ config: { relayHome } }: Deps): Promise<Removal[]> {
  const runs = ['voice-output-runs', 'realtime-voice-runs', 'realtime-agent-runs'].map((name) =>
    removal(join(relayHome, name), 'logs and recordings of voice'),
  );
  const rest = [
    removal(join(relayHome, 'use'), 'the relay that svc use chose'),
    removal(join(relayHome, 'relays'), 'the list of relays'),
  ];
  return (await Promise.all([...runs, ...rest])).flat();
}

async function pictures({ config: { agentHome }, host }: Deps, relay: number | undefined): Promise<Removal[]> {
  const inbox = join(agentHome, 'images/inbox');
  const named = async (folder: string, pattern: RegExp, what: string) => {
    const names = (await namesIn(folder)).filter((name) => pattern.test(name));
    return (await Promise.all(names.map((name) => removal(join(folder, name), what)))).flat();
  };
  const found = await host.media.ownFiles(host.media.temporaryDirectory(), UPLOAD_PREFIX);
  // Those of relays of other homes stay.
  const uploads = found.filter(({ path }) => {
    const writer = uploadWriter(path);
    return writer !== null && (writer === relay || !host.processes.exists(writer));
  });
  return [
    ...(await named(inbox, INBOX_PICTURE, 'a picture from the clipboard of a device')),
    ...(await named(agentHome, PAIRING_PICTURE, 'a picture of a pairing code')),
    ...(await Promise.all(uploads.map(({ path }) => removal(path, 'an upload of a device')))).flat(),
  ];
}

async function state({ config }: Deps): Promise<Removal[]> {
  const { agentHome, stateFile } = config;
  const folder = join(agentHome, 'svc-relay');
  const found = await removal(folder, 'state: sessions, queue, history, operator keys, agents, log');
  if (stateFile !== null && dirname(stateFile) !== folder) {
    const own = basename(stateFile);
    const names = (await namesIn(dirname(stateFile))).filter(
      (name) => name.startsWith(own) && BESIDE_STATE.test(name.slice(own.length)),
    );
    for (const name of names) found.push(...(await removal(join(dirname(stateFile), name), 'state of the relay')));
  }
  const single: [path: string, what: string][] = [
    [qrSecretPath(agentHome), 'the key that signs pairing codes'],
    ...[DIRECTORY, EARLIER_DIRECTORY].map((name): [string, string] => [
      join(agentHome, name),
      'the identity of Secure Link and Reach',
    ]),
    [join(agentHome, 'relay-remote.json'), 'the published URL'],
    [join(agentHome, 'svc-relay-tmux.conf'), 'settings of tmux for its shells'],
  ];
  for (const [path, what] of single) found.push(...(await removal(path, what)));
  return found;
}

async function leftovers(deps: Deps, isShared: boolean): Promise<Left[]> {
  const { config, context, environment, host } = deps;
  const { agentHome, relayHome } = config;
  const compat = await compatStatus(await compatDeps(environment, context));
  const hooks = compat.hook_files.filter(({ managed_content: isOurs }) => isOurs);
  const usual = ['voice-output-runs', 'realtime-voice-runs'].map((name) => join(relayHome, name));
  const named: [path: string | undefined, what: string][] = [
    [join(agentHome, '.env'), 'settings, shared with the agent'],
    [join(relayHome, 'config.yaml'), 'settings of voice'],
    [join(relayHome, 'auth'), 'credentials of the owner'],
    [join(agentHome, 'companion'), 'the companion, which is a device: svc companion unpair'],
    [join(agentHome, 'mobile-plugins'), 'pages for the phone'],
    ...[config.voiceOutputRunDir, config.realtimeVoiceRunDir]
      .filter((path) => path !== undefined && !usual.includes(path))
      .map((path): [string | undefined, string] => [path, 'logs and recordings of voice, in a folder of yours']),
    ...[config.sslCert, config.sslKey, config.secureLinkCert, config.secureLinkKey].map(
      (path): [string | undefined, string] => [path, 'a certificate or key of yours'],
    ),
    ...hooks.map(({ path }): [string, string] => [path, 'the startup hook of the agent: svc relay compat remove']),
  ];
  const found: Left[] = [];
  for (const [path, what] of named) if (path !== undefined && (await exists(path))) found.push({ path, what });
  const socket = await shells(host, agentHome);
  if (socket !== null)
    found.push({ path: `tmux -L ${socket}`, what: 'shells of devices; to end them, add: kill-server' });
  if (isShared) found.push({ path: relayHome, what: 'recordings of voice, as other relays of this user run' });
  if (context.ownPackage.directory !== null)
    found.push({ path: context.ownPackage.directory, what: 'the program itself' });
  return found;
}

/** The tmux server with shells of this home; null if there are none. */
async function shells(host: Host, agentHome: string): Promise<string | null> {
  const file = await host.children.find('tmux');
  if (file === null) return null;
  const socket = await socketOf(host, agentHome);
  const { PATH = '', TMUX_TMPDIR = '' } = host.env;
  const env = { LANG: 'C.UTF-8', PATH, ...(TMUX_TMPDIR !== '' && { TMUX_TMPDIR }) };
  const { code } = await host.children.run(
    { file, args: ['-L', socket, 'list-sessions'], env, cwd: '/' },
    TMUX_TIMEOUT,
  );
  return code === 0 ? socket : null;
}

const exists = async (path: string): Promise<boolean> => (await unlessUnreadable(lstat(path))) !== null;

const namesIn = async (folder: string): Promise<string[]> => (await unlessUnreadable(readdir(folder))) ?? [];

/** A file or folder with its size; empty if it does not exist. A link counts as itself. */
async function removal(path: string, what: string): Promise<Removal[]> {
  const found = await unlessUnreadable(lstat(path));
  if (!found) return [];
  if (!found.isDirectory()) return [{ path, what, bytes: found.size }];
  const entries = ((await unlessUnreadable(readdir(path, { recursive: true, withFileTypes: true }))) ?? []).slice(
    0,
    MAX_FILES,
  );
  const sizes = await Promise.all(
    entries.map(async (entry) =>
      entry.isFile() ? ((await unlessUnreadable(lstat(join(entry.parentPath, entry.name))))?.size ?? 0) : 0,
    ),
  );
  return [{ path, what, bytes: sizes.reduce((sum, size) => sum + size, 0) }];
}

/** Rows for display: pictures of one folder are one row. */
export function rowsOf(removals: readonly Removal[]): [path: string, what: string][] {
  const groups = new Map<string, { path: string; what: string; bytes: number; count: number }>();
  for (const { path, what, bytes } of removals) {
    const key = /^(?:a picture|an upload)/.test(what) ? `${dirname(path)} ${what}` : path;
    const group = groups.get(key);
    if (group) Object.assign(group, { bytes: group.bytes + bytes, count: group.count + 1 });
    else groups.set(key, { path, what, bytes, count: 1 });
  }
  return [...groups.values()].map(({ path, what, bytes, count }) => [
    printable(count === 1 ? path : dirname(path)),
    `${count === 1 ? what : what.replace(/^an? (\w+)/, `${count} $1s`)} (${Math.ceil(bytes / 1024)} KB)`,
  ]);
}
