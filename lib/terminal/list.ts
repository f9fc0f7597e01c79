import { clientName } from './names.ts';
import type { Session } from './session.ts';
import type { TmuxSession } from './tmux.ts';

/** One row of `terminal.sessions` (contract 02 §3.8). */
export interface Row {
  name: string;
  tmux_name?: string;
  attached?: number;
  windows?: number;
  created_at?: number;
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
  /** Shell to show for sessions of unknown shell. */
  shell: string;
}

/** Rows in order of name: one per tmux session, or without tmux the sessions of the requesting socket and device. */
export function listRows({ listed, live, own, parked, shell }: Listing): Row[] {
  const rows: Row[] = [];
  if (listed) {
    const names = new Set(listed.map(({ name }) => name));
    const starting = live.flatMap(({ tmuxName }) => (tmuxName === undefined || names.has(tmuxName) ? [] : [tmuxName]));
    for (const tmux of [...listed, ...[...new Set(starting)].map((name) => ({ name }))]) {
      const fallback = clientName(tmux.name);
      if (fallback === undefined) continue;
      const here = live.filter((session) => session.tmuxName === tmux.name);
      const mine = here.find((session) => own.has(session));
      const shown = mine ?? here[0];
      const { attached, windows, createdAt } = tmux as Partial<TmuxSession>;
      rows.push({
        name: shown?.name ?? fallback,
        tmux_name: tmux.name,
        ...(attached === undefined ? {} : { attached, windows, created_at: createdAt }),
        ...(shown ? { pid: shown.pid } : {}),
        shell: shown?.shell ?? shell,
        live: shown !== undefined,
        owned_by_client: mine !== undefined,
      });
    }
  } else {
    for (const { name, pid, shell } of own) rows.push({ name, pid, shell, live: true, owned_by_client: true });
    for (const { name, shell } of parked) rows.push({ name, shell, live: false, owned_by_client: false });
  }
  return rows.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
}
