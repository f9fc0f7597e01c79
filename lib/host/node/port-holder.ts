import { readdir, readFile, readlink } from 'node:fs/promises';
import { basename } from 'node:path';

export interface PortHolder {
  pid: number;
  /** Its program, without arguments that may hold secrets: `nginx`, `node svc.js`. */
  program: string;
}

/** States of a socket in `/proc/net/tcp`. */
const LISTEN = '0A';
const INTERPRETER = /^(?:node|nodejs|bun|deno|python[\d.]*|ruby|perl|php|java|sh|bash)$/;

/** The process that listens on a TCP port; null when this user can see no such process. Linux only. */
export async function portHolder(port: number): Promise<PortHolder | null> {
  const rows = (await Promise.all(['tcp', 'tcp6'].map(listening))).flat();
  const sockets = new Set(rows.filter((row) => row.port === port).map(({ socket }) => socket));
  if (sockets.size === 0) return null;
  const pids = (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name));
  for (const pid of pids) {
    const files = await readdir(`/proc/${pid}/fd`).catch(() => []);
    const links = await Promise.all(files.map((file) => readlink(`/proc/${pid}/fd/${file}`).catch(() => '')));
    if (links.some((link) => sockets.has(link))) return { pid: Number(pid), program: await programOf(pid) };
  }
  return null;
}

/** TCP ports on which a process listens, ascending; empty when this user cannot see them. Linux only. */
export async function listeningPorts(pid: number): Promise<number[]> {
  const files = await readdir(`/proc/${pid}/fd`).catch(() => []);
  const own = new Set(await Promise.all(files.map((file) => readlink(`/proc/${pid}/fd/${file}`).catch(() => ''))));
  const rows = (await Promise.all(['tcp', 'tcp6'].map(listening))).flat();
  const ports = rows.filter(({ socket }) => own.has(socket)).map(({ port }) => port);
  return [...new Set(ports)].sort((a, b) => a - b);
}

/** Listening sockets, named as links of descriptors show them. */
async function listening(table: string): Promise<{ socket: string; port: number }[]> {
  const text = await readFile(`/proc/net/${table}`, 'utf8').catch(() => '');
  return text
    .split('\n')
    .map((row) => row.trim().split(/\s+/))
    .filter((fields) => fields[3] === LISTEN)
    .map((fields) => ({ socket: `socket:[${fields[9]}]`, port: Number.parseInt(fields[1]?.split(':')[1] ?? '', 16) }));
}

async function programOf(pid: string): Promise<string> {
  const words = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
  const program = basename(words[0] ?? '') || 'unknown';
  const script = words[1] ?? '';
  return INTERPRETER.test(program) && script !== '' && !script.startsWith('-')
    ? `${program} ${basename(script)}`
    : program;
}
