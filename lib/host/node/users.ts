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
/**
 * Milliseconds of one search. Generous, because on a busy machine the event loop once stood still for 6 s and the
 * operator was refused.
 */
const MAX_TIME = 30_000;

const ESTABLISHED = '01';
const LISTENING = '0A';
/** A connection that no process has accepted yet; its row has the account of the listener. */
const CONNECTING = '03';
/** States of a connection whose remote end is open; `FIN_WAIT` after it has sent everything. */
const OPEN = new Set([ESTABLISHED, '04', '05']);

interface Row {
  state: string;
  /** Valid only if `inode` is not `0`: a socket that no process holds any more is reported as root's. */
  uid: number;
  inode: string;
}

interface Lookup {
  /** The rows to look for, by their ends. */
  keys: string[];
  /** Called for each row of these ends; true ends the search for this lookup. */
  visit(row: Row, key: string): boolean;
  /** Called after the last row. */
  end(isKnown: boolean): void;
}

export interface NodeUsersOptions {
  /** Files to read instead of the system's. */
  tables?: readonly string[];
}

/** The accounts behind connections, from Linux's tables. */
export function createUsers({ tables = TABLES }: NodeUsersOptions = {}): HostUsers {
  let waiting: Lookup[] = [];
  let isSearching = false;

  /** Serves all waiting lookups with one pass over the tables, repeated until none waits. */
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
      const { isKnown } = await eachRow(tables, wanted, (row, lookups, key) => {
        for (const lookup of lookups) {
          if (open.has(lookup) && lookup.visit(row, key)) {
            open.delete(lookup);
            lookup.end(true);
          }
        }
        return open.size === 0;
      });
      for (const lookup of open) lookup.end(isKnown);
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
      // The row of the other end begins with the address of that end.
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
          end: (isKnown) => resolve(owner ?? (isKnown ? 'unknown' : 'untold')),
        });
      });
    },

    ofServer({ local, remote }) {
      const connection = new Set(product(spellings(remote), spellings(local)));
      if (connection.size === 0) return Promise.resolve('unknown');
      // The kernel prefers a listener on the exact address.
      const addresses = [remote.address ?? '', '0.0.0.0', '::'];
      const ranks = new Map<string, number>();
      for (const [rank, address] of addresses.entries()) {
        for (const key of product(spellings({ address, port: remote.port }), NOBODY)) ranks.set(key, rank);
      }
      return new Promise((resolve) => {
        const listeners: number[][] = addresses.map(() => []);
        let accepted: number | undefined;
        let isQueued = false;
        lookUp({
          keys: [...connection, ...ranks.keys()],
          visit({ state, uid, inode }, key) {
            if (!connection.has(key)) {
              if (state === LISTENING && inode !== '0') listeners[ranks.get(key) as number]?.push(uid);
            } else if (OPEN.has(state) && inode !== '0') accepted = uid;
            // Closing a listener resets its queue, so that every queued connection belongs to a present listener.
            else if (state === ESTABLISHED || state === CONNECTING) isQueued = true;
            return accepted !== undefined;
          },
          end(isKnown) {
            const queue = isQueued ? listeners.find((uids) => uids.length > 0) : undefined;
            const owners = accepted === undefined ? queue : [accepted];
            resolve(owners ?? (isKnown ? 'unknown' : 'untold'));
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
      const { isKnown, failure } = await eachRow(tables, byKey, ({ state, uid, inode }) => {
        if (state === LISTENING && inode !== '0') uids.add(uid);
        return false;
      });
      if (failure) throw failure;
      return isKnown ? [...uids] : 'untold';
    },
  };
}

/**
 * Calls back for each row whose ends are a key of `wanted`, until the callback returns true. Returns whether the system
 * has such tables, and the failure to read one: a lack of descriptors, which a stranger can cause, must not pass for a
 * missing row.
 */
async function eachRow<T>(
  tables: readonly string[],
  wanted: ReadonlyMap<string, T>,
  visit: (row: Row, entry: T, key: string) => boolean,
): Promise<{ isKnown: boolean; failure?: unknown }> {
  let isKnown = false;
  let failure: unknown;
  for (const path of tables) {
    try {
      for await (const lines of linesOf(path)) {
        isKnown = true;
        for (const line of lines) {
          const key = endsOf(line);
          const entry = wanted.get(key);
          if (entry !== undefined && visit(rowOf(line), entry, key)) return { isKnown };
        }
      }
    } catch (error) {
      const isAbsent = ['ENOENT', 'EACCES', 'EPERM'].includes(errnoOf(error));
      if (isAbsent) continue;
      isKnown = true;
      failure = error;
    }
  }
  return { isKnown, failure };
}

/** The lines of a table, including its heading, in chunks, so that other work runs in between. */
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

/** Returns `0100007F:1F90 0100007F:C001` of a line such as `   0: 0100007F:1F90 0100007F:C001 01 ...`. */
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
 * The spellings of one end of a connection in the tables; none for an address outside loopback. IPv4 appears mapped if
 * its socket is an IPv6 one.
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

/** The remote end of a listener in the tables. */
const NOBODY = ['0.0.0.0', '::'].flatMap((address) => spellings({ address, port: 0 }));
