import { EventSourceParserStream } from 'eventsource-parser/stream';
import { expect, it, onTestFinished } from 'vitest';
import { relayEvents } from '../../handlers/events.ts';
import type { RelayRequest } from '../../handlers/request.ts';
import { createEvents } from '../../lib/operator/events.ts';
import type { Relay } from '../../lib/relay.ts';
import { createTestClock } from '../support/clock.ts';
import { mediaDevice, PNG } from '../support/media.ts';
import { startPhone } from '../support/phone.ts';
import { describeMatrix, itAtEdge, pair, post, type Target } from '../support/relay.ts';

interface Received {
  id?: string;
  event?: string;
  data: string;
}

/** Follows the events of a relay. `next` skips those that do not match. */
async function follow(target: Target, headers: Record<string, string> = {}) {
  const controller = new AbortController();
  onTestFinished(() => controller.abort());
  const response = await target.operator('/relay/events', { headers, signal: controller.signal });
  expect(response.status).toBe(200);
  expect(response.headers.get('content-type')).toBe('text/event-stream');
  const reader = (response.body as ReadableStream<Uint8Array>)
    .pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>)
    .pipeThrough(new EventSourceParserStream())
    .getReader();
  return {
    end: () => controller.abort(),
    async next(match: (event: Received) => boolean): Promise<Received> {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) throw new Error('the stream has ended');
        if (match(value)) return value;
      }
    },
  };
}

const isOf = (name: string, part: string) => (event: Received) => event.event === name && event.data.includes(part);

describeMatrix('events (contract 09 §4)', (start) => {
  it('§4: shows what happens as it happens, and resumes', async () => {
    const target = await start();
    const events = await follow(target);
    expect(await events.next(() => true)).toMatchObject({ event: 'reset', data: '{}' });

    const phone = await pair(target, { device: { device_name: 'Pixel 9' } });
    await events.next(isOf('pairing', '"registered"'));
    await events.next(isOf('pairing', '"used"'));
    const connected = await events.next(isOf('device', '"connected"'));
    expect(JSON.parse(connected.data)).toEqual({
      token_prefix: phone.prefix,
      device_name: 'Pixel 9',
      change: 'connected',
    });
    expect(JSON.stringify(connected)).not.toContain(phone.token);
    await target.operator('/phone/message', post({ text: 'waits' }));
    const queued = await events.next(isOf('queue', '"queued":1'));
    await target.operator('/relay/security', { ...post({ allow_insecure_api_bearer: true }), method: 'PATCH' });
    await events.next(isOf('log', 'plain http'));
    await events.next(isOf('security', 'true'));
    events.end();

    const again = await follow(target, { 'last-event-id': String(queued.id) });
    await again.next(isOf('security', 'true'));
    const stranger = await follow(target, { 'last-event-id': '17' });
    expect((await stranger.next(() => true)).event).toBe('reset');
  });

  it('§4: more missed events than may wait for a slow listener resume it all the same', async () => {
    const target = await start();
    const events = await follow(target);
    const { id } = await events.next(() => true);
    events.end();
    // At the edge, only what a caller does is published.
    const publish = target.relay?.events.publish;
    for (let at = 0; at < 400; at++) publish?.('log', () => ({ at, text: 'x'.repeat(4000) }));
    const again = await follow(target, { 'last-event-id': String(id) });
    await target.operator('/relay/security', { ...post({ allow_insecure_api_bearer: true }), method: 'PATCH' });
    if (publish) await again.next(isOf('log', '"at":0,'));
    if (publish) await again.next(isOf('log', '"at":399,'));
    await again.next(isOf('security', 'true'));
  });

  it('§4, 01 §1: HEAD is answered, and follows nothing', async () => {
    const target = await start();
    for (let attempt = 0; attempt < 40; attempt++) {
      const head = await target.operator('/relay/events', { method: 'HEAD' });
      expect([head.status, head.headers.get('content-type')]).toEqual([200, 'text/event-stream']);
    }
    await follow(target);
  });

  it('§4: commands for a phone, requests to pair and files show too', async () => {
    const target = await start();
    const phone = await startPhone(target);
    const files = await mediaDevice(target);
    const events = await follow(target);
    await target.fetch('/current_app', { headers: phone.headers });
    const asked = await events.next(isOf('bridge', '"pending"'));
    expect(JSON.parse(asked.data)).toMatchObject({ method: 'GET', path: '/current_app', device_id: phone.id });
    await events.next(isOf('bridge', '"executed"'));
    await files.put(PNG);
    await events.next(isOf('media', '"change":"added","count":1'));
    await target.fetch('/pairing', { method: 'POST', headers: { origin: 'https://elsewhere.example' } });
    await events.next(isOf('pairing', '"requested"'));
    const { requests } = await (await target.operator('/pairing/pending')).json();
    expect(requests).toEqual([
      { masked: expect.stringMatching(/^\w\w\*{4}$/), expires_at: expect.any(Number), peer: expect.any(String) },
    ]);
  });

  it('§4: the last lines of the log', async () => {
    const target = await start();
    const { token } = await pair(target);
    const { lines } = await (await target.operator('/relay/log')).json();
    expect(lines.at(-1)).toMatchObject({ ts: expect.any(Number), level: expect.any(String), name: expect.any(String) });
    expect(lines.some(({ text }: { text: string }) => text.includes('authenticated'))).toBe(true);
    expect(JSON.stringify(lines)).not.toContain(token);
    const one = await (await target.operator('/relay/log?limit=1')).json();
    expect(one.lines).toHaveLength(1);
    expect((await target.operator('/relay/log?limit=0')).status).toBe(400);
    for (const path of ['/relay/log', '/relay/events', '/relay/devices']) {
      const refused = await target.fetch(path, {
        headers: { authorization: `Bearer ${token}`, 'x-forwarded-for': 'x' },
      });
      expect(refused.status, path).toBe(403);
    }
  });
});

itAtEdge('01 §12: at the edge, a stream ends with the operator token that opened it', async () => {
  const clock = createTestClock();
  const events = createEvents(clock);
  let isValid = true;
  const operatorTokens = { verify: async () => isValid };
  const relay = { events, clock, operatorTokens, config: { relayName: 'svc-relay' } } as unknown as Relay;
  const request = new Request('https://relay.example.com/relay/events', { headers: { authorization: 'Bearer t' } });
  const peer = { address: '192.0.2.1', tls: true, via: 'edge' };
  const response = await relayEvents(Object.assign(request, { peer, params: {}, query: {} }) as RelayRequest, relay);
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  const next = async () => {
    const { done, value } = await reader.read();
    return done ? 'end' : new TextDecoder().decode(value);
  };
  expect(await next()).toContain('event: reset');
  await clock.advanceAsync(15_000);
  expect(await next()).toBe(': \n\n');
  isValid = false;
  await clock.advanceAsync(15_000);
  expect(await next()).toBe('end');
  expect(clock.pending).toBe(0);
});
