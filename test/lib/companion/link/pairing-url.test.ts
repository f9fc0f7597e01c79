import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { relayUrl } from '../../../../lib/companion/link/endpoints.ts';
import { parsePairing } from '../../../../lib/companion/link/pairing-url.ts';
import { RelayError } from '../../../../lib/errors.ts';
import { base64url, utf8ToBytes } from '../../../../lib/kit/bytes.ts';
import { buildPayload, pairingUrl } from '../../../../lib/pairing/payload.ts';

const relay = { url: 'ws://192.0.2.1:8767', code: 'ABC123' };
const json = (members: object) => JSON.stringify({ svc: 1, relay, ...members });

const message = (text: string): string => {
  try {
    parsePairing(text);
  } catch (error) {
    if (error instanceof RelayError && error.kind === 'invalid') return error.message;
    throw error;
  }
  return 'accepted';
};

describe('a companion reads what svc pair prints (01 §5.4)', () => {
  const role = fc.constantFrom('lan', 'tailscale', 'public', 'Übung', 'x y');
  const host = fc.constantFrom('192.0.2.7', 'relay.example', '[2001:db8::7]', 'a.ts.net');
  const candidate = fc
    .record({ role, host, port: fc.integer({ min: 1, max: 65535 }), tls: fc.boolean(), priority: fc.nat(20) })
    .map(({ role, host, port, tls, priority }) => ({
      role,
      priority,
      relay: { url: `${tls ? 'wss' : 'ws'}://${host}:${port}`, transport_hint: tls ? 'wss' : 'ws' },
    }));
  const parts = fc.record({
    code: fc.stringMatching(/^[A-Z0-9]{6}$/),
    codeSecret: fc.option(fc.stringMatching(/^[\w-]{22}$/), { nil: undefined }),
    endpoints: fc.array(candidate, { maxLength: 16 }),
    ttl: fc.option(fc.nat(3_153_600_000), { nil: undefined }),
    key: fc.string(),
    secret: fc.boolean(),
  });

  it('as a link and as JSON: the code, and every route once, by priority, the direct one last', () => {
    fc.assert(
      fc.property(parts, ({ code, codeSecret, endpoints, ttl, key, secret }) => {
        const payload = JSON.stringify(
          buildPayload(
            {
              api: { host: '192.0.2.1', port: 8642, tls: false, key },
              relay: { url: relay.url, code, secret: codeSecret, policy: { ttlSeconds: ttl } },
              endpoints,
            },
            secret ? new Uint8Array(32).fill(7) : null,
          ),
        );
        const read = parsePairing(pairingUrl(payload));
        expect(parsePairing(` ${payload}\n`)).toEqual(read);
        expect(read.code).toBe(code);
        expect(read.secret).toBe(codeSecret);
        const urls = read.endpoints.map(({ url }) => url);
        expect(new Set(urls).size).toBe(urls.length);
        expect(new Set(urls)).toEqual(
          new Set([...endpoints.map(({ relay: { url } }) => `${url}/ws`), 'ws://192.0.2.1:8767/ws']),
        );
        const priorities = read.endpoints.map(({ priority }) => priority);
        expect(priorities).toEqual([...priorities].sort((a, b) => a - b));
      }),
      { numRuns: 200 },
    );
  });

  it('throws nothing but a RelayError on any input, and never quotes it', () => {
    const anything = fc.oneof(
      fc.string(),
      fc.string().map((text) => `svc-relay://pair?payload=${text}`),
      fc.json().map((text) => pairingUrl(text)),
      fc.json(),
      fc.uint8Array({ maxLength: 200 }).map((bytes) => `svc-relay://pair?payload=${base64url(bytes)}`),
    );
    fc.assert(
      fc.property(anything, (text) => {
        expect(message(text)).not.toBe('accepted');
      }),
      { numRuns: 500 },
    );
    expect(message(json({ relay: { url: 'ws://x', code: 'SECRET-CODE' } }))).not.toContain('SECRET');
  });
});

describe('error messages', () => {
  const link = (text: string) => `svc-relay://pair?payload=${base64url(utf8ToBytes(text))}`;
  it.each([
    ['', 'empty'],
    ['   \n', 'empty'],
    ['x'.repeat(70_000), '64 KiB'],
    ['https://example.com/?payload=e30', 'neither'],
    ['svc-relay://other?payload=e30', 'neither'],
    ['svc-relay://pair?', 'exactly one payload'],
    ['svc-relay://pair?payload=e30&payload=e30', 'exactly one payload'],
    ['svc-relay://pair?payload=%21', 'damaged'],
    ['svc-relay://pair?payload=abcde', 'damaged'],
    ['svc-relay://pair?payload=_w', 'damaged'],
    [link('{"svc":1'), 'not valid JSON'],
    [link('[]'), 'JSON object'],
    [json({ svc: undefined }), 'format marker'],
    [json({ svc: '1' }), 'format marker'],
    [json({ relay: undefined, host: 'x' }), 'API server only'],
    [json({ relay: [] }), 'relay must be an object'],
    [json({ relay: { ...relay, code: 'ABC12' } }), 'relay.code'],
    [json({ relay: { ...relay, code: 123456 } }), 'relay.code'],
    [json({ relay: { ...relay, url: 'http://192.0.2.1:8767' } }), 'relay.url'],
    [json({ endpoints: {} }), 'endpoints must be an array'],
    [json({ endpoints: [1] }), 'endpoints must be an array'],
    [json({ endpoints: Array(17).fill({}) }), 'at most 16'],
    [json({ relay: { ...relay, ttl_seconds: 0.5 } }), 'not an integer'],
    [json({}).replace('"svc":1', '"svc":1.0'), 'not an integer'],
    [json({}).replace('"svc":1', '"svc":1e0'), 'not an integer'],
    [json({ n: 1 }).replace('"n":1', '"n":9223372036854775808'), 'not an integer'],
  ])('%.60s: %s', (text, words) => {
    expect(message(text)).toContain(words);
  });

  it('a decimal point inside a string is allowed', () => {
    expect(message(json({ key: 'a\\"1.5 and 2e3', dashboard_url: 'http://192.0.2.1:9119' }))).toBe('accepted');
  });

  it('skips candidates that this client cannot use, and accepts a lower-case code', () => {
    const endpoints = [
      { role: 'plugin_proxy', priority: 0, proxy: { url: 'https://x' }, relay: { url: 'wss://pinned.example' } },
      { role: 'outbound_broker', priority: 1, broker: {} },
      { role: 'odd', priority: 2, relay: { url: 'ftp://x' } },
      { role: 'late', relay: { url: 'ws://late.example:1' } },
      { priority: 3, relay: { url: 'ws://nameless.example:1' } },
    ];
    const read = parsePairing(json({ endpoints, relay: { ...relay, code: ' abc123 ' } }));
    expect(read.code).toBe('ABC123');
    expect(read.endpoints.map(({ role }) => role)).toEqual(['unknown', 'late', 'direct']);
  });
});

describe('socket URLs', () => {
  it.each([
    ['ws://192.0.2.1:8767', 'ws://192.0.2.1:8767/ws'],
    ['WSS://Relay.Example/', 'wss://relay.example/ws'],
    ['wss://relay.example/relay/ws', 'wss://relay.example/relay/ws'],
    ['wss://relay.example/relay/', 'wss://relay.example/relay'],
    ['ws://[2001:db8::1]:1', 'ws://[2001:db8::1]:1/ws'],
    ['ws://user:secret@host:1', null],
    ['ws://host:0', null],
    ['ws://host:65536', null],
    ['ws://host/?token=1', null],
    ['ws://host/#x', null],
    ['ws://', null],
    ['http://host', null],
    [`ws://${'h'.repeat(3000)}`, null],
    [7, null],
  ])('%s becomes %s', (given, expected) => {
    expect(relayUrl(given)).toBe(expected);
  });
});
