import { createHmac } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { buildPayload, type PayloadFields, pairingUrl } from '../../../lib/pairing/payload.ts';
import type { CodePolicy } from '../../../lib/pairing/policy.ts';
import { signPayload } from '../../../lib/pairing/signature.ts';

const secret = new Uint8Array(32).fill(7);
const api = { host: '192.168.1.20', port: 8642, tls: false, key: 'k' };
const relay = { url: 'ws://192.168.1.20:8767', code: 'ABC123', policy: {} };
const fields = (more: Partial<PayloadFields> = {}): PayloadFields => ({ api, relay, ...more });
const text = (more?: Partial<PayloadFields>) => JSON.stringify(buildPayload(fields(more), null));
const withPolicy = (policy: CodePolicy) => ({ relay: { ...relay, policy } });
const endpoints = [{ role: 'lan', priority: 0 }];

describe('QR payload (contract 01 §5.4)', () => {
  test('byte for byte, with everything', () => {
    const policy = { ttlSeconds: 3600, grants: { terminal: 60, chat: 0 }, transportHint: 'wss' as const };
    expect(text({ ...withPolicy(policy), endpoints, dashboardUrl: 'https://d' })).toBe(
      '{"svc":3,"host":"192.168.1.20","port":8642,"key":"k","tls":false,' +
        '"relay":{"url":"ws://192.168.1.20:8767","code":"ABC123","ttl_seconds":3600,' +
        '"grants":{"terminal":60,"chat":0},"transport_hint":"wss"},' +
        '"endpoints":[{"role":"lan","priority":0}],"dashboard_url":"https://d"}',
    );
  });

  test('leaves out members that were not set', () => {
    expect(text()).toBe(
      '{"svc":1,"host":"192.168.1.20","port":8642,"key":"k","tls":false,' +
        '"relay":{"url":"ws://192.168.1.20:8767","code":"ABC123"}}',
    );
    expect(text({ endpoints: [] })).toBe(text());
  });

  test('a disabled API server leaves four keys out', () => {
    expect(text({ api: null })).toBe('{"svc":1,"relay":{"url":"ws://192.168.1.20:8767","code":"ABC123"}}');
  });

  test('an empty key is written', () => {
    expect(text({ api: { ...api, key: '' } })).toContain('"key":""');
  });

  test.each<[number, Partial<PayloadFields>]>([
    [1, {}],
    [1, { dashboardUrl: 'https://d' }],
    [1, { endpoints: [] }],
    [2, withPolicy({ ttlSeconds: 0 })],
    [2, withPolicy({ grants: { chat: 1 } })],
    [2, withPolicy({ transportHint: 'unknown' })],
    [3, { endpoints }],
    [3, { endpoints, ...withPolicy({ ttlSeconds: 1 }) }],
  ])('marker %i for %j', (marker, more) => {
    expect(buildPayload(fields(more), null).svc).toBe(marker);
  });

  test('the link is unpadded base64url of the UTF-8 bytes', () => {
    const url = pairingUrl('{"a":"ü??>"}');
    expect(url).toMatch(/^svc-relay:\/\/pair\?payload=[A-Za-z0-9_-]+$/);
    expect(Buffer.from(url.split('=')[1] as string, 'base64url').toString('utf8')).toBe('{"a":"ü??>"}');
  });
});

describe('signature (contract 01 §5.4)', () => {
  test('last key; HMAC-SHA256 of the canonical form, base64 with padding', () => {
    const payload = buildPayload(fields({ dashboardUrl: 'https://d/ü' }), secret);
    expect(Object.keys(payload).at(-1)).toBe('sig');
    const canonical =
      '{"dashboard_url":"https://d/\\u00fc","host":"192.168.1.20","key":"k","port":8642,' +
      '"relay":{"code":"ABC123","url":"ws://192.168.1.20:8767"},"svc":1,"tls":false}';
    expect(payload.sig).toBe(createHmac('sha256', secret).update(canonical).digest('base64'));
    expect(payload.sig).toMatch(/^[A-Za-z0-9+/]{43}=$/);
  });

  test('survives a round trip and reordered keys, but not a change', () => {
    const payload = JSON.parse(JSON.stringify(buildPayload(fields({ endpoints }), secret)));
    expect(signPayload(payload, secret)).toBe(payload.sig);
    expect(signPayload(Object.fromEntries(Object.entries(payload).reverse()) as never, secret)).toBe(payload.sig);
    expect(signPayload(payload, new Uint8Array(32).fill(8))).not.toBe(payload.sig);
    expect(signPayload({ ...payload, host: '192.168.1.21' }, secret)).not.toBe(payload.sig);
  });

  test('only the top-level sig is outside the signature', () => {
    expect(signPayload({ a: { sig: 'x' } }, secret)).not.toBe(signPayload({ a: {} }, secret));
    expect(signPayload({ a: 1, sig: 'x' }, secret)).toBe(signPayload({ a: 1 }, secret));
  });

  test('no secret, no sig', () => {
    expect(buildPayload(fields(), null)).not.toHaveProperty('sig');
  });
});
