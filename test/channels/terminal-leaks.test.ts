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

/** Sockets of several devices: enough for every shell there may be. */
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

const ptyClients = (target: { tmuxRun(...args: string[]): string }): number => {
  try {
    return target.tmuxRun('list-clients').trim().split('\n').filter(Boolean).length;
  } catch {
    return 0;
  }
};

describe.each(hasProgram('tmux') ? [false, true] : [false])('64 shells, tmux: %s', (tmux) => {
  test.each(['kill', 'detach', 'drop'])(
    'opened and ended by %s several times leave nothing',
    async (how) => {
      const target = await startTerminalRelay({
        tmux,
        env: how === 'kill' ? {} : { RELAY_TERMINAL_GRACE_SECONDS: '0' },
      });
      cleanup.push(() => target.stop());
      const rounds = 3;
      let { clients, tokens } = await sockets(target);
      const before = { fds: 0, terminals: terminalDescriptors() };
      for (let round = 0; round < rounds; round++) {
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
        await vi.waitFor(() => expect(terminalDescriptors()).toBe(before.terminals), { timeout: 15_000 });
        if (tmux) await vi.waitFor(() => expect(ptyClients(target)).toBe(0), { timeout: 15_000 });
        if (!tmux || how === 'kill') {
          await vi.waitFor(() => expect(processesWith('HOME', target.agentHome)).toEqual([]), { timeout: 15_000 });
        }
        if (how === 'drop') {
          for (const token of tokens)
            for (let at = 0; at < PER_DEVICE; at++) clients.push(await reconnect(target, token));
        }
        // Sockets and the like of the first round stay: only growth counts.
        const open = descriptors().length;
        if (round === 0) before.fds = open;
        else
          await vi.waitFor(() => expect(descriptors().length).toBeLessThanOrEqual(before.fds + 2), { timeout: 10_000 });
      }
      for (const client of clients) client.terminate();
    },
    120_000,
  );
});

describe('the cap of the relay', () => {
  test('is 64 shells; parked ones make room, the one parked for longest first', async () => {
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
  }, 60_000);
});

test('no process of these tests is left behind as a zombie', () => {
  const children = execFileSync('ps', ['-o', 'stat=,comm=', '--ppid', String(process.pid)], { encoding: 'utf8' });
  expect(children.split('\n').filter((line) => line.startsWith('Z'))).toEqual([]);
});
