import { execFileSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { createStores } from '../../storage/index.ts';
import { cleanups } from '../support/built-relay.ts';
import type { Client } from '../support/client.ts';
import { HeldState } from '../support/held-state.ts';
import { authenticate, bearer, type Paired, pair, type Target } from '../support/relay.ts';
import {
  type Attachment,
  attach,
  exists,
  hasProgram,
  pairTerminal,
  processesWith,
  reconnect,
  startTerminalRelay,
  type TerminalTarget,
} from '../support/terminal.ts';

const cleanup = cleanups();

async function start(options: Parameters<typeof startTerminalRelay>[0]): Promise<TerminalTarget> {
  const target = await startTerminalRelay(options);
  cleanup.push(() => target.stop());
  return target;
}

/** Ways of starting a program that is to outlive its shell. `MARK` is in the environment of each. */
const LASTING = [
  'sleep 1000 &',
  'nohup sleep 1000 >/dev/null 2>&1 &',
  'setsid sleep 1000 </dev/null >/dev/null 2>&1 &',
  '(trap "" HUP TERM INT; setsid -f sleep 1000 </dev/null >/dev/null 2>&1)',
  // A daemon: it has left the session, the group and its parent.
  '(setsid -f bash -c "sleep 1000 & sleep 1000 & wait" </dev/null >/dev/null 2>&1 &)',
  'bash -c "kill -STOP \\$\\$" &',
];
const LASTING_COUNT = LASTING.length + 2;

/** Starts all of them in a shell; returns a function that lists those which run. */
async function startLasting(shell: Attachment): Promise<() => number[]> {
  const mark = crypto.randomUUID();
  await shell.shows('ready>');
  shell.type(`export MARK=${mark}; ${LASTING.map((line) => (line.endsWith('&') ? line : `${line};`)).join(' ')}\r`);
  const running = () => processesWith('MARK', mark);
  await vi.waitFor(() => expect(running()).toHaveLength(LASTING_COUNT));
  // Whatever a test finds out, nothing stays behind.
  cleanup.push(() => {
    for (const pid of running()) process.kill(pid, 'SIGKILL');
  });
  return running;
}

const revoke = (target: Target, { prefix }: Paired, { by, query = '' }: { by?: Paired; query?: string } = {}) =>
  target.fetch(`/sessions/${prefix}${query}`, {
    method: 'DELETE',
    headers: by ? bearer(by.token) : { 'x-svc-operator': '1' },
  });

const closed = (client: Client) => vi.waitFor(() => client.closed());

const withTmux = hasProgram('tmux') ? [false, true] : [false];
if (!hasProgram('tmux'))
  process.stderr.write('SKIPPED: no tmux here, shells of revoked devices are tested without it\n');

describe.each(withTmux)('a revoked device, tmux: %s (contract 02 §1.5)', (tmux) => {
  test('leaves nothing running: its shells end with everything that they have started', async () => {
    const target = await start({ tmux });
    const device = await pairTerminal(target);
    const shell = await attach(device.client, 'main');
    const running = await startLasting(shell);
    const detached = await attach(device.client, 'second');
    const runningDetached = await startLasting(detached);
    device.client.send('terminal', 'terminal.detach', { session_name: 'second' }, 'd');
    await device.client.next({ id: 'd' });

    const answer = await revoke(target, device);
    expect([answer.status, await answer.json()]).toEqual([
      200,
      { ok: true, revoked: device.prefix, revoked_self: false, shells_ended: 2 },
    ]);
    expect([...running(), ...runningDetached()]).toEqual([]);
    expect(await device.client.closed()).toMatchObject({ code: 4401 });
    await vi.waitFor(() => expect(exists(shell.facts.pid)).toBe(false));
    if (tmux) expect(() => target.tmuxRun('list-sessions')).toThrow();
    expect(target.log.join('\n')).not.toContain(' [ERROR] ');
    expect(target.log.join('\n')).toMatch(/its shells have ended \(shells: 2, processes: \d+\)/);
  });

  test('ends its shells also when it revokes itself', async () => {
    const target = await start({ tmux });
    const device = await pairTerminal(target);
    const running = await startLasting(await attach(device.client, 'main'));
    const answer = await revoke(target, device, { by: device });
    expect(await answer.json()).toMatchObject({ revoked_self: true });
    await vi.waitFor(() => expect(running()).toEqual([]));
    await closed(device.client);
  });

  test('takes no shell of another device with it', async () => {
    const target = await start({ tmux });
    const device = await pairTerminal(target);
    const other = await pairTerminal(target);
    const own = await startLasting(await attach(device.client, 'own'));
    const others = await startLasting(await attach(other.client, 'others'));
    expect((await revoke(target, device, { by: other })).status).toBe(200);
    expect(own()).toEqual([]);
    expect(others()).toHaveLength(LASTING_COUNT);
  });

  test('keeps its shells over a refresh, and they end with the family', async () => {
    const target = await start({ tmux });
    const device = await pairTerminal(target, {}, 'tablet');
    const running = await startLasting(await attach(device.client, 'main'));
    const { client, frame } = await authenticate(target, {
      session_token: 'gone',
      refresh_token: device.refreshToken,
      device_id: 'tablet',
    });
    expect(frame.type).toBe('auth.ok');
    const again = await attach(client, 'main');
    expect(again.facts.reattach).toBe(true);
    expect(running()).toHaveLength(LASTING_COUNT);
    const prefix = String(frame.payload.session_token).slice(0, 8);
    expect((await revoke(target, { ...device, prefix })).status).toBe(200);
    expect(running()).toEqual([]);
  });
});

describe.each(withTmux)('a device that loses its terminal grant, tmux: %s (contract 01 §6.4, 02 §1.5)', (tmux) => {
  const reduce = async (target: Target, { prefix }: Paired, body: object) => {
    const request = { method: 'PATCH', headers: { 'x-svc-operator': '1' }, body: JSON.stringify(body) };
    const answer = await target.operator(`/sessions/${prefix}`, request);
    return { status: answer.status, body: await answer.json() };
  };

  test.each([
    ['its grant', { grants: { terminal: 1 } }],
    ['its session', { ttl_seconds: 1 }],
  ])('leaves nothing running when a reduction ends %s', async (_, body) => {
    const target = await start({ tmux });
    const device = await pairTerminal(target);
    const running = await startLasting(await attach(device.client, 'main'));
    expect(await reduce(target, device, body)).toMatchObject({ status: 200, body: { ok: true, shells_ended: 1 } });
    expect(running()).toEqual([]);
    if (tmux) expect(() => target.tmuxRun('list-sessions')).toThrow();
  });

  test('hears of the shells that ended before a slow disk had the reduction', async () => {
    const disk = new HeldState();
    const target = await start({ tmux, withStores: () => createStores('node', disk.open()) });
    const device = await pairTerminal(target);
    const shell = await attach(device.client, 'main');
    const running = await startLasting(shell);
    cleanup.push(() => disk.release());
    disk.hold();
    const answer = reduce(target, device, { without: ['terminal'] });
    await vi.waitFor(() => expect([...running(), exists(shell.facts.pid)]).toEqual([false]));
    expect(disk.held).toBeGreaterThan(0);
    disk.release();
    expect(await answer).toMatchObject({ status: 200, body: { shells_ended: 1 } });
  });

  test('leaves nothing running when a shorter grant runs out', async () => {
    const target = await start({ tmux });
    const device = await pairTerminal(target);
    const running = await startLasting(await attach(device.client, 'main'));
    const answer = await reduce(target, device, { grants: { terminal: 6 } });
    expect(answer).toMatchObject({ status: 200, body: { shells_ended: 0 } });
    expect(running()).toHaveLength(LASTING_COUNT);
    await vi.waitFor(() => expect(running()).toEqual([]));
  });

  test('keeps its shells when another grant is reduced', async () => {
    const target = await start({ tmux });
    const device = await pairTerminal(target);
    const running = await startLasting(await attach(device.client, 'main'));
    const answer = await reduce(target, device, { grants: { bridge: 1 } });
    expect(answer).toMatchObject({ status: 200, body: { shells_ended: 0 } });
    expect(running()).toHaveLength(LASTING_COUNT);
  });
});

describe.skipIf(!hasProgram('tmux'))('a revoked device with shells in tmux (contract 02 §1.5)', () => {
  test('leaves them and what runs in them with keep_shells=1', async () => {
    const target = await start({ tmux: true });
    const device = await pairTerminal(target);
    const running = await startLasting(await attach(device.client, 'main'));
    expect((await revoke(target, device, { query: '?keep_shells=1' })).status).toBe(200);
    expect(await device.client.closed()).toMatchObject({ code: 4401 });
    expect(running()).toHaveLength(LASTING_COUNT);
    const next = await pairTerminal(target);
    expect((await attach(next.client, 'main')).facts.reattach).toBe(true);
    // The shell is not the next device's alone.
    expect((await revoke(target, next)).status).toBe(200);
    expect(running()).toHaveLength(LASTING_COUNT);
  });

  test('leaves those that another device has attached, even once', async () => {
    const target = await start({ tmux: true });
    const device = await pairTerminal(target);
    const other = await pairTerminal(target);
    const running = await startLasting(await attach(device.client, 'shared'));
    // Before it has drawn something, tmux may not have noted who it is.
    await (await attach(other.client, 'shared')).has(/\S/);
    other.client.send('terminal', 'terminal.detach', { session_name: 'shared' }, 'd');
    await other.client.next({ id: 'd' });
    expect((await revoke(target, device)).status).toBe(200);
    expect(running()).toHaveLength(LASTING_COUNT);
    expect((await attach(other.client, 'shared')).facts.reattach).toBe(true);
  });

  test('keeps them when it is paired anew, and they end with the new pairing', async () => {
    const target = await start({ tmux: true });
    const first = await pairTerminal(target, {}, 'tablet');
    const attached = await startLasting(await attach(first.client, 'attached'));
    const left = await startLasting(await attach(first.client, 'left'));
    const second = await pairTerminal(target, {}, 'tablet');
    expect(await first.client.closed()).toMatchObject({ code: 4401 });
    expect((await attach(second.client, 'attached')).facts.reattach).toBe(true);
    expect([attached().length, left().length]).toEqual([LASTING_COUNT, LASTING_COUNT]);
    expect((await revoke(target, second)).status).toBe(200);
    expect([...attached(), ...left()]).toEqual([]);
  });

  test('ends them under whatever name they have now, and programs of windows that are closed', async () => {
    const target = await start({ tmux: true });
    const device = await pairTerminal(target);
    const running = await startLasting(await attach(device.client, 'main'));
    target.tmuxRun('new-window', '-t', 'svc-main', 'sleep 1000');
    target.tmuxRun('kill-window', '-t', 'svc-main:0');
    await vi.waitFor(() => expect(running().length).toBeLessThan(LASTING_COUNT));
    expect(running().length).toBeGreaterThan(0);
    target.tmuxRun('rename-session', '-t', 'svc-main', 'hidden');
    expect((await revoke(target, device)).status).toBe(200);
    expect(running()).toEqual([]);
    expect(() => target.tmuxRun('list-sessions')).toThrow();
  });

  test('ends a shell that is just starting', async () => {
    const target = await start({ tmux: true });
    for (let round = 0; round < 3; round++) {
      const device = await pairTerminal(target);
      device.client.send('terminal', 'terminal.attach', { session_name: `x${round}` }, 'a');
      if (round > 0) await device.client.next({ id: 'a' });
      expect((await revoke(target, device)).status).toBe(200);
    }
    await vi.waitFor(() => expect(processesWith('HOME', target.agentHome)).toEqual([]));
  });
});

describe.skipIf(!hasProgram('tmux'))('a tmux that fails (contract 01 §6.7, 02 §1.5)', () => {
  /** A relay whose tmux works until `fail()`, and again after `mend()`. */
  async function startBreakable() {
    const programs = await mkdtemp(join(tmpdir(), 'svc-relay-programs-'));
    cleanup.push(() => rm(programs, { recursive: true, force: true }));
    const real = execFileSync('which', ['tmux'], { encoding: 'utf8' }).trim();
    const tmux = (text: string) => writeFile(join(programs, 'tmux'), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
    const mend = () => tmux(`exec ${real} "$@"`);
    await mend();
    return { target: await start({ tmux: true, programs }), mend, fail: () => tmux('exit 1') };
  }

  test.each([
    ['DELETE', undefined],
    ['PATCH', { grants: { terminal: 1 } }],
  ])('%s says that shells may go on, and the relay ends them as soon as it can', async (method, body) => {
    const { target, mend, fail } = await startBreakable();
    const device = await pairTerminal(target);
    const running = await startLasting(await attach(device.client, 'main'));
    await fail();
    const request = { method, headers: { 'x-svc-operator': '1' }, ...(body && { body: JSON.stringify(body) }) };
    const answer = await target.operator(`/sessions/${device.prefix}`, request);
    expect([answer.status, await answer.json()]).toEqual([
      503,
      {
        ok: false,
        error: expect.stringContaining('its shells may go on'),
        applied: true,
        shells_ended: 0,
        shells_left: true,
      },
    ]);
    expect(running()).toHaveLength(LASTING_COUNT);
    await mend();
    await vi.waitFor(() => expect(running()).toEqual([]));
    expect(() => target.tmuxRun('list-sessions')).toThrow();
  });
});

describe.skipIf(!hasProgram('tmux'))('two relays of one user (contract 02 §3.5)', () => {
  test('do not see, attach or end each other’s shells', async () => {
    const tmuxFolder = await mkdtemp(join(tmpdir(), 'svc-relay-tmux-'));
    cleanup.push(() => rm(tmuxFolder, { recursive: true, force: true }));
    const targets = [await start({ tmux: true, tmuxFolder }), await start({ tmux: true, tmuxFolder })] as const;
    const [one, two] = [await pairTerminal(targets[0]), await pairTerminal(targets[1])];
    const shell = await attach(one.client, 'main');
    await shell.shows('ready>');
    two.client.send('terminal', 'terminal.list', {}, 'l');
    expect((await two.client.next({ id: 'l' })).payload.sessions).toEqual([]);
    two.client.send('terminal', 'terminal.kill', { session_name: 'main' }, 'k');
    expect((await two.client.next({ id: 'k' })).type).toBe('terminal.error');
    const other = await attach(two.client, 'main');
    expect(other.facts.reattach).toBe(false);
    expect((await revoke(targets[1], two)).status).toBe(200);
    shell.type('echo still$((1))here\r');
    await shell.shows('still1here');
    expect((await attach(await reconnect(targets[0], one.token), 'main')).facts.reattach).toBe(true);
  });
});

test('a device without a shell is revoked as before, also by a device', async () => {
  const target = await start({ tmux: false });
  const [one, two] = [await pair(target), await pair(target)];
  expect((await revoke(target, one, { by: two })).status).toBe(200);
  expect(target.log.join('\n')).not.toContain('shells');
});
