import { describe, expect, it } from 'vitest';
import { clockedTargets } from '../support/built-relay.ts';
import { echo, loseGrant, silent, startDesktop, type ToolCommand } from '../support/desktop.ts';
import { bearer, describeMatrix, pair } from '../support/relay.ts';
import { call, health, newest, refusalOf } from './desktop-support.ts';

describeMatrix('faults of desktop tools (contract 07 §2.3)', (start, runtime) => {
  it('the desktop vanishes: 502 at once, and only for its own commands', async () => {
    const target = await start();
    const one = await startDesktop(target, { script: silent });
    const two = await startDesktop(target, { script: silent });
    const lost = call(target, two, 'desktop_terminal', { device: one.id });
    await one.received();
    const kept = call(target, two, 'desktop_terminal', { device: two.id });
    await two.received();
    expect((await health(target, two)).pending_commands).toBe(2);
    one.client.terminate();
    expect(await refusalOf(lost)).toEqual([502, 'desktop_disconnected']);
    two.answer(await two.received(), { ok: true, result: 'kept' });
    expect((await kept).status).toBe(200);
    expect(await health(target, two)).toMatchObject({ pending_commands: 0 });
    const { recent_commands } = await health(target, two);
    expect(recent_commands[1]).toMatchObject({ decision: 'error', response_status: null, error: 'PC disconnected' });
  });

  it('double, foreign and senseless answers are ignored', async () => {
    const target = await start();
    const desktop = await startDesktop(target, { script: silent });
    const thief = await startDesktop(target, { script: silent });
    const asked = call(target, desktop, 'desktop_terminal', { device: desktop.id });
    const command = await desktop.received();
    thief.answer(command, { ok: true, result: 'stolen' });
    await thief.settled();
    const { request_id } = command;
    for (const payload of [{}, { request_id: 5 }, { request_id: 'none', ok: true }, [request_id], 'text', 7]) {
      desktop.client.send('desktop', 'desktop.response', payload);
    }
    desktop.client.send('desktop', 'desktop.command', { request_id, tool: 'desktop_terminal', args: {} });
    desktop.client.send('desktop', 'desktop.unknown', { request_id });
    await desktop.settled();
    desktop.client.send('desktop', 'response', { request_id, ok: true, result: 1 });
    desktop.answer(command, { ok: false, result: 2 });
    expect(await (await asked).json()).toMatchObject({ ok: true, result: 1 });
    await desktop.settled();
    expect(await newest(target, desktop)).toMatchObject({ decision: 'executed', result_summary: '1' });
    const words = desktop.client.frames.filter(({ type }) => type !== 'desktop.command');
    expect(words, 'nothing of that is answered').toEqual([]);
  });

  it('any number in flight, answered in any order; the 65th is refused', async () => {
    const target = await start();
    const desktop = await startDesktop(target, { script: silent });
    const asked = Array.from({ length: 64 }, (_, n) => call(target, desktop, 'desktop_terminal', { n }));
    await desktop.received(63);
    expect(await refusalOf(call(target, desktop, 'desktop_terminal'))).toEqual([503, 'busy']);
    const other = await startDesktop(target, { device: { device_name: 'Other' } });
    expect((await call(target, desktop, 'desktop_terminal', { device: 'other' })).status).toBe(200);
    expect(other.commands).toHaveLength(1);
    // The first to arrive: requests that run at once may overtake each other.
    const first = desktop.commands[0] as ToolCommand;
    desktop.answer(first, { ok: true, result: first.args.n });
    await desktop.settled();
    const more = call(target, desktop, 'desktop_terminal', { n: 64, device: desktop.id });
    await desktop.received(64);
    for (const command of [...desktop.commands].reverse())
      desktop.answer(command, { ok: true, result: command.args.n });
    const results = await Promise.all([...asked, more].map(async (response) => (await (await response).json()).result));
    expect(results).toEqual(Array.from({ length: 65 }, (_, n) => n));
    expect((await health(target, desktop)).pending_commands).toBe(0);
  });

  it('revoked or without its grant in flight: 502 at once', async () => {
    const target = await start();
    const caller = await pair(target);
    const headers = bearer(caller.token);
    const revoked = await startDesktop(target, { script: silent });
    const first = call(target, { headers }, 'desktop_terminal');
    await revoked.received();
    await target.fetch(`/sessions/${revoked.prefix}`, { method: 'DELETE', headers });
    expect(await refusalOf(first)).toEqual([502, 'desktop_disconnected']);
    expect(await refusalOf(call(target, { headers }, 'desktop_terminal'))).toEqual([502, 'no_desktop']);
    const reduced = await startDesktop(target, { script: silent });
    const second = call(target, { headers }, 'desktop_terminal');
    await reduced.received();
    await loseGrant(target, reduced);
    expect(await refusalOf(second)).toEqual([502, 'desktop_disconnected']);
    await reduced.settled();
    expect(await health(target, { headers })).toMatchObject({ connected: false, pending_commands: 0 });
  });

  // As on the bridge: the local edge runtime does not tell that a caller went.
  it.skipIf(runtime === 'edge')('the caller vanishes: nothing waits any more', async () => {
    const target = await start();
    const desktop = await startDesktop(target, { script: silent });
    const abort = new AbortController();
    const asked = call(target, desktop, 'desktop_terminal', {}, { signal: abort.signal });
    asked.catch(() => {});
    const command = await desktop.received();
    abort.abort();
    await expect.poll(async () => (await health(target, desktop)).pending_commands).toBe(0);
    desktop.answer(command, { ok: true });
    await desktop.settled();
    const record = { decision: 'error', error: 'caller disconnected', response_status: null };
    expect(await newest(target, desktop)).toMatchObject(record);
  });

  // An object is never stopped: it is put away.
  it.skipIf(runtime === 'edge')('the relay stops: 502, before the listener is gone', async () => {
    const target = await start();
    const desktop = await startDesktop(target, { script: silent });
    const asked = call(target, desktop, 'desktop_terminal');
    await desktop.received();
    const stopped = target.relay?.stop();
    expect(await refusalOf(asked)).toEqual([502, 'desktop_disconnected']);
    await stopped;
  });
});

describe('time in desktop tools (contract 07 §2.1, 2.3)', () => {
  const start = clockedTargets();

  it.each([
    ['desktop_terminal', 30],
    ['desktop_computer_action', 180],
    ['desktop_adb_push', 300],
    ['desktop_usb_run', 300],
    ['desktop_adbx', 30],
  ])('%s: 504 after %d s; a late answer changes nothing', async (tool, seconds) => {
    const { clock, target } = await start();
    const desktop = await startDesktop(target, { script: silent, status: { advertised_tools: [tool] } });
    const asked = call(target, desktop, tool);
    const command = await desktop.received();
    clock.advance(seconds * 1000 - 1);
    expect((await health(target, desktop)).pending_commands).toBe(1);
    clock.advance(1);
    expect(await refusalOf(asked)).toEqual([504, 'timeout']);
    desktop.answer(command, { ok: true });
    await desktop.settled();
    expect(await newest(target, desktop)).toMatchObject({ decision: 'timeout', response_status: null });
    desktop.script = echo;
    expect((await call(target, desktop, tool)).status).toBe(200);
  });

  it('a settled command leaves no timer behind', async () => {
    const { clock, target } = await start();
    const desktop = await startDesktop(target);
    const before = clock.pending;
    for (let round = 0; round < 5; round++) expect((await call(target, desktop, 'desktop_terminal')).status).toBe(200);
    expect(clock.pending).toBe(before);
  });

  it('a grant that runs out takes the desktop away, and the caller out', async () => {
    const { clock, target } = await start();
    const desktop = await startDesktop(target, { policy: { grants: { desktop: 600 } } });
    const caller = await pair(target);
    clock.advance(599_000);
    expect((await call(target, { headers: bearer(caller.token) }, 'desktop_terminal')).status).toBe(200);
    clock.advance(2_000);
    expect(await refusalOf(call(target, { headers: bearer(caller.token) }, 'desktop_terminal'))).toEqual([
      502,
      'no_desktop',
    ]);
    expect((await call(target, desktop, 'desktop_terminal')).status).toBe(403);
  });
});
