/**
 * An account by its number. `unknown` when the system tells such things, but not for this connection: its other end is
 * closed already, or there are too many to search. `untold` where the system does not tell.
 */
export type Owner = number | 'unknown' | 'untold';

/** The accounts of this machine behind its connections. */
export interface HostUsers {
  /** The account that this process runs as; null where accounts have no number. */
  readonly own: number | null;
  /** The home of that account as its passwd entry names it, whatever `HOME` says; null without an entry. */
  readonly home: string | null;
  /**
   * The account at the remote end of a loopback connection (contract 01 §1.3 rule 6). Never rejects. Lookups that arrive
   * during a search share the next one.
   */
  ofConnection(ends: ConnectionEnds): Promise<Owner>;
  /**
   * The accounts that may hold the server's end of a loopback connection which this process made (contract 01 §9.1a): the
   * one that accepted it, or, as long as nobody has, those of the listener in whose queue it waits. Never rejects.
   */
  ofServer(ends: ConnectionEnds): Promise<number[] | 'unknown' | 'untold'>;
  /**
   * The accounts that listen on a port of loopback or of every address; `untold` where the system does not tell. Rejects
   * when it failed to tell of some.
   */
  ofListeners(port: number): Promise<number[] | 'untold'>;
  /** Every listener on a port, with its program where this user may see that; null where the system does not tell. */
  listeners(port: number): Promise<PortListener[] | null>;
  /**
   * Programs of one account that hold connections to a port of this machine and listen on others, as a proxy before it
   * does. Processes in `except` do not count; neither do those that this user may not see.
   */
  proxies(port: number, owner: number, except: readonly number[]): Promise<LocalProxy[]>;
}

export interface LocalProxy {
  pid: number;
  program: string;
  /** Ports on which it listens, ascending. */
  ports: number[];
}

/** A program that listens on an address and port. */
export interface PortListener {
  /** Canonical: `127.0.0.1`, `::1`, `::`. */
  address: string;
  uid: number;
  /** The process id; absent where this user may not see it. */
  pid?: number;
  /** Its program, without arguments that may hold secrets: `nginx`, `node svc.js`. */
  program?: string;
}

/** Both ends of a TCP connection, seen from this process. */
export interface ConnectionEnds {
  local: SocketEnd;
  remote: SocketEnd;
}

export interface SocketEnd {
  /** Undefined for a connection that is over. */
  address?: string;
  port?: number;
}
