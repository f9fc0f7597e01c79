/**
 * Life cycle of a session. `attached` has a client; `parked` is a bare shell whose client disconnected and may return;
 * `closed` is final.
 */
export type State = 'attaching' | 'attached' | 'parked' | 'closed';

export type Event =
  /** The attach was confirmed to the client. */
  | 'opened'
  /** The device asks for its parked shell. */
  | 'reattach'
  /** The program exited by itself. */
  | 'exit'
  | 'detach'
  | 'kill'
  /** The socket has closed. */
  | 'lost'
  | 'grant-lost'
  | 'write-failed'
  /** A freeze ends the shells that an agent run opened (contract 09 §3). */
  | 'frozen'
  | 'shutdown'
  /** The grace time of a parked shell is over, or another shell needs its place. */
  | 'expired';

/** Reason sent to the client (contract 02 §3.6). */
export type Reason =
  | 'client detach'
  | 'client kill'
  | 'eof'
  | 'write failed'
  | 'grant expired'
  | 'frozen'
  | 'server shutdown';

/** The reason sent to a client at the end of its attach; undefined if it cannot get one. */
export const reasonOf = (event: Event): Reason | undefined => REASONS[event];

export interface Step {
  state: State;
  /** Sent to the client, once per attach. */
  reason?: Reason;
  /** True to end the program; with tmux, only its client. */
  end: boolean;
}

const REASONS: Partial<Record<Event, Reason>> = {
  exit: 'eof',
  detach: 'client detach',
  kill: 'client kill',
  'grant-lost': 'grant expired',
  'write-failed': 'write failed',
  frozen: 'frozen',
  shutdown: 'server shutdown',
};

/**
 * The effect of an event on a session; undefined if it has none. `parks`: whether a shell without a client is parked (bare
 * shells, unless the grace time is 0).
 */
export function step(state: State, event: Event, parks: boolean): Step | undefined {
  const next = nextState(state, event, parks);
  if (!next) return undefined;
  // Only a client whose attach was confirmed is notified of its end.
  const reason = state === 'attached' ? REASONS[event] : undefined;
  return { state: next, end: next === 'closed' && event !== 'exit', ...(reason && { reason }) };
}

function nextState(state: State, event: Event, parks: boolean): State | undefined {
  if (state === 'closed') return undefined;
  switch (event) {
    case 'opened':
      return state === 'attaching' ? 'attached' : undefined;
    case 'reattach':
      return state === 'parked' ? 'attaching' : undefined;
    case 'expired':
      return state === 'parked' ? 'closed' : undefined;
    case 'detach':
    case 'lost':
      if (state === 'parked') return undefined;
      return parks ? 'parked' : 'closed';
    default:
      return 'closed';
  }
}
