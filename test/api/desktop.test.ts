import { expect, it } from 'vitest';
import { clockedTargets } from '../support/built-relay.ts';
import {
  call,
  type DesktopClient,
  echo,
  health,
  loseGrant,
  newest,
  reconnect,
  refusalOf,
  silent,
  startDesktop,
  type ToolCommand,
} from '../support/desktop.ts';
import {
  authenticate,
  bearer,
  describeMatrix,
  describeOnNode,
  type Paired,
  pair,
  type Target,
} from '../support/relay.ts';

describeMatrix('faults on the desktop channel (contract 07 §2.3)', (start, runtime) => {
  it('commands of a desktop that vanishes fail with 502 at once, those of others go on', async () => {
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

  it('repeated, foreign and invalid answers are ignored', async () => {
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
    const replies = desktop.client.frames.filter(({ type }) => type !== 'desktop.command');
    expect(replies, 'none of these is answered').toEqual([]);
  });

  it('64 commands may be in flight and answered in any order; the 65th is refused', async () => {
    const target = await start();
    const desktop = await startDesktop(target, { script: silent });
    const asked = Array.from({ length: 64 }, (_, n) => call(target, desktop, 'desktop_terminal', { n }));
    await desktop.received(63);
    expect(await refusalOf(call(target, desktop, 'desktop_terminal'))).toEqual([503, 'busy']);
    const other = await startDesktop(target, { device: { device_name: 'Other' } });
    expect((await call(target, desktop, 'desktop_terminal', { device: 'other' })).status).toBe(200);
    expect(other.commands).toHaveLength(1);
    // Concurrent requests may overtake each other: this is the first to arrive.
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

  it('revoking a desktop or its grant fails its commands with 502 at once', async () => {
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

  // As on the bridge, the local edge runtime does not report that a caller left.
  it.skipIf(runtime === 'edge')('a command whose caller vanishes is settled', async () => {
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

  // A Durable Object is evicted without notice; it has no shutdown.
  it.skipIf(runtime === 'edge')('shutdown fails commands with 502 before the listener closes', async () => {
    const target = await start();
    const desktop = await startDesktop(target, { script: silent });
    const asked = call(target, desktop, 'desktop_terminal');
    await desktop.received();
    const stopped = target.relay?.stop();
    expect(await refusalOf(asked)).toEqual([502, 'desktop_disconnected']);
    await stopped;
  });
});

describeOnNode('timeouts of desktop tools (contract 07 §2.1, 2.3)', () => {
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

  it('23.3.4: a desktop that asks its owner has 150 s, and never less than the tool', async () => {
    const { clock, target } = await start();
    const advertised_tools = ['desktop_terminal', 'desktop_computer_action'];
    const desktop = await startDesktop(target, { script: silent, status: { advertised_tools } });
    const asked = call(target, desktop, 'desktop_terminal');
    const first = await desktop.received();
    const acting = call(target, desktop, 'desktop_computer_action');
    const second = await desktop.received(1);
    for (const { request_id } of [first, second]) {
      desktop.client.send('desktop', 'desktop.command.waiting', { request_id, for: 'owner' });
      const { payload } = await desktop.client.next({ channel: 'desktop', type: 'command.waiting' });
      expect(payload).toEqual({ request_id, for: 'owner', timeout_ms: 150_000 });
    }
    for (let at = 0; at < 150; at += 10) {
      await desktop.settled();
      clock.advance(10_000);
    }
    expect(await refusalOf(asked)).toEqual([504, 'timeout']);
    expect((await health(target, desktop)).pending_commands).toBe(1);
    for (let at = 150; at < 180; at += 10) {
      await desktop.settled();
      clock.advance(10_000);
    }
    expect(await refusalOf(acting)).toEqual([504, 'timeout']);
  });

  it('a settled command leaves no timer behind', async () => {
    const { clock, target } = await start();
    const desktop = await startDesktop(target);
    // The limiter, too, is written within a second.
    clock.advance(1_000);
    const before = clock.pending;
    for (let round = 0; round < 5; round++) expect((await call(target, desktop, 'desktop_terminal')).status).toBe(200);
    // So is the activity.
    clock.advance(1_000);
    expect(clock.pending).toBe(before);
  });

  it('an expired grant removes the desktop, and refuses the caller', async () => {
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

const TOOL = 'desktop_computer_action';

/** Calls a computer tool as the run of an agent. Returns the control session that the desktop saw. */
async function act(
  target: Target,
  caller: Paired,
  desktop: DesktopClient,
  { run, chat, profile, tool = TOOL }: { run?: string; chat?: string; profile?: string; tool?: string },
): Promise<Record<string, unknown> | undefined> {
  const headers = {
    ...bearer(caller.token),
    ...(run === undefined ? {} : { 'x-svc-relay-run-id': run }),
    ...(chat === undefined ? {} : { 'x-svc-relay-chat-session': chat }),
    ...(profile === undefined ? {} : { 'x-svc-relay-profile': profile }),
  };
  const response = await call(target, { headers }, tool, { device: desktop.id });
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  return desktop.commands.at(-1)?.control_session;
}

const endOf = async (desktop: DesktopClient) =>
  (await desktop.client.next({ channel: 'desktop', type: 'desktop.control_session_end' })).payload;
const ends = (desktop: DesktopClient): number =>
  desktop.client.frames.filter(({ type }) => type === 'desktop.control_session_end').length;

describeMatrix('control sessions (contract 07 §2.4)', (start) => {
  it('accompany computer tools of a run and keep their id', async () => {
    const target = await start();
    const desktop = await startDesktop(target);
    const caller = await pair(target, { device: { device_id: 'agent-1' } });
    const first = await act(target, caller, desktop, { run: 'r1', chat: 'c1', profile: 'p1' });
    expect(first).toEqual({
      version: 1,
      id: expect.stringMatching(/^control-[0-9a-f]{8}-/),
      request_id: desktop.commands[0]?.request_id,
      requester_device_id: 'agent-1',
      target_device_id: desktop.id,
      chat_session_id: 'c1',
      run_id: 'r1',
      profile: 'p1',
    });
    const again = await act(target, caller, desktop, { run: 'r1', chat: 'c1', profile: 'p1' });
    expect(again).toEqual({ ...first, request_id: desktop.commands[1]?.request_id });
    const bare = await act(target, caller, desktop, { run: 'r1' });
    expect(Object.keys(bare ?? {})).not.toContain('profile');
    expect(Object.keys(bare ?? {})).not.toContain('chat_session_id');
    const others = [
      bare,
      await act(target, caller, desktop, { run: 'r1', chat: 'c2', profile: 'p1' }),
      await act(target, caller, desktop, { run: 'r1', chat: 'c1', profile: 'p2' }),
      await act(target, await pair(target), desktop, { run: 'r1', chat: 'c1', profile: 'p1' }),
    ];
    expect(new Set([first, ...others].map((session) => session?.id)).size).toBe(5);
    expect(ends(desktop)).toBe(0);
  });

  it('a session that presents the id of the requester does not inherit them', async () => {
    const target = await start();
    const desktop = await startDesktop(target);
    const caller = await pair(target, { device: { device_id: 'agent-1' } });
    const approved = await act(target, caller, desktop, { run: 'r1', chat: 'c1' });
    for (const own of ['thief', 'unknown']) {
      const thief = await pair(target, { device: { device_id: own } });
      await authenticate(target, { session_token: thief.token, device_id: 'agent-1' });
      const taken = await act(target, thief, desktop, { run: 'r1', chat: 'c1' });
      expect(taken?.id, own).not.toBe(approved?.id);
    }
    expect(ends(desktop), 'the session of the requester goes on').toBe(0);
    expect((await act(target, caller, desktop, { run: 'r1', chat: 'c1' }))?.id).toBe(approved?.id);
  });

  it('need a run, a requester and a computer tool; labels are cleaned and cut', async () => {
    const target = await start();
    const desktop = await startDesktop(target);
    const caller = await pair(target);
    expect(await act(target, caller, desktop, {})).toBeUndefined();
    expect(await act(target, caller, desktop, { run: ' ' })).toBeUndefined();
    expect(await act(target, caller, desktop, { run: 'r1', tool: 'desktop_terminal' })).toBeUndefined();
    const nobody = await pair(target, { device: { device_id: 'unknown' } });
    expect(await act(target, nobody, desktop, { run: 'r1' })).toBeUndefined();
    const cut = await act(target, caller, desktop, { run: `r\t${'r'.repeat(300)}`, chat: ' a b ' });
    expect(cut).toMatchObject({ run_id: 'r'.repeat(256), chat_session_id: 'a b' });
  });

  it('another run ends the previous one, and the desktop hears of it first', async () => {
    const target = await start();
    const desktop = await startDesktop(target);
    const caller = await pair(target);
    const first = await act(target, caller, desktop, { run: 'r1', chat: 'c1' });
    const second = await act(target, caller, desktop, { run: 'r2', chat: 'c1' });
    expect(second?.id).not.toBe(first?.id);
    const order = desktop.client.frames.filter(({ channel }) => channel === 'desktop').map(({ type }) => type);
    expect(order).toEqual(['desktop.command', 'desktop.control_session_end', 'desktop.command']);
    expect(await endOf(desktop)).toEqual({
      version: 1,
      id: first?.id,
      target_device_id: desktop.id,
      reason: 'requester run changed',
    });
  });

  it('end with the session of the requester and with the grant of the target', async () => {
    const target = await start();
    const desktop = await startDesktop(target);
    const [one, two] = [await pair(target), await pair(target)];
    const first = await act(target, one, desktop, { run: 'r1' });
    const second = await act(target, two, desktop, { run: 'r1' });
    await target.fetch(`/sessions/${one.prefix}`, { method: 'DELETE', headers: bearer(two.token) });
    expect(await endOf(desktop)).toMatchObject({ id: first?.id, reason: 'requester session ended' });
    await loseGrant(target, desktop);
    expect(await endOf(desktop)).toMatchObject({ id: second?.id, reason: 'desktop grant ended' });
    expect(ends(desktop)).toBe(0);
  });

  it('go on when the requester refreshes its session', async () => {
    const target = await start();
    const desktop = await startDesktop(target);
    const caller = await pair(target, { device: { device_id: 'agent-1' } });
    const first = await act(target, caller, desktop, { run: 'r1' });
    const { refreshToken: refresh_token } = caller;
    const { frame } = await authenticate(target, { refresh_token, device_id: 'agent-1' });
    const token = String(frame.payload.session_token);
    expect(token).not.toBe(caller.token);
    expect((await act(target, { ...caller, token }, desktop, { run: 'r1' }))?.id).toBe(first?.id);
    expect(ends(desktop)).toBe(0);
  });

  it('end silently with their target', async () => {
    const target = await start();
    const desktop = await startDesktop(target);
    const caller = await pair(target);
    const first = await act(target, caller, desktop, { run: 'r1' });
    desktop.client.close();
    await expect.poll(async () => (await health(target, desktop)).connected).toBe(false);
    const back = await reconnect(target, desktop);
    const second = await act(target, caller, back, { run: 'r1' });
    expect(second?.id).not.toBe(first?.id);
    expect(ends(back)).toBe(0);
  });

  it('§2.2: a desktop with the id or the name of another one gets none of its commands', async () => {
    const target = await start();
    const victim = await startDesktop(target, { device: { device_id: 'victim-pc', device_name: 'Tower' } });
    const claiming = await startDesktop(target, {
      device: { device_id: 'unknown', device_name: 'Thief' },
      status: { device_id: 'victim-pc' },
    });
    const called = await startDesktop(target, { device: { device_id: 'thief', device_name: 'victim-pc' } });
    const run = async () => (await call(target, called, 'desktop_terminal', { device: 'victim-pc' })).status;
    expect(await run()).toBe(200);
    expect(victim.commands).toHaveLength(1);
    victim.client.close();
    await expect.poll(async () => (await health(target, called)).clients.length).toBe(2);
    expect(await refusalOf(call(target, called, 'desktop_terminal', { device: 'victim-pc' }))).toEqual([
      502,
      'unknown_device',
    ]);
    expect([...claiming.commands, ...called.commands]).toEqual([]);
  });
});

describeOnNode('limits of control sessions (contract 07 §2.4)', () => {
  const start = clockedTargets();

  it('end after 900 s without a command; each command restarts the period', async () => {
    const { clock, target } = await start();
    const desktop = await startDesktop(target);
    const caller = await pair(target);
    const first = await act(target, caller, desktop, { run: 'r1' });
    clock.advance(899_999);
    expect((await act(target, caller, desktop, { run: 'r1' }))?.id).toBe(first?.id);
    clock.advance(899_999);
    await desktop.settled();
    expect(ends(desktop)).toBe(0);
    clock.advance(1);
    const end = await endOf(desktop);
    expect(end).toMatchObject({ id: first?.id, reason: 'control session idle timeout' });
    expect((await act(target, caller, desktop, { run: 'r1' }))?.id).not.toBe(first?.id);
  });

  it('the 257th ends the least recently used', async () => {
    const { clock, target } = await start();
    const desktop = await startDesktop(target);
    const caller = await pair(target);
    const ids: unknown[] = [];
    for (let at = 0; at < 256; at++) ids.push((await act(target, caller, desktop, { run: 'r', chat: `c${at}` }))?.id);
    clock.advance(1);
    expect((await act(target, caller, desktop, { run: 'r', chat: 'c0' }))?.id).toBe(ids[0]);
    expect(ends(desktop)).toBe(0);
    await act(target, caller, desktop, { run: 'r', chat: 'one more' });
    expect(await endOf(desktop)).toMatchObject({ id: ids[1], reason: 'control session capacity eviction' });
    await act(target, caller, desktop, { run: 'r', chat: 'and another' });
    expect(await endOf(desktop)).toMatchObject({ id: ids[2], reason: 'control session capacity eviction' });
  });
});
