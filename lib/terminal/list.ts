import { clientName } from './names.ts';
import type { Session } from './session.ts';
import type { TmuxSession } from './tmux.ts';

/** One row of `terminal.sessions` (contract 02 §3.8, 09 §1). */
export interface Row {
  name: string;
  tmux_name?: string;
  /** Clients of tmux; for a bare shell, sockets. */
  attached?: number;
  windows?: number;
  /** Epoch seconds. */
  created_at?: number;
  /** Epoch seconds of its last output. */
  active_at?: number;
  /** Name of the device that attached last. */
  device?: string;
  last_line?: string;
  pid?: number;
  shell: string;
  live: boolean;
  owned_by_client: boolean;
}

export interface Listing {
  /** Sessions of tmux; undefined without tmux. */
  listed?: TmuxSession[];
  live: Session[];
  /** Sessions of the requesting socket. */
  own: ReadonlySet<Session>;
  /** Parked shells of the requesting device. */
  parked: ReadonlySet<Session>;
  /** Shell to show for sessions with an unknown shell. */
  shell: string;
  /** Name of the device of a session. */
  deviceOf(session: Session): string | undefined;
  /** Name of the device of a family, by the family's hash. */
  deviceOfFamily(hash: string): string | undefined;
}

/** Rows in order of name: one per tmux session, or without tmux the sessions of the requesting socket and device. */
export function listRows(listing: Listing): Row[] {
  const rows = listing.listed ? tmuxRows(listing, listing.listed) : bareRows(listing);
  return rows.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
}

function tmuxRows({ live, own, shell, deviceOf, deviceOfFamily }: Listing, listed: TmuxSession[]): Row[] {
  const names = new Set(listed.map(({ name }) => name));
  const starting = live.flatMap(({ tmuxName }) => (tmuxName === undefined || names.has(tmuxName) ? [] : [tmuxName]));
  return [...listed, ...[...new Set(starting)].map((name) => ({ name }))].flatMap((tmux) => {
    const fallback = clientName(tmux.name);
    if (fallback === undefined) return [];
    const here = live.filter((session) => session.tmuxName === tmux.name);
    const mine = here.find((session) => own.has(session));
    const shown = mine ?? here.find(({ isWatch }) => !isWatch) ?? here[0];
    const { attached, windows, createdAt, activeAt, last, lastLine } = tmux as Partial<TmuxSession>;
    const device = last === undefined ? shown && deviceOf(shown) : deviceOfFamily(last);
    return {
      name: shown?.name ?? fallback,
      tmux_name: tmux.name,
      ...(attached === undefined ? {} : { attached, windows, created_at: createdAt, active_at: activeAt }),
      ...details(device, lastLine),
      ...(shown ? { pid: shown.pid } : {}),
      shell: shown?.shell ?? shell,
      live: shown !== undefined,
      owned_by_client: mine !== undefined,
    };
  });
}

function bareRows({ own, parked, deviceOf }: Listing): Row[] {
  const rowOf = (session: Session) => ({
    name: session.name,
    shell: session.shell,
    attached: session.attached,
    created_at: Math.floor(session.createdAt / 1000),
    active_at: Math.floor(session.activeAt / 1000),
    ...details(deviceOf(session), session.lastLine),
  });
  return [
    ...[...own].map((session) => ({ ...rowOf(session), pid: session.pid, live: true, owned_by_client: true })),
    ...[...parked].map((session) => ({ ...rowOf(session), live: false, owned_by_client: false })),
  ];
}

const details = (device: string | undefined, line: string | undefined) => ({
  ...(device === undefined ? {} : { device }),
  ...(line ? { last_line: line } : {}),
});
