import { expect, it } from 'vitest';
import { Gate } from '../../../lib/socket/gate.ts';
import type { Transport } from '../../../lib/socket/transport.ts';
import { WaitingRoom } from '../../../lib/socket/waiting-room.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';

const KEY = '192.0.2.1';

/** A room, and clients of one peer who never do what they are told. */
function setup() {
  const clock = createTestClock();
  const room = new WaitingRoom({ clock, sleeps: false });
  const enter = () => {
    const said: string[] = [];
    const transport = {
      id: 'x',
      send: (text: string) => void said.push(JSON.parse(text).payload.reason),
      close: () => void said.push('close'),
      terminate: () => void said.push('terminate'),
    } as unknown as Transport;
    const parts = {
      log: createTestLog(),
      refused: (gate: Gate) => room.refused(gate),
      left: (gate: Gate) => room.leave(gate),
    };
    const caller = { key: KEY, transportHint: 'ws', peer: { address: KEY, tls: false, via: 'direct' } } as const;
    const gate = new Gate(parts as never, transport, caller, () => ({ receive() {} }));
    room.enter(gate);
    return { gate, said };
  };
  return { clock, room, enter };
}

it('contract 01 §3.1: a refused client that does not go has its place for two seconds more', () => {
  const { clock, room, enter } = setup();
  const clients = Array.from({ length: 16 }, enter);
  for (const { gate } of clients) gate.message('nope');
  expect(clients[0]?.said).toEqual(['Invalid message format', 'close']);
  clock.advance(1_999);
  expect(room.hasRoomFor(KEY)).toBe(false);
  clock.advance(1);
  expect(room.hasRoomFor(KEY)).toBe(true);
  for (let count = 0; count < 15; count++) enter();
  expect(room.hasRoomFor(KEY)).toBe(true);
  // That it really goes later counts no second time.
  for (const { gate } of clients) gate.closed();
  enter();
  expect(room.hasRoomFor(KEY)).toBe(false);
});

it('contract 01 §3.3: who says nothing is refused after 30 s, and its place is free 2 s later', () => {
  const { clock, room, enter } = setup();
  const early = enter();
  clock.advance(10_000);
  const refused = enter();
  refused.gate.message('nope');
  clock.advance(19_999);
  expect(early.said).toEqual([]);
  clock.advance(1);
  expect(early.said).toEqual(['Authentication timeout', 'close']);
  const late = Array.from({ length: 15 }, enter);
  expect(room.hasRoomFor(KEY)).toBe(false);
  clock.advance(2_000);
  expect(room.hasRoomFor(KEY)).toBe(true);
  clock.advance(28_000);
  for (const { said } of late) expect(said).toEqual(['Authentication timeout', 'close']);
});
