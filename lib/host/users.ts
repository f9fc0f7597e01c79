/**
 * An account by its number. `unknown`: the system reports accounts, but not for this connection, which may be closed
 * already or be one of too many to search. `untold`: the system does not report accounts.
 */
export type Owner = number | 'unknown' | 'untold';

/** The accounts of this machine behind its connections. */
export interface HostUsers {
  /** The account that this process runs as; null where accounts have no number. */
  readonly own: number | null;
  /** The home of that account from its passwd entry, regardless of `HOME`; null without an entry. */
  readonly home: string | null;
  /**
   * The account at the remote end of a loopback connection (contract 01 §1.3 rule 6). Never rejects. Lookups that
   * arrive during a search share the next search.
   */
  ofConnection(ends: ConnectionEnds): Promise<Owner>;
  /**
   * The accounts that may hold the server's end of a loopback connection that this process made (contract 01 §9.1a):
   * the account that accepted it, or until then, the accounts of the listener whose queue it is in. Never rejects.
   */
  ofServer(ends: ConnectionEnds): Promise<number[] | 'unknown' | 'untold'>;
  /**
   * The accounts that listen on a port of loopback or of every address; `untold` if the system does not report
   * accounts. Rejects if it failed to report some.
   */
  ofListeners(port: number): Promise<number[] | 'untold'>;
  /**
   * Every listener on a port, with its program if this user may see it; null if the system does not report listeners.
   */
  listeners(port: number): Promise<PortListener[] | null>;
  /**
   * Programs of one account that hold connections to a port of this machine and listen on others, like a proxy in front
   * of it. Omits processes in `except` and those that this user cannot see.
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
  /** The process id; absent if this user may not see it. */
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
  /** Undefined for a closed connection. */
  address?: string;
  port?: number;
}
