import { execFileSync } from 'node:child_process';
import { describe, expect, test, vi } from 'vitest';
import { cleanups } from '../support/built-relay.ts';
import type { Client } from '../support/client.ts';
import {
  descriptors,
  hasProgram,
  pairTerminal,
  processesWith,
  reconnect,
  startTerminalRelay,
  terminalDescriptors,
} from '../support/terminal.ts';

const cleanup = cleanups();
const SHELLS = 64;
const PER_SOCKET = 4;
const PER_DEVICE = 4;
/** `LEAK_ROUNDS=20` runs more of them to expose slow leaks, and prints their counts. */
const ROUNDS = Math.max(2, Number(process.env.LEAK_ROUNDS ?? 3));

/** Sockets of several devices, enough for as many shells as a relay allows. */
async function sockets(
  target: Awaited<ReturnType<typeof startTerminalRelay>>,
): Promise<{ clients: Client[]; tokens: string[] }> {
  const clients: Client[] = [];
  const tokens: string[] = [];
  for (let device = 0; device < SHELLS / PER_SOCKET / PER_DEVICE; device++) {
    const { client, token } = await pairTerminal(target);
    clients.push(client);
    tokens.push(token);
    for (let socket = 1; socket < PER_DEVICE; socket++) clients.push(await reconnect(target, token));
  }
  return { clients, tokens };
}

async function openAll(clients: Client[], round: string): Promise<string[]> {
  const types = await Promise.all(
    clients.flatMap((client, socket) =>
      Array.from({ length: PER_SOCKET }, async (_, tab) => {
        const name = `${round}-${socket}-${tab}`;
        client.send('terminal', 'terminal.attach', { session_name: name }, name);
        return (await client.next({ channel: 'terminal', id: name })).type;
      }),
    ),
  );
  return types;
}

/** Number of clients of the relay's tmux server; 0 when none runs. */
const tmuxClients = (target: { tmuxRun(...args: string[]): string }): number => {
  try {
    return target.tmuxRun('list-clients').trim().split('\n').filter(Boolean).length;
  } catch {
    return 0;
  }
};

/** Children of this process including zombies, without the `ps` that lists them. */
const children = (): string[] =>
  execFileSync('ps', ['-o', 'stat=,comm=', '--ppid', String(process.pid)], { encoding: 'utf8' })
    .split('\n')
    .filter((line) => line !== '' && !/ ps$/.test(line));

describe.each(hasProgram('tmux') ? [false, true] : [false])('64 shells, tmux: %s', (tmux) => {
  test.each(['kill', 'detach', 'drop'])(
    'opened and ended by %s several times leave nothing behind',
    async (how) => {
      const target = await startTerminalRelay({
        tmux,
        env: how === 'kill' ? {} : { RELAY_TERMINAL_GRACE_SECONDS: '0' },
      });
      cleanup.push(() => target.stop());
      let { clients, tokens } = await sockets(target);
      const count = () => ({
        descriptors: descriptors().length,
        terminals: terminalDescriptors(),
        children: children().length,
        programs: processesWith('HOME', target.agentHome).length,
        clients: tmux ? tmuxClients(target) : 0,
      });
      // Shells kept by tmux are meant to stay, and its server with them.
      const left = tmux && how !== 'kill' ? SHELLS + 1 : 0;
      const before = count();
      let first = before;
      for (let round = 0; round < ROUNDS; round++) {
        expect(new Set(await openAll(clients, `r${how === 'kill' ? round : 0}`))).toEqual(
          new Set(['terminal.attached']),
        );
        expect(terminalDescriptors()).toBe(before.terminals + SHELLS);
        if (how === 'drop') {
          for (const client of clients) client.terminate();
          clients = [];
        } else {
          for (const client of clients) {
            const message = how === 'kill' ? 'terminal.kill' : 'terminal.detach';
            for (let tab = 0; tab < PER_SOCKET; tab++) client.send('terminal', message, {});
            for (let tab = 0; tab < PER_SOCKET; tab++) await client.next({ type: 'terminal.detached' });
          }
        }
        const { terminals, children } = before;
        const nothing = { terminals, children, programs: left, clients: 0 };
        await vi.waitFor(() => expect(count()).toMatchObject(nothing));
        if (how === 'drop') {
          for (const token of tokens)
            for (let at = 0; at < PER_DEVICE; at++) clients.push(await reconnect(target, token));
        }
        // Sockets and the like of the first round stay, so only growth counts.
        if (round === 0) first = count();
        const most = first.descriptors + 2;
        await vi.waitFor(() => expect(count().descriptors).toBeLessThanOrEqual(most));
      }
      if (process.env.LEAK_ROUNDS !== undefined) {
        const counts = JSON.stringify({ before, afterOne: first, [`after${ROUNDS}`]: count() });
        process.stderr.write(`64 shells, ${how}, tmux ${tmux}: ${counts}\n`);
      }
      for (const client of clients) client.terminate();
    },
    80_000 * ROUNDS,
  );
});

describe('limit of shells per relay (contract 02 §8)', () => {
  test('is 64; parked shells make room, the longest parked first', async () => {
    const target = await startTerminalRelay();
    cleanup.push(() => target.stop());
    const { clients } = await sockets(target);
    await openAll(clients, 'r');
    const { client: late } = await pairTerminal(target);
    late.send('terminal', 'terminal.attach', { session_name: 'late' }, 'late');
    expect(await late.next({ channel: 'terminal', id: 'late' })).toMatchObject({
      type: 'terminal.error',
      payload: { error: 'session_limit', session_name: 'late' },
    });
    const [first, second] = clients as [Client, Client];
    for (const [client, name] of [
      [first, 'r-0-0'],
      [second, 'r-1-0'],
    ] as const) {
      client.send('terminal', 'terminal.detach', { session_name: name }, 'd');
      await client.next({ id: 'd' });
    }
    late.send('terminal', 'terminal.attach', { session_name: 'late' }, 'again');
    expect((await late.next({ channel: 'terminal', id: 'again' })).type).toBe('terminal.attached');
    first.send('terminal', 'terminal.list', {}, 'l');
    const rows = (await first.next({ id: 'l' })).payload.sessions as { name: string; live: boolean }[];
    expect(rows.filter(({ live }) => !live).map(({ name }) => name)).toEqual(['r-1-0']);
  });
});

test('no process of these tests stays behind as a zombie', async () => {
  await vi.waitFor(() => expect(children().filter((line) => line.startsWith('Z'))).toEqual([]));
});
