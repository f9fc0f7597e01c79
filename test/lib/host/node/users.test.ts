import { readdirSync, readlinkSync } from 'node:fs';
import { appendFile, mkdir, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer, connect as dial, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createUsers } from '../../../../lib/host/node/users.ts';
import type { ConnectionEnds } from '../../../../lib/host/users.ts';
import { TIMED } from '../../../support/limits.ts';
import { temporaryDirectory } from '../../../support/temp.ts';

const HEADING = '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n';

interface Line {
  local: string;
  remote: string;
  state?: string;
  uid?: number;
  inode?: number;
}

const lineOf = ({ local, remote, state = '01', uid = 1000, inode = 7 }: Line, index: number): string =>
  `${String(index).padStart(4)}: ${local} ${remote} ${state} 00000000:00000000 00:00000000 00000000 ` +
  `${String(uid).padStart(5)}        0 ${inode} 1 0000000000000000 20 4 30 10 -1\n`;

/** Accounts from tables with these lines, as a little-endian machine writes them. */
async function usersOf(tcp: Line[], tcp6: Line[] = []) {
  const directory = await temporaryDirectory();
  const tables = [join(directory, 'tcp'), join(directory, 'tcp6')] as const;
  await writeFile(tables[0], HEADING + tcp.map(lineOf).join(''));
  await writeFile(tables[1], HEADING + tcp6.map(lineOf).join(''));
  return { users: createUsers({ tables }), tables };
}

const V4 = '0100007F';
const V6 = '00000000000000000000000001000000';
const MAPPED = '0000000000000000FFFF00000100007F';

/** Port 8080 of this end, 40000 of the other. */
const ends = (address: string): ConnectionEnds => ({
  local: { address, port: 8080 },
  remote: { address, port: 40_000 },
});
const theirs = (address: string): Line => ({ local: `${address}:9C40`, remote: `${address}:1F90` });
const ours = (address: string): Line => ({ local: `${address}:1F90`, remote: `${address}:9C40`, uid: 0 });

describe('the account behind a connection (contract 01 §1.3 rule 6)', () => {
  it.each([
    ['IPv4', '127.0.0.1', [ours(V4), theirs(V4)], []],
    ['IPv6', '::1', [], [ours(V6), theirs(V6)]],
    ['an IPv4 caller of an IPv6 listener', '::ffff:127.0.0.1', [theirs(V4)], [ours(MAPPED)]],
    ['an IPv6 socket that calls an IPv4 listener', '127.0.0.1', [ours(V4)], [theirs(MAPPED)]],
  ])('%s: that of the other end', async (_name, address, tcp, tcp6) => {
    const { users } = await usersOf(tcp, tcp6);
    expect(await users.ofConnection(ends(address))).toBe(1000);
  });

  it.each<[string, Line]>([
    ['another port of the caller', { ...theirs(V4), local: `${V4}:9C41` }],
    ['another port of the relay', { ...theirs(V4), remote: `${V4}:1F91` }],
    ['another address of the caller', { ...theirs(V4), local: '0200007F:9C40' }],
    ['another address of the relay', { ...theirs(V4), remote: '0200007F:1F90' }],
    ['a longer line with the same beginning', { ...theirs(V4), remote: `${V4}:1F900` }],
    ['the end of the relay itself', ours(V4)],
    ['a socket that no process holds any more', { ...theirs(V4), state: '05', uid: 0, inode: 0 }],
    ['a socket in TIME_WAIT', { ...theirs(V4), state: '06', uid: 0 }],
    ['a socket that is still connecting', { ...theirs(V4), state: '02' }],
    ['a closed socket', { ...theirs(V4), state: '07' }],
    ['a listener', { ...theirs(V4), state: '0A' }],
  ])('%s is not the caller', async (_name, line) => {
    const { users } = await usersOf([line]);
    expect(await users.ofConnection(ends('127.0.0.1'))).toBe('unknown');
  });

  it('finds a caller that has sent all it had', async () => {
    const { users } = await usersOf([{ ...theirs(V4), state: '05' }]);
    expect(await users.ofConnection(ends('127.0.0.1'))).toBe(1000);
  });

  it('knows nothing of a connection that is over, or not of loopback', async () => {
    const { users } = await usersOf([theirs(V4)]);
    const local = { address: '127.0.0.1', port: 8080 };
    expect(await users.ofConnection({ local, remote: {} })).toBe('unknown');
    expect(await users.ofConnection({ local, remote: { address: '192.168.1.2', port: 40_000 } })).toBe('unknown');
  });

  it('tells a system without such tables from one that cannot be read right now', async () => {
    const directory = await temporaryDirectory();
    const missing = createUsers({ tables: [join(directory, 'a'), join(directory, 'b')] });
    expect(await missing.ofConnection(ends('127.0.0.1'))).toBe('untold');
    expect(await missing.ofListeners(8080)).toBe('untold');
    // Reading a directory fails as a lack of descriptors does: with an error that says nothing about the system.
    await mkdir(join(directory, 'a'));
    expect(await missing.ofConnection(ends('127.0.0.1'))).toBe('unknown');
    await expect(missing.ofListeners(8080)).rejects.toThrow('EISDIR');
  });

  it('finds the accounts that listen on a port of loopback or everywhere', async () => {
    const listener = (local: string, uid: number): Line => ({ local, remote: '00000000:0000', state: '0A', uid });
    const everywhere = '0'.repeat(32);
    const { users } = await usersOf(
      [
        listener(`${V4}:1F90`, 1),
        listener('00000000:1F90', 2),
        listener('0201A8C0:1F90', 3),
        listener(`${V4}:1F91`, 4),
        { ...theirs(V4), uid: 5 },
      ],
      [{ ...listener(`${everywhere}:1F90`, 6), remote: `${everywhere}:0000` }],
    );
    expect(new Set((await users.ofListeners(8080)) as number[])).toEqual(new Set([1, 2, 6]));
  });

  it('reads a large table without stopping the process', TIMED, async () => {
    const { users, tables } = await usersOf([]);
    const filler = Array.from({ length: 1000 }, (_, index) => lineOf({ ...theirs('0200007F'), inode: 9 }, index));
    for (let count = 0; count < 100; count++) await appendFile(tables[0], filler.join(''));
    await appendFile(tables[0], lineOf(theirs(V4), 1));
    let longest = 0;
    let last = performance.now();
    const watch = setInterval(() => {
      longest = Math.max(longest, performance.now() - last);
      last = performance.now();
    }, 1);
    const owner = await users.ofConnection(ends('127.0.0.1'));
    clearInterval(watch);
    expect(owner).toBe(1000);
    expect(longest).toBeLessThan(50);
  });

  it('searches once for all that ask at the same time', async () => {
    const callers = Array.from({ length: 300 }, (_, index) => 30_000 + index);
    const hex = (port: number) => port.toString(16).toUpperCase().padStart(4, '0');
    const { users, tables } = await usersOf(
      callers.map((port) => ({ ...theirs(V4), local: `${V4}:${hex(port)}`, uid: port })),
    );
    let most = 0;
    const found = callers.map((port) =>
      users.ofConnection({ local: ends('127.0.0.1').local, remote: { address: '127.0.0.1', port } }).then((uid) => {
        most = Math.max(most, openCount(tables[0]));
        return uid;
      }),
    );
    expect(await Promise.all(found)).toEqual(callers);
    expect(most).toBe(1);
  });
});

describe('the account that serves a connection (contract 01 §9.1a)', () => {
  // Seen from the client: it calls port 8080 from port 40000.
  const call = { local: ends('127.0.0.1').remote, remote: ends('127.0.0.1').local };
  const listener = (local: string, uid: number): Line => ({ local, remote: '00000000:0000', state: '0A', uid });
  const served = (changes: Partial<Line>): Line => ({ ...ours(V4), ...changes });
  const QUEUED = { inode: 0, uid: 0 };

  it.each<[string, number[] | 'unknown', Line[]]>([
    ['the one that accepted it', [7], [theirs(V4), served({ uid: 7 })]],
    ['also when another one listens by now', [7], [listener(`${V4}:1F90`, 8), served({ uid: 7 })]],
    ['also when it has closed its side', [7], [served({ uid: 7, state: '05' })]],
    ['while it waits, the one that listens', [8], [listener(`${V4}:1F90`, 8), served(QUEUED)]],
    [
      'while it is being made, the one that listens',
      [8],
      [listener('00000000:1F90', 8), served({ state: '03', ...QUEUED })],
    ],
    [
      'while it waits, the listener on the address',
      [8],
      [listener('00000000:1F90', 9), listener(`${V4}:1F90`, 8), served(QUEUED)],
    ],
    [
      'while it waits, all that share the port',
      [8, 9],
      [listener(`${V4}:1F90`, 8), listener(`${V4}:1F90`, 9), served(QUEUED)],
    ],
    [
      'nobody for a connection that nobody holds',
      'unknown',
      [listener(`${V4}:1F90`, 8), served({ ...QUEUED, state: '04' })],
    ],
    ['nobody while nobody listens', 'unknown', [served(QUEUED)]],
    ['nobody without a row of it', 'unknown', [listener(`${V4}:1F90`, 8), theirs(V4)]],
  ])('is %s', async (_name, expected, lines) => {
    const { users } = await usersOf(lines);
    expect(await users.ofServer(call)).toEqual(expected);
  });

  it('is known of every address of 127/8, and of no other', async () => {
    const { users } = await usersOf([served({ local: '0700007F:1F90', uid: 7 })]);
    expect(await users.ofServer({ ...call, remote: { address: '127.0.0.7', port: 8080 } })).toEqual([7]);
    expect(await users.ofServer({ ...call, remote: { address: '192.168.1.7', port: 8080 } })).toBe('unknown');
  });
});

/** Descriptors of this process that are open on a file. */
const openCount = (path: string): number =>
  readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`) === path;
    } catch {
      return false;
    }
  }).length;

const hasIPv6 = networkInterfaces().lo?.some(({ address }) => address === '::1') ?? false;
if (!hasIPv6) process.stderr.write('SKIPPED: this machine has no IPv6 loopback\n');

describe.runIf(process.platform === 'linux')('the tables of this machine', () => {
  it.for([
    ['127.0.0.1', '127.0.0.1'],
    ['0.0.0.0', '127.0.0.1'],
    ['::', '127.0.0.1'],
    ['::', '::1'],
    ['::1', '::1'],
    ['127.0.0.1', '::ffff:127.0.0.1'],
  ] as const)('a listener on %s, called at %s', async ([listen, address], { skip }) => {
    skip(!hasIPv6 && (listen + address).includes(':'), 'no IPv6');
    const server = createServer({ allowHalfOpen: true });
    const open = (socket: Socket) => void onTestFinished(() => void socket.destroy());
    server.on('connection', open);
    onTestFinished(() => void server.close());
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen({ host: listen, port: 0 }, resolve);
    });
    const { port } = server.address() as AddressInfo;
    const accepted = new Promise<Socket>((resolve) => server.once('connection', resolve));
    const client = dial({ host: address, port, allowHalfOpen: true });
    open(client);
    const socket = await accepted;
    const seen: ConnectionEnds = {
      local: { address: socket.localAddress, port: socket.localPort },
      remote: { address: socket.remoteAddress, port: socket.remotePort },
    };
    const users = createUsers();
    expect(await users.ofConnection(seen)).toBe(users.own);
    expect(await users.ofListeners(port)).toEqual([users.own]);
    const ended = new Promise((resolve) => socket.once('end', resolve));
    socket.resume();
    client.end();
    await ended;
    expect(await users.ofConnection(seen)).toBe(users.own);
  });
});
