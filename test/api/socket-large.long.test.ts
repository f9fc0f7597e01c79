import { expect, it } from 'vitest';
import type { Client } from '../support/client.ts';
import { bearer, describeMatrix, pair, type Target } from '../support/relay.ts';

const KiB = 1024;
const MiB = 1024 * KiB;
/** A second of every grant. */
const SHORT = { grants: { chat: 1, terminal: 1, tui: 1, desktop: 1, bridge: 1 } };

/** A payload of few bytes that costs much to parse. */
const PARTS = `[${'{},'.repeat(120_000)}{}]`;

/** The answer to a raw frame, which is the next one on the socket. */
async function answer(client: Client, text: string) {
  client.raw(text);
  const { channel, type, id, payload } = await client.next();
  return { ...payload, channel, type, id };
}

const refused = (error: string, id: unknown = 'large') => expect.objectContaining({ channel: 'system', error, id });

describeMatrix('large messages (contract 02 §1.1)', (start) => {
  async function devices(target: Target) {
    const rich = await pair(target);
    const poor = await pair(target, { policy: SHORT });
    const { tui: end } = poor.ok.payload.grants as { tui: number };
    await expect.poll(() => Date.now() / 1000).toBeGreaterThan(end);
    return { rich, poor };
  }

  const message = (channel: string, type: string, payload: string) =>
    `{"channel":"${channel}","type":"${type}","id":"large","payload":${payload}}`;

  it('are counted before they are parsed', async () => {
    const { rich, poor } = await devices(await start());
    const deep = `{"a":"${'x'.repeat(MiB)}","b":${'['.repeat(300)}${']'.repeat(300)}}`;
    for (const payload of [PARTS, `{"a":${PARTS}}`, deep, '['.repeat(MiB), ','.repeat(MiB)]) {
      for (const channel of ['tui', 'bridge', 'desktop', 'terminal', 'notifications', 'system']) {
        const frame = message(channel, 'desktop.response', payload);
        expect([channel, await answer(rich.client, frame)]).toEqual([channel, refused('message_too_large')]);
      }
    }
    expect(await answer(rich.client, message('system', 'ping', '{"ts":1}'))).toMatchObject({ type: 'pong' });
    rich.client.terminate();
    poor.client.terminate();
  });

  it('are judged by channel, size class and grant before they are looked at', async () => {
    const { rich, poor } = await devices(await start());
    const junk = `{${','.repeat(MiB)}`;
    expect(await answer(poor.client, message('nowhere', 'x', junk))).toEqual(refused('unknown_channel'));
    for (const channel of ['tui', 'bridge', 'desktop', 'terminal', 'chat']) {
      const frame = message(channel, `${channel}.x`, junk);
      expect([channel, await answer(poor.client, frame)]).toEqual([channel, refused('permission_denied')]);
      if (channel === 'chat') await poor.client.next({ type: 'chat.error', id: 'large' });
    }
    const huge = `{"a":"${'x'.repeat(5 * MiB)}"}`;
    for (const channel of ['terminal', 'chat', 'notifications', 'proactive', 'system']) {
      const frame = message(channel, 'x', huge);
      expect([channel, await answer(rich.client, frame)]).toEqual([channel, refused('message_too_large')]);
    }
    // What a desktop says of itself needs no grant, and is never that large.
    expect(await answer(poor.client, message('desktop', 'desktop.status', huge))).toEqual(refused('message_too_large'));
    // Not even a gateway, but the message arrived.
    expect(await answer(rich.client, message('tui', 'tui.rpc.request', huge))).toMatchObject({ id: 'large' });
    rich.client.terminate();
    poor.client.terminate();
  });

  it('must name their channel and type within 4 KiB, and not again', async () => {
    const { rich, poor } = await devices(await start());
    const filler = 'x'.repeat(4 * KiB);
    const invalid = expect.objectContaining({
      message: 'Invalid envelope',
      error: 'invalid_request',
      id: expect.not.stringMatching('late'),
    });
    for (const text of [
      `{"payload":{"a":"${filler}"},"channel":"system","type":"ping","id":"late"}`,
      `{"channel":"system","payload":{"a":"${filler}"},"type":"ping","id":"late"}`,
      // The last of equal members counts: the one that was judged is not the one that would be handled.
      `{"channel":"system","type":"ping","id":"late","payload":{"a":"${filler}"},"channel":"terminal"}`,
      `{"channel":"system","type":"ping","id":"late","payload":{"a":"${filler}"},"type":"pong"}`,
      `{"channel":"system","type":"ping","id":"late","payload":{"a":"${filler}"`,
    ]) {
      expect(await answer(poor.client, text)).toEqual(invalid);
    }
    const late = `{"channel":"system","type":"ping","payload":{"a":"${filler}"},"id":"late"}`;
    expect(await answer(poor.client, late)).toMatchObject({ type: 'pong', id: 'late' });
    rich.client.terminate();
    poor.client.terminate();
  });

  it('and small ones are not deeper than 256 levels, so that no list fails for what one device reports', async () => {
    const target = await start();
    const { client, token } = await pair(target);
    const nested = (levels: number) => `${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`;
    const reports: [channel: string, type: string][] = [
      ['notifications', 'notification.posted'],
      ['bridge', 'bridge.status'],
      ['desktop', 'desktop.status'],
      ['desktop', 'desktop.workspace'],
    ];
    for (const [channel, type] of reports) {
      for (const levels of [256, 4500, 40_000]) {
        const frame = message(channel, type, nested(levels));
        expect([channel, levels, await answer(client, frame)]).toEqual([channel, levels, refused('message_too_large')]);
      }
      client.raw(message(channel, type, nested(255)));
    }
    client.send('system', 'ping', {}, 'end');
    expect((await client.next()).id).toBe('end');
    for (const path of ['/bridge/devices', '/bridge/status']) {
      expect([path, (await target.operator(path)).status]).toEqual([path, 200]);
    }
    for (const path of ['/notifications/recent', '/desktop/health']) {
      expect([path, (await target.fetch(path, { headers: bearer(token) })).status]).toEqual([path, 200]);
    }
    client.terminate();
  });

  it('in HTTP bodies are counted too', async () => {
    const target = await start();
    const { token, client } = await pair(target);
    client.terminate();
    for (const [method, path] of [
      ['POST', '/tap'],
      ['POST', '/desktop/desktop_terminal'],
      ['POST', '/phone/message'],
      ['POST', '/relay/model-capabilities'],
    ] as const) {
      for (const body of [`{"a":${PARTS}}`, '['.repeat(300 * KiB)]) {
        for (const chunked of [false, true]) {
          const sent = chunked ? new Blob([body]).stream() : body;
          const init = { method, body: sent, headers: bearer(token), duplex: 'half' } as RequestInit;
          const response = await target.fetch(path, init);
          expect([path, response.status]).toEqual([path, 413]);
          await response.text();
        }
      }
      // A small one is simply parsed.
      const small = `{"a":[${'{},'.repeat(80_000)}{}]}`;
      const response = await target.fetch(path, { method, body: small, headers: bearer(token) });
      expect(response.status).not.toBe(413);
      await response.text();
    }
  });
});

describeMatrix('system/ping (contract 02 §2)', (start) => {
  it('sends back any time of a few KiB, and its own instead of a longer one', async () => {
    const { client } = await pair(await start());
    const echo = async (ts: string) => {
      client.raw(`{"channel":"system","type":"ping","id":"p","payload":{"ts":${ts}}}`);
      return JSON.stringify((await client.next({ id: 'p' })).payload.ts);
    };
    const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
    for (const ts of ['7', '"text"', 'false', '{"a":[1]}', nested(2000)]) expect(await echo(ts)).toBe(ts);
    for (const ts of ['null', `"${'x'.repeat(5000)}"`, `[${'[],'.repeat(5000)}0]`, nested(2500), nested(100_000)]) {
      expect(await echo(ts)).toMatch(/^\d{13}$/);
    }
    client.terminate();
  });
});
