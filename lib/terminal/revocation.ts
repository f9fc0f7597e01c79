import { describeError } from '../errors.ts';
import type { Host, ProcessOrigin } from '../host/index.ts';
import type { Log } from '../log.ts';
import type { Session as PairedSession } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { familyHash, isAnother, type Owner, ownerOf } from './owner.ts';
import type { Session } from './session.ts';
import type { Tmux, TmuxShell } from './tmux.ts';

export interface RevocationDeps {
  host: Pick<Host, 'processes'>;
  /** Paired session behind every session whose program runs. */
  running: ReadonlyMap<Session, PairedSession>;
  sessions: Pick<Sessions, 'list'>;
  log: Log;
  /** Rejects if it cannot be determined whether tmux is there. */
  tmux(): Promise<Tmux | undefined> | undefined;
}

/** The outcome of an attempt to end a device's shells. */
export interface ShellsEnded {
  /** Number of shells that ended. */
  count: number;
  /** Why shells may still run; absent if none do. */
  failure?: string;
  /** Marks of the processes that the attempt covered, for the next one. */
  marks: readonly string[];
}

/**
 * Ends the shells that only a revoked device ever attached, and everything that runs in them (contract 02 §1.5), including
 * processes with the `marks` of an earlier attempt. Reads `running` before its first await, since sockets of the device may
 * close at any time. Never rejects.
 */
export async function endShells(
  deps: RevocationDeps,
  revoked: PairedSession,
  marks: readonly string[] = [],
): Promise<ShellsEnded> {
  const { host, log, running } = deps;
  const own = [...running].filter(([, { family }]) => family === revoked.family).map(([session]) => session);
  const bare = own.filter(({ tmuxName }) => tmuxName === undefined);
  const origins: ProcessOrigin[] = bare.map(({ pid, mark }) => ({ leaders: [pid], marks: [mark] }));
  const failures: string[] = [];
  const failed = (error: unknown) => void failures.push(describeError(error));
  let shells: { tmux: Tmux; id: string }[] = [];
  try {
    const tmux = await deps.tmux();
    const found = tmux ? await ownShells(tmux, deps, { revoked, own }) : [];
    if (tmux) origins.push(...(await originsOf(tmux, found)));
    shells = found.flatMap(({ id }) => (tmux ? [{ tmux, id }] : []));
  } catch (error) {
    failed(error);
  }
  const all = joined([...origins, { leaders: [], marks: [...marks] }]);
  if (all.marks.length === 0) return { count: 0, marks: [], ...(failures[0] && { failure: failures[0] }) };

  const first = await host.processes.endAll(all);
  for (const { tmux, id } of shells) await tmux.end(id).catch(failed);
  // Processes started by a shell's own traps, or in its last windows.
  const rest = await host.processes.endAll({ leaders: [], marks: all.marks });
  const ended = `shells: ${origins.length}, processes: ${first.ended + rest.ended}`;
  const why = revoked.ended === 'revoked' ? 'is revoked' : 'has no terminal grant any more';
  log.info(`session ${revoked.prefix} of ${revoked.device.name} ${why}, and its shells have ended (${ended})`);
  const left = Math.max(first.left, rest.left);
  if (left > 0) failures.push(`${left} processes could not be ended`);
  return { count: origins.length, marks: all.marks, ...(failures[0] && { failure: failures.join('; ') }) };
}

/** The tmux sessions that only the revoked device ever attached. */
async function ownShells(
  tmux: Tmux,
  { running, sessions, log }: RevocationDeps,
  { revoked, own }: { revoked: PairedSession; own: readonly Session[] },
): Promise<TmuxShell[]> {
  // A client that has just started may not have created its session yet.
  await Promise.all(own.filter(({ tmuxName }) => tmuxName !== undefined).map((session) => session.hasDrawn()));
  const living = new Set(sessions.list().map(({ family }) => familyHash(family)));
  const owner = ownerOf(revoked);
  const isOwn = (owners: Owner[]) =>
    owners.length > 0 && !owners.some((other) => isAnother(other, owner, (family) => living.has(family)));
  const shells = await tmux.shells();
  const unknown = shells.filter(({ owners }) => owners.length === 0).length;
  if (unknown > 0) log.info(`${unknown} tmux sessions stay: it is unknown which device attached them`);
  const startedBy = (name: string): Owner[] =>
    [...running].flatMap(([{ tmuxName, state, isWatch }, paired]) =>
      tmuxName === name && state !== 'closed' && !isWatch ? [ownerOf(paired)] : [],
    );
  return shells.filter(({ name, owners }) => isOwn([...owners, ...startedBy(name)]));
}

const originsOf = async (tmux: Tmux, shells: readonly TmuxShell[]): Promise<ProcessOrigin[]> =>
  (await Promise.all(shells.map(({ id }) => tmux.origin(id)))).filter((origin) => origin !== undefined);

const joined = (origins: readonly ProcessOrigin[]): ProcessOrigin => ({
  leaders: origins.flatMap(({ leaders }) => leaders),
  marks: [...new Set(origins.flatMap(({ marks }) => marks))],
});
