import { open } from 'node:fs/promises';
import { endianness, userInfo } from 'node:os';
import { plainAddress } from '../../kit/addresses.ts';
import { errnoOf } from '../errors.ts';
import type { HostUsers, Owner, SocketEnd } from '../users.ts';
import { listenersOn, proxiesOf } from './port-holder.ts';

/** The home in the passwd entry of this account; null without one, as in a container. */
export function recordedHome(): string | null {
  try {
    return userInfo().homedir;
  } catch (error) {
    const { info } = error as { info?: unknown };
    if (errnoOf(info) === 'ENOENT' || errnoOf(info) === 'ESRCH') return null;
    throw error;
  }
}

/** The tables of connections: proc_net_tcp(5). */
const TABLES = ['/proc/net/tcp', '/proc/net/tcp6'];
const CHUNK = 64 * 1024;
/** Bytes of one search: some 400,000 connections. */
const MAX_TABLE = 64 * 1024 * 1024;
/** Milliseconds of one search. On a busy machine the event loop stood still for 6 s, and the operator was refused. */
const MAX_TIME = 30_000;

const ESTABLISHED = '01';
const LISTENING = '0A';
/** A connection that no process was told of yet; its row names the account of the listener. */
const CONNECTING = '03';
/** States of a connection whose remote end is open; `FIN_WAIT` once that has sent all it had. */
const OPEN = new Set([ESTABLISHED, '04', '05']);

interface Row {
  state: string;
  /** Only true when `inode` is not `0`: a socket that no process holds any more is reported as that of root. */
  uid: number;
  inode: string;
}

interface Lookup {
  /** The rows that it looks for, by their ends. */
  keys: string[];
  /** Called for each row of these ends, until it returns true: the search is over for this lookup. */
  visit(row: Row, key: string): boolean;
  /** Called after the last row. */
  end(isTold: boolean): void;
}

export interface NodeUsersOptions {
  /** Files to read instead of the system's. */
  tables?: readonly string[];
}

/** The accounts behind connections, from the tables that Linux has. */
export function createUsers({ tables = TABLES }: NodeUsersOptions = {}): HostUsers {
  let waiting: Lookup[] = [];
  let isSearching = false;

  /** Serves every lookup that waits with one pass over the tables, until none waits. */
  async function search(): Promise<void> {
    isSearching = true;
    while (waiting.length > 0) {
      const round = waiting;
      waiting = [];
      const wanted = new Map<string, Lookup[]>();
      for (const lookup of round) {
        for (const key of lookup.keys) wanted.set(key, [...(wanted.get(key) ?? []), lookup]);
      }
      const open = new Set(round);
      const { isTold } = await eachRow(tables, wanted, (row, lookups, key) => {
        for (const lookup of lookups) {
          if (open.has(lookup) && lookup.visit(row, key)) {
            open.delete(lookup);
            lookup.end(true);
          }
        }
        return open.size === 0;
      });
      for (const lookup of open) lookup.end(isTold);
    }
    isSearching = false;
  }

  function lookUp(lookup: Lookup): void {
    waiting.push(lookup);
    if (!isSearching) void search();
  }

  return {
    own: process.geteuid?.() ?? null,
    home: recordedHome(),

    ofConnection({ local, remote }) {
      // In the table, the row of the other end begins with its address.
      const keys = product(spellings(remote), spellings(local));
      if (keys.length === 0) return Promise.resolve('unknown');
      return new Promise((resolve) => {
        let owner: Owner | undefined;
        lookUp({
          keys,
          visit({ state, uid, inode }) {
            if (!OPEN.has(state) || inode === '0') return false;
            owner = uid;
            return true;
          },
          end: (isTold) => resolve(owner ?? (isTold ? 'unknown' : 'untold')),
        });
      });
    },

    ofServer({ local, remote }) {
      const connection = new Set(product(spellings(remote), spellings(local)));
      if (connection.size === 0) return Promise.resolve('unknown');
      // The kernel prefers a listener on the address itself.
      const places = [remote.address ?? '', '0.0.0.0', '::'];
      const ranks = new Map<string, number>();
      for (const [rank, address] of places.entries()) {
        for (const key of product(spellings({ address, port: remote.port }), NOBODY)) ranks.set(key, rank);
      }
      return new Promise((resolve) => {
        const listeners: number[][] = places.map(() => []);
        let accepted: number | undefined;
        let isQueued = false;
        lookUp({
          keys: [...connection, ...ranks.keys()],
          visit({ state, uid, inode }, key) {
            if (!connection.has(key)) {
              if (state === LISTENING && inode !== '0') listeners[ranks.get(key) as number]?.push(uid);
            } else if (OPEN.has(state) && inode !== '0') accepted = uid;
            // A listener that is closed resets its queue: what still waits belongs to one that listens now.
            else if (state === ESTABLISHED || state === CONNECTING) isQueued = true;
            return accepted !== undefined;
          },
          end(isTold) {
            const queue = isQueued ? listeners.find((uids) => uids.length > 0) : undefined;
            const owners = accepted === undefined ? queue : [accepted];
            resolve(owners ?? (isTold ? 'unknown' : 'untold'));
          },
        });
      });
    },

    listeners: listenersOn,
    proxies: proxiesOf,

    async ofListeners(port) {
      const uids = new Set<number>();
      const local = ['127.0.0.1', '::1', '0.0.0.0', '::'].flatMap((address) => spellings({ address, port }));
      const byKey = new Map(product(local, NOBODY).map((key) => [key, true]));
      const { isTold, failure } = await eachRow(tables, byKey, ({ state, uid, inode }) => {
        if (state === LISTENING && inode !== '0') uids.add(uid);
        return false;
      });
      if (failure) throw failure;
      return isTold ? [...uids] : 'untold';
    },
  };
}

/**
 * Calls back for each row whose ends are a key of `wanted`, until told to stop. Returns whether the system has such
 * tables, and the failure of one that it has: a lack of descriptors, which a stranger can cause, says nothing of its rows.
 */
async function eachRow<T>(
  tables: readonly string[],
  wanted: ReadonlyMap<string, T>,
  visit: (row: Row, entry: T, key: string) => boolean,
): Promise<{ isTold: boolean; failure?: unknown }> {
  let isTold = false;
  let failure: unknown;
  for (const path of tables) {
    try {
      for await (const lines of linesOf(path)) {
        isTold = true;
        for (const line of lines) {
          const key = endsOf(line);
          const entry = wanted.get(key);
          if (entry !== undefined && visit(rowOf(line), entry, key)) return { isTold };
        }
      }
    } catch (error) {
      const isAbsent = ['ENOENT', 'EACCES', 'EPERM'].includes(errnoOf(error));
      if (isAbsent) continue;
      isTold = true;
      failure = error;
    }
  }
  return { isTold, failure };
}

/** The lines of a table, its heading too, a chunk at a time: other work runs in between. */
async function* linesOf(path: string): AsyncGenerator<string[]> {
  const end = performance.now() + MAX_TIME;
  const file = await open(path);
  try {
    const chunk = Buffer.alloc(CHUNK);
    let rest = '';
    for (let total = 0; total < MAX_TABLE && performance.now() < end; ) {
      const { bytesRead } = await file.read(chunk, 0, CHUNK, null);
      if (bytesRead === 0) return;
      total += bytesRead;
      const lines = (rest + chunk.toString('latin1', 0, bytesRead)).split('\n');
      rest = lines.pop() ?? '';
      yield lines;
    }
  } finally {
    await file.close();
  }
}

/** `0100007F:1F90 0100007F:C001` of a line such as `   0: 0100007F:1F90 0100007F:C001 01 ...`. */
function endsOf(line: string): string {
  const start = line.indexOf(': ') + 2;
  return line.slice(start, line.indexOf(' ', line.indexOf(' ', start) + 1));
}

function rowOf(line: string): Row {
  const fields = line.trim().split(/ +/);
  return { state: fields[3] ?? '', uid: Number(fields[7] ?? Number.NaN), inode: fields[9] ?? '0' };
}

/** Network order in 32-bit words, each printed as a number of this machine. */
const word = (hex: string): string => (endianness() === 'LE' ? (hex.match(/../g) ?? []).reverse().join('') : hex);
const hexOf = (v4: string): string => v4.split('.').reduce((hex, part) => hex + byte(Number(part)), '');
const byte = (number: number): string => number.toString(16).toUpperCase().padStart(2, '0');
const V4 = /^(?:127(?:\.\d{1,3}){3}|0\.0\.0\.0)$/;
const V6: Record<string, string> = { '::1': '0'.repeat(24) + word('00000001'), '::': '0'.repeat(32) };
const MAPPED = '0'.repeat(16) + word('0000FFFF');

/**
 * The spellings of one end of a connection in the tables; none for an address that is not of loopback. IPv4 appears
 * mapped when its socket is an IPv6 one.
 */
function spellings({ address, port }: SocketEnd): string[] {
  if (address === undefined || port === undefined) return [];
  const plain = plainAddress(address);
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const v4 = V4.test(plain) ? word(hexOf(plain)) : undefined;
  const v6 = V6[plain];
  return [...(v4 ? [v4 + suffix, MAPPED + v4 + suffix] : []), ...(v6 ? [v6 + suffix] : [])];
}

const product = (starts: string[], ends: string[]): string[] =>
  starts.flatMap((start) => ends.map((end) => `${start} ${end}`));

/** The remote end of a listener, as the tables write it. */
const NOBODY = ['0.0.0.0', '::'].flatMap((address) => spellings({ address, port: 0 }));
