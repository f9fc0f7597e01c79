import { expect, it } from 'vitest';
import { Handshake } from '../../../lib/socket/handshake.ts';
import { PendingSockets } from '../../../lib/socket/pending-sockets.ts';
import type { Transport } from '../../../lib/socket/transport.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';

const KEY = '192.0.2.1';

/** Clients of one peer that never disconnect when told to. */
function setup() {
  const clock = createTestClock();
  const pending = new PendingSockets({ clock, sleeps: false });
  const connect = (key: string = KEY) => {
    const said: string[] = [];
    const transport = {
      id: 'x',
      send: (text: string) => void said.push(JSON.parse(text).payload.reason),
      close: () => void said.push('close'),
      terminate: () => void said.push('terminate'),
    } as unknown as Transport;
    const deps = {
      log: createTestLog(),
      refused: (handshake: Handshake) => pending.refused(handshake),
      done: (handshake: Handshake) => pending.remove(handshake),
    };
    const caller = { key, transportHint: 'ws', peer: { address: KEY, tls: false, via: 'direct' } } as const;
    const handshake = new Handshake(deps as never, transport, caller, () => ({ receive() {} }));
    pending.add(handshake);
    return { handshake, said };
  };
  return { clock, pending, connect };
}

it('contract 01 §3.1: a refused client that stays connected keeps its slot for two more seconds', () => {
  const { clock, pending, connect } = setup();
  const clients = Array.from({ length: 16 }, () => connect());
  for (const { handshake } of clients) handshake.message('nope');
  expect(clients[0]?.said).toEqual(['Invalid message format', 'close']);
  clock.advance(1_999);
  expect(pending.hasRoomFor(KEY)).toBe(false);
  clock.advance(1);
  expect(pending.hasRoomFor(KEY)).toBe(true);
  for (let count = 0; count < 15; count++) connect();
  expect(pending.hasRoomFor(KEY)).toBe(true);
  // Disconnecting later must not free the slot twice.
  for (const { handshake } of clients) handshake.closed();
  connect();
  expect(pending.hasRoomFor(KEY)).toBe(false);
});

it('contract 01 §3.3: a silent client is refused after 30 s, and its slot is freed 2 s later', () => {
  const { clock, pending, connect } = setup();
  const early = connect();
  clock.advance(10_000);
  const refused = connect();
  refused.handshake.message('nope');
  clock.advance(19_999);
  expect(early.said).toEqual([]);
  clock.advance(1);
  expect(early.said).toEqual(['Authentication timeout', 'close']);
  const late = Array.from({ length: 15 }, connect);
  expect(pending.hasRoomFor(KEY)).toBe(false);
  clock.advance(2_000);
  expect(pending.hasRoomFor(KEY)).toBe(true);
  clock.advance(28_000);
  for (const { said } of late) expect(said).toEqual(['Authentication timeout', 'close']);
});

it('contract 01 §1.4: sockets of foreign pages take no slot of their address, and 48 of them together at most', () => {
  const { pending, connect } = setup();
  const page = (index: number | string) => `${KEY} origin https://${index}.example`;
  const held = Array.from({ length: 16 }, () => connect(page('evil')));
  expect(pending.hasRoomFor(page('evil'))).toBe(false);
  expect([pending.hasRoomFor(KEY), pending.hasRoomFor(page('good'))]).toEqual([true, true]);
  for (let index = 0; index < 32; index++) held.push(connect(page(index)));
  expect(pending.hasRoomFor(page('new'))).toBe(false);
  for (let count = 0; count < 16; count++) held.push(connect());
  expect(pending.hasRoomFor(KEY)).toBe(false);
  for (const { handshake } of held) handshake.closed();
  expect([pending.hasRoomFor(KEY), pending.hasRoomFor(page('new'))]).toEqual([true, true]);
});
