import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { authenticate, bearer, describeMatrix, pair, post, type Target } from '../support/relay.ts';

const FOUR = ['files', 'profiles', 'phone', 'devices'];

interface Call {
  grant: string;
  method: string;
  path: string;
  body?: unknown;
}

/** Every route that needs one of the four grants which are no channels (contract 01 §6.2). */
const CALLS: Call[] = [
  { grant: 'files', method: 'POST', path: '/media/upload' },
  { grant: 'files', method: 'GET', path: '/media/by-path?path=/tmp/none.png' },
  { grant: 'files', method: 'GET', path: '/media/folder' },
  { grant: 'files', method: 'GET', path: '/media/recent' },
  { grant: 'files', method: 'GET', path: '/media/AAAAAAAAAAAAAAAAAAAAAA' },
  { grant: 'files', method: 'HEAD', path: '/media/AAAAAAAAAAAAAAAAAAAAAA' },
  { grant: 'files', method: 'POST', path: '/clipboard/inbox', body: {} },
  { grant: 'profiles', method: 'GET', path: '/api/profiles/default/config' },
  { grant: 'profiles', method: 'GET', path: '/api/profiles/default/skills' },
  { grant: 'profiles', method: 'GET', path: '/api/profiles/default/avatar' },
  { grant: 'profiles', method: 'GET', path: '/api/profiles/default/soul' },
  { grant: 'profiles', method: 'PUT', path: '/api/profiles/default/soul', body: {} },
  { grant: 'profiles', method: 'GET', path: '/api/profiles/default/memory' },
  { grant: 'profiles', method: 'PUT', path: '/api/profiles/default/memory/MEMORY.md', body: {} },
  { grant: 'profiles', method: 'PUT', path: '/api/skills/toggle', body: {} },
  { grant: 'phone', method: 'GET', path: '/notifications/recent' },
  { grant: 'phone', method: 'POST', path: '/phone/message', body: {} },
  { grant: 'phone', method: 'GET', path: '/phone/replies?timeout=0' },
  { grant: 'phone', method: 'GET', path: '/phone/outbound' },
  { grant: 'phone', method: 'POST', path: '/phone/outbound', body: {} },
  { grant: 'phone', method: 'DELETE', path: '/phone/outbound?message_id=none' },
  { grant: 'phone', method: 'GET', path: '/phone/threads' },
  { grant: 'phone', method: 'POST', path: '/phone/threads', body: {} },
];

const call = (target: Target, { method, path, body }: Call, token: string) =>
  target.fetch(path, { method, headers: bearer(token), body: body === undefined ? body : JSON.stringify(body) });

describeMatrix('the grants files, profiles, phone and devices (contract 01 §6.2)', (start, runtime) => {
  it('their routes answer 403 without them, and the others go on', async () => {
    const target = await start();
    for (const grant of FOUR) {
      const { token, ok } = await pair(target, { policy: { without: [grant] } });
      expect(ok.payload.grants).not.toHaveProperty(grant);
      for (const row of CALLS) {
        const response = await call(target, row, token);
        const label = `${row.method} ${row.path} without ${grant}`;
        if (row.grant === grant) expect(response.status, label).toBe(403);
        else expect([401, 403], label).not.toContain(response.status);
      }
    }
  });

  it('a grant that was reduced away is refused once it has expired', async () => {
    const target = await start();
    const { token, prefix } = await pair(target, { policy: { grants: { files: 1 } } });
    const files = () => target.fetch('/media/by-path?path=/tmp/none.png', { headers: bearer(token) });
    await expect.poll(async () => (await files()).status).toBe(403);
    const restored = await target.fetch(`/sessions/${prefix}`, {
      method: 'PATCH',
      headers: bearer(token),
      body: '{"grants":{"files":60}}',
    });
    expect(restored.status).toBe(403);
  });

  it('without devices, a device sees, reduces and revokes itself only, and learns of no other', async () => {
    const target = await start();
    const other = await pair(target);
    const narrow = await pair(target, { policy: { without: ['devices'] }, device: { device_name: 'Narrow' } });
    const headers = bearer(narrow.token);
    const { sessions } = await (await target.fetch('/sessions', { headers })).json();
    expect(sessions).toMatchObject([{ device_name: 'Narrow', is_current: true }]);
    expect(sessions).toHaveLength(1);
    const status = async (method: string, prefix: string) => {
      const body = method === 'PATCH' ? '{"ttl_seconds":60}' : undefined;
      const response = await target.fetch(`/sessions/${prefix}`, { method, headers, body });
      return `${response.status} ${(await response.json()).error ?? ''}`.trim();
    };
    for (const method of ['DELETE', 'PATCH']) {
      const refusals = [
        await status(method, other.prefix),
        await status(method, 'zzzz'),
        await status(method, other.token),
      ];
      expect(new Set(refusals)).toEqual(new Set(['403 cannot modify another session']));
      expect(await status(method, 'abc')).toMatch(/^400/);
    }
    other.client.send('system', 'ping', {}, 'alive');
    await other.client.next({ id: 'alive' });
    expect(await status('PATCH', narrow.prefix)).toBe('200');
    expect(await status('DELETE', narrow.prefix)).toBe('200');
    expect((await narrow.client.closed()).code).toBe(4401);
  });

  it('without phone, a socket gets no messages, takes none from the phone, and reports no notifications', async () => {
    const target = await start();
    const narrow = await pair(target, { policy: { without: ['phone'] } });
    await target.operator('/phone/message', post({ text: 'secret', message_id: 'm1' }));
    for (const [channel, type] of [
      ['proactive', 'proactive.subscribe'],
      ['proactive', 'proactive.cancel'],
      ['proactive', 'proactive.reply'],
      ['notifications', 'notification.posted'],
    ] as const) {
      narrow.client.send(channel, type, { text: 'x', package_name: 'a.b' }, `refused ${type}`);
      expect(await narrow.client.next({ channel: 'system' })).toMatchObject({
        type: 'error',
        id: `refused ${type}`,
        payload: { error: 'permission_denied', message: 'Phone grant expired for this device' },
      });
    }
    expect(narrow.client.frames).toEqual([]);
    expect(
      await (await target.operator('/phone/outbound', { headers: { 'x-svc-operator': '1' } })).json(),
    ).toMatchObject({
      queued: 1,
    });
    expect((await (await target.operator('/notifications/recent')).json()).notifications).toEqual([]);
    expect((await (await target.operator('/phone/replies?timeout=0')).json()).replies).toEqual([]);
  });

  it('a subscriber that loses its phone grant is no longer sent messages', async () => {
    const target = await start();
    const phone = await pair(target);
    phone.client.send('proactive', 'proactive.subscribe');
    await phone.client.next({ type: 'proactive.subscribed' });
    await target.fetch(`/sessions/${phone.prefix}`, {
      method: 'PATCH',
      headers: bearer(phone.token),
      body: '{"grants":{"phone":1}}',
    });
    const message = async (id: string) =>
      (await target.operator('/phone/message', post({ text: 'x', message_id: id }))).json();
    let sent = 0;
    await expect.poll(async () => (await message(`m${sent++}`)).delivered).toBe(false);
    const rest = phone.client.frames.filter(({ type }) => type === 'phone.message');
    expect(rest.length).toBe(sent - 1);
  });

  it('a poll that waits for replies takes none for a device that was revoked, or lost its grant', async () => {
    const target = await start();
    const phone = await pair(target);
    const poll = async (token: string) =>
      (await (await target.fetch('/phone/replies?timeout=20', { headers: bearer(token) })).json()).replies;
    const waiting = async (count: number) =>
      runtime === 'node' && (await expect.poll(() => target.relay?.phone.replies.waiting()).toBe(count));
    const [revoked, reduced] = [await pair(target), await pair(target)];
    const polls = [poll(revoked.token), poll(reduced.token)];
    await waiting(2);
    await target.fetch(`/sessions/${revoked.prefix}`, { method: 'DELETE', headers: bearer(phone.token) });
    const body = '{"grants":{"phone":1}}';
    await target.fetch(`/sessions/${reduced.prefix}`, { method: 'PATCH', headers: bearer(reduced.token), body });
    await expect
      .poll(async () => (await target.fetch('/phone/threads', { headers: bearer(reduced.token) })).status)
      .toBe(403);
    phone.client.send('proactive', 'proactive.reply', { text: 'mine' }, 'r1');
    await phone.client.next({ id: 'r1' });
    expect(await Promise.all(polls)).toEqual([[], []]);
    const { replies } = await (await target.operator('/phone/replies?timeout=0')).json();
    expect(replies).toMatchObject([{ text: 'mine' }]);
  });

  it('09 §1: without is read by register, approve and mint, and refuses unknown names', async () => {
    const target = await start();
    const code = async (path: string, body: Record<string, unknown>) => {
      const response = await target.operator(path, post({ without: ['terminal', 'bridge'], ...body }));
      expect(response.status).toBe(200);
      return (await response.json()).code;
    };
    for (const pairing_code of [
      await code('/pairing/register', { code: 'WITHAA' }),
      await code('/pairing/approve', { code: 'WITHBB' }),
      await code('/pairing/mint', { host: '192.0.2.1' }),
      await code('/pairing/register', { code: 'WITHCC', grants: { terminal: 0, chat: 60 } }),
    ]) {
      const { frame } = await authenticate(target, { pairing_code });
      expect(Object.keys(frame.payload.grants as object).sort()).toEqual(
        ['chat', 'desktop', 'tui', 'voice:config', 'voice:realtime', 'voice:stt', 'voice:tts', ...FOUR].sort(),
      );
    }
    for (const without of [['terminal', 'nope'], ['__proto__'], 'terminal', {}, [7], [['chat']]]) {
      for (const path of ['/pairing/register', '/pairing/approve', '/pairing/mint']) {
        const response = await target.operator(path, post({ code: 'REFUSE', host: '192.0.2.1', without }));
        expect(response.status, `${path} ${JSON.stringify(without)}`).toBe(400);
        expect((await response.json()).error).toMatch(/without/);
      }
    }
    expect((await authenticate(target, { pairing_code: 'REFUSE' })).frame.type).toBe('auth.fail');
  });

  it('withheld grants stay withheld after a restart and a refresh', async () => {
    const target = await start();
    const without = ['files', 'desktop', 'voice:tts', 'terminal'];
    const narrow = await pair(target, { policy: { without }, device: { device_id: 'me' } });
    await target.restart();
    const { frame } = await authenticate(target, { refresh_token: narrow.refreshToken, device_id: 'me' });
    expect(frame.payload.grants).toEqual(narrow.ok.payload.grants);
    const { client } = await authenticate(target, { session_token: frame.payload.session_token });
    client.send('terminal', 'terminal.list', {}, 't');
    expect(await client.next({ id: 't' })).toMatchObject({ type: 'error', payload: { error: 'permission_denied' } });
  });

  if (runtime === 'node') {
    it('without profiles, no profile row reaches the socket: neither in auth.ok nor as a push', async () => {
      const target = await start();
      await writeFile(join(target.agentHome, 'config.yaml'), 'model: {default: m1}\n');
      await target.relay?.profiles.rescan();
      const narrow = await pair(target, { policy: { without: ['profiles'] } });
      const wide = await pair(target);
      expect([narrow.ok.payload.profiles, wide.ok.payload.profiles]).toMatchObject([[], [{ name: 'default' }]]);
      await mkdir(join(target.agentHome, 'profiles', 'work'), { recursive: true });
      await writeFile(join(target.agentHome, 'profiles', 'work', 'config.yaml'), 'model: m2\n');
      await target.relay?.profiles.rescan();
      await wide.client.next({ type: 'profiles.updated' });
      narrow.client.send('system', 'ping', {}, 'after');
      expect((await narrow.client.next()).id).toBe('after');
    });
  }
});
