import { readdir, readFile, readlink } from 'node:fs/promises';
import { endianness } from 'node:os';
import { basename } from 'node:path';
import { canonicalAddress } from '../../kit/addresses.ts';
import type { LocalProxy, PortListener } from '../users.ts';

export interface PortHolder {
  pid: number;
  /** Its program, without arguments that may hold secrets: `nginx`, `node svc.js`. */
  program: string;
}

/** States of a socket in `/proc/net/tcp`. */
const ESTABLISHED = '01';
const LISTEN = '0A';
const INTERPRETER = /^(?:node|nodejs|bun|deno|python[\d.]*|ruby|perl|php|java|sh|bash)$/;

/** The process that listens on a TCP port; null if this user cannot see it. Linux only. */
export async function portHolder(port: number): Promise<PortHolder | null> {
  const found = (await listenersOn(port))?.find(({ pid }) => pid !== undefined);
  return found?.pid === undefined ? null : { pid: found.pid, program: found.program ?? '' };
}

/** Every listener on a TCP port; null if the system does not report listeners. */
export async function listenersOn(port: number): Promise<PortListener[] | null> {
  const rows = await sockets();
  if (rows === null) return null;
  const found = rows.filter((row) => row.state === LISTEN && row.local.port === port);
  const holders = await holdersOf(new Set(found.map(({ socket }) => socket)));
  return found.map(({ local, uid, socket }) => ({ address: local.address, uid, ...holders.get(socket) }));
}

/** TCP ports on which a process listens, ascending; empty when this user cannot see them. Linux only. */
export async function listeningPorts(pid: number): Promise<number[]> {
  const own = new Set(await socketsOf(String(pid)));
  const rows = ((await sockets()) ?? []).filter(({ state, socket }) => state === LISTEN && own.has(socket));
  return [...new Set(rows.map(({ local }) => local.port))].sort((a, b) => a - b);
}

/** Programs of one account that hold connections to a port and listen on others. Linux only; empty elsewhere. */
export async function proxiesOf(port: number, owner: number, except: readonly number[]): Promise<LocalProxy[]> {
  const rows = (await sockets()) ?? [];
  const calls = rows.filter(({ state, remote, uid }) => state === ESTABLISHED && remote.port === port && uid === owner);
  const holders = await holdersOf(new Set(calls.map(({ socket }) => socket)));
  const callers = new Map([...holders.values()].map((holder) => [holder.pid, holder]));
  const proxies: LocalProxy[] = [];
  for (const { pid, program } of callers.values()) {
    const ports = except.includes(pid) ? [] : await listeningPorts(pid);
    if (ports.length > 0) proxies.push({ pid, program, ports });
  }
  return proxies;
}

interface SocketRow {
  /** Named as in the links of descriptors. */
  socket: string;
  state: string;
  uid: number;
  local: { address: string; port: number };
  remote: { address: string; port: number };
}

/** The TCP sockets of this machine; null if the system has no such tables. */
async function sockets(): Promise<SocketRow[] | null> {
  const tables = await Promise.all(
    ['tcp', 'tcp6'].map((table) => readFile(`/proc/net/${table}`, 'utf8').catch(() => null)),
  );
  if (tables.every((text) => text === null)) return null;
  return tables
    .flatMap((text) => (text ?? '').split('\n').slice(1))
    .map((line) => line.trim().split(/\s+/))
    .filter((fields) => fields.length > 9)
    .map((fields) => ({
      socket: `socket:[${fields[9]}]`,
      state: fields[3] as string,
      uid: Number(fields[7]),
      local: endOf(fields[1] as string),
      remote: endOf(fields[2] as string),
    }));
}

/** Parses `0100007F:1F90` into an address and a port: 32-bit words, each printed in the byte order of this machine. */
function endOf(text: string): { address: string; port: number } {
  const [hex = '', port = ''] = text.split(':');
  const words = hex.match(/.{8}/g) ?? [];
  const bytes = words.flatMap((word) => {
    const pairs = word.match(/../g) ?? [];
    return endianness() === 'LE' ? pairs.reverse() : pairs;
  });
  const address =
    bytes.length === 4
      ? bytes.map((byte) => Number.parseInt(byte, 16)).join('.')
      : (bytes.join('').match(/.{4}/g) ?? []).join(':');
  return { address: canonicalAddress(address) ?? address, port: Number.parseInt(port, 16) };
}

/** The first process that holds each of the sockets, among those that this user can see. */
async function holdersOf(wanted: ReadonlySet<string>): Promise<Map<string, PortHolder>> {
  const found = new Map<string, PortHolder>();
  if (wanted.size === 0) return found;
  const pids = (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name));
  for (const pid of pids) {
    const held = (await socketsOf(pid)).filter((socket) => wanted.has(socket) && !found.has(socket));
    if (held.length === 0) continue;
    const holder = { pid: Number(pid), program: await programOf(pid) };
    for (const socket of held) found.set(socket, holder);
    if (found.size === wanted.size) break;
  }
  return found;
}

async function socketsOf(pid: string): Promise<string[]> {
  const files = await readdir(`/proc/${pid}/fd`).catch(() => []);
  return Promise.all(files.map((file) => readlink(`/proc/${pid}/fd/${file}`).catch(() => '')));
}

async function programOf(pid: string): Promise<string> {
  const words = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
  const program = basename(words[0] ?? '') || 'unknown';
  const script = words[1] ?? '';
  return INTERPRETER.test(program) && script !== '' && !script.startsWith('-')
    ? `${program} ${basename(script)}`
    : program;
}
