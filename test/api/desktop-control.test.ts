import { describe, expect, it } from 'vitest';
import { clockedTargets } from '../support/built-relay.ts';
import { type DesktopClient, loseGrant, reconnect, startDesktop } from '../support/desktop.ts';
import { bearer, describeMatrix, type Paired, pair, type Target } from '../support/relay.ts';
import { call, health } from './desktop-support.ts';

const TOOL = 'desktop_computer_action';

/** Acts on a desktop in a run of an agent; gives the control session that the desktop saw. */
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
  it('go with computer tools of a run, and keep their id', async () => {
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

  it('not without a run, a requester or a computer tool; labels are cleaned and cut', async () => {
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

  it('another run ends the one before, and the desktop hears it first', async () => {
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

  it('ends with the session of its requester, and with the grant of its target', async () => {
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

  it('goes silently with its target', async () => {
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
});

describe('time and number of control sessions (contract 07 §2.4)', () => {
  const start = clockedTargets();

  it('900 s without a command end it; every command begins them anew', async () => {
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

  it('the 257th ends the one not used for longest', async () => {
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
