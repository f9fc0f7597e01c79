import { describe, expect, it, vi } from 'vitest';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { startDesktop } from '../support/desktop.ts';
import { startPhone } from '../support/phone.ts';
import { connectRaw, request } from '../support/raw-socket.ts';
import { authenticate, bearer, type Paired, pair, post } from '../support/relay.ts';

const pending = cleanups();

/** So long that memory is reserved for it, which shows that the guard has let its request pass. */
const BODY = JSON.stringify({ text: 'x'.repeat(300 * 1024) });

const CALLER = 'caller-1';

/** A phone, a desktop, and a device that has sent a request but for the last byte of its body. */
async function start(path: string) {
  const target = await startBuiltTarget();
  pending.push(target.stop);
  const phone = await startPhone(target);
  const desktop = await startDesktop(target);
  const caller = await pair(target, { device: { device_id: CALLER } });
  const connection = await connectRaw(target.port);
  pending.push(() => connection.destroy());
  const headers = { ...bearer(caller.token), 'content-type': 'application/json', 'content-length': `${BODY.length}` };
  connection.write(request('POST', path, headers, BODY.slice(0, -1)));
  await vi.waitFor(() => expect(target.relay.budgets.reading.used).toBeGreaterThan(0));
  return {
    target,
    caller,
    async commands() {
      await Promise.all([phone.settled(), desktop.settled()]);
      return [...phone.commands, ...desktop.commands];
    },
    async finish() {
      connection.write(BODY.slice(-1));
      const { status, body } = await connection.response();
      return { status, body: JSON.parse(body) };
    },
  };
}

const change = (target: BuiltTarget, { prefix }: Paired, init: RequestInit) =>
  target.operator(`/sessions/${prefix}`, { ...init, headers: { 'x-svc-operator': '1' } });

describe('a request whose body ends late (contract 03 §2, 07 §2.1)', () => {
  it.each([
    ['/tap', 'bridge'],
    ['/desktop/desktop_terminal', 'desktop'],
    ['/phone/message', 'phone'],
    ['/voice/synthesize', 'voice:tts'],
  ])('%s does nothing for a device that was revoked, or has lost %s, meanwhile', async (path, grant) => {
    const revoked = await start(path);
    expect((await change(revoked.target, revoked.caller, { method: 'DELETE' })).status).toBe(200);
    expect(await revoked.finish()).toMatchObject({ status: 401, body: { error: 'the session has ended' } });

    const reduced = await start(path);
    const reduction = { ...post({ without: [grant] }), method: 'PATCH' };
    expect((await change(reduced.target, reduced.caller, reduction)).status).toBe(200);
    expect(await reduced.finish()).toMatchObject({
      status: 403,
      body: { error: expect.stringContaining(`${grant} grant`) },
    });
    expect([...(await revoked.commands()), ...(await reduced.commands())]).toEqual([]);
  });

  it('is served for a device that has refreshed its session meanwhile', async () => {
    const { target, caller, finish, commands } = await start('/tap');
    const again = await authenticate(target, { refresh_token: caller.refreshToken, device_id: CALLER });
    expect(again.frame.type).toBe('auth.ok');
    expect(await finish()).toMatchObject({ status: 200 });
    expect(await commands()).toHaveLength(1);
  });
});
