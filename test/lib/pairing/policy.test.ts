import { describe, expect, test } from 'vitest';
import { describePolicy, readPolicy } from '../../../lib/pairing/policy.ts';

describe('policy of a code (contract 01 §5.2)', () => {
  const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, index) => [`c${index}`, 1]));

  test.each<[string, Record<string, unknown>, unknown]>([
    ['nothing', {}, {}],
    ['null is absent', { ttl_seconds: null, grants: null, transport_hint: null }, {}],
    ['never', { ttl_seconds: 0 }, { ttlSeconds: 0 }],
    ['the longest', { ttl_seconds: 3_153_600_000 }, { ttlSeconds: 3_153_600_000 }],
    ['a fraction rounds up', { ttl_seconds: 0.1, grants: { chat: 59.5 } }, { ttlSeconds: 1, grants: { chat: 60 } }],
    ['an unknown channel', { grants: { 'x:y_z-1': 0 } }, { grants: { 'x:y_z-1': 0 } }],
    ['a channel of 64 characters', { grants: { ['a'.repeat(64)]: 1 } }, { grants: { ['a'.repeat(64)]: 1 } }],
    ['32 channels', { grants: many(32) }, { grants: many(32) }],
    ['an empty map is absent', { grants: {} }, {}],
    ['wss', { transport_hint: 'wss' }, { transportHint: 'wss' }],
    ['ws', { transport_hint: 'ws' }, { transportHint: 'ws' }],
    ['unknown', { transport_hint: 'unknown' }, { transportHint: 'unknown' }],
  ])('takes %s', (_, body, expected) => {
    expect(readPolicy(body)).toEqual(expected);
  });

  test.each<[string, Record<string, unknown>]>([
    ['ttl_seconds', { ttl_seconds: -1 }],
    ['ttl_seconds', { ttl_seconds: -0.5 }],
    ['ttl_seconds', { ttl_seconds: 3_153_600_001 }],
    ['ttl_seconds', { ttl_seconds: 3_153_600_000.5 }],
    ['ttl_seconds', { ttl_seconds: Number.NaN }],
    ['ttl_seconds', { ttl_seconds: Infinity }],
    ['ttl_seconds', { ttl_seconds: true }],
    ['ttl_seconds', { ttl_seconds: '3600' }],
    ['ttl_seconds', { ttl_seconds: [] }],
    ['grants', { grants: [] }],
    ['grants', { grants: 'chat' }],
    ['grants', { grants: true }],
    ['grants', { grants: many(33) }],
    ['grants', { grants: { Chat: 1 } }],
    ['grants', { grants: { '': 1 } }],
    ['grants', { grants: { '1a': 1 } }],
    ['grants', { grants: JSON.parse('{"__proto__":1}') }],
    ['grants', { grants: { ['a'.repeat(65)]: 1 } }],
    ['grants.chat', { grants: { chat: null } }],
    ['grants.chat', { grants: { chat: '1' } }],
    ['grants.chat', { grants: { chat: false } }],
    ['grants.chat', { grants: { chat: -1 } }],
    ['transport_hint', { transport_hint: 'WSS' }],
    ['transport_hint', { transport_hint: '' }],
    ['transport_hint', { transport_hint: 1 }],
    ['transport_hint', { transport_hint: ['ws'] }],
  ])('refuses a bad %s: %j', (field, body) => {
    expect(() => readPolicy(body)).toThrow(
      expect.objectContaining({ kind: 'invalid', message: expect.stringContaining(field) }),
    );
  });

  test('is described for the log', () => {
    expect(describePolicy({})).toBe('lifetime default, grants default, transport as met');
    expect(describePolicy({ ttlSeconds: 0, grants: { chat: 60, tui: 0 }, transportHint: 'wss' })).toBe(
      'lifetime never, grants chat=60 s tui=never, transport wss',
    );
  });
});
