import { describe, expect, it } from 'vitest';
import { grantsLeft, livenessOf } from '../../../lib/operator/device-state.ts';

const NOW = 1_790_000_000;
const LIVE = { since: NOW - 60, proof_age_ms: 2000, rtt_ms: 12, stale: false };

describe('how a device is (contract 09 §2)', () => {
  it.each([
    ['never connected', { last_seen: NOW - 90 }, 0, { state: 'offline', age: 90, proofAge: null, roundTrip: null }],
    ['connected', { connections: [LIVE] }, 0, { state: 'connected', age: 60, proofAge: 2000, roundTrip: 12 }],
    [
      'said to be stale',
      { connections: [{ ...LIVE, stale: true }] },
      0,
      { state: 'stale', age: 2, proofAge: 2000, roundTrip: null },
    ],
    [
      'without proof since the row was sent',
      { connections: [LIVE] },
      43_001,
      { state: 'stale', age: 45.001, proofAge: 45_001, roundTrip: null },
    ],
    [
      'on two connections',
      {
        connections: [
          { ...LIVE, proof_age_ms: 50_000, stale: true },
          { ...LIVE, rtt_ms: null },
        ],
      },
      0,
      { state: 'connected', age: 60, proofAge: 2000, roundTrip: null },
    ],
    ['nonsense', { connections: [null] }, 0, { state: 'stale', proofAge: Number.POSITIVE_INFINITY }],
  ])('%s', (_name, row, elapsed, expected) => {
    expect(livenessOf(row as Record<string, unknown>, NOW, elapsed)).toMatchObject(expected);
  });
});

it('the grants that are left: those of voice once, those that end before the session with their time', () => {
  const end = NOW + 1000;
  const grants = {
    chat: end,
    'voice:stt': end,
    'voice:tts': end,
    terminal: NOW + 10,
    bridge: NOW - 1,
    tui: null,
    odd: 'x',
  };
  expect(grantsLeft(grants, end, NOW)).toEqual([
    { name: 'chat', seconds: null },
    { name: 'voice', seconds: null },
    { name: 'terminal', seconds: 10 },
    { name: 'tui', seconds: null },
  ]);
});
