import { expect, it } from 'vitest';
import { ByteBudget } from '../../../lib/kit/byte-budget.ts';
import { createLog } from '../../../lib/log.ts';
import type { Session } from '../../../lib/sessions/session.ts';
import { createChannelTable } from '../../../lib/socket/channel.ts';
import { SocketConnection } from '../../../lib/socket/connection.ts';
import { Probes } from '../../../lib/socket/probes.ts';
import type { Caller, Transport } from '../../../lib/socket/transport.ts';
import { createTestClock } from '../../support/clock.ts';

function connect(since?: number) {
  const clock = createTestClock();
  const transport: Transport = {
    id: 'socket',
    send() {},
    close() {},
    terminate() {},
    unsent: () => 0,
    pause: () => true,
    resume() {},
    ping() {},
  };
  const caller: Caller = {
    peer: { address: null, tls: true, via: 'secure-link' },
    key: 'unknown',
    transportHint: 'wss',
  };
  const deps = {
    channels: createChannelTable({ echo: { message() {}, describe: () => ({ open: true }) } }),
    sessions: { isAlive: () => true, touch() {} } as never,
    clock,
    log: createLog('ERROR', () => {}),
    probes: new Probes(clock),
    parsing: new ByteBudget(1, clock),
    answersPings() {},
    onClosed() {},
  };
  const session = { device: { surface: 'android' }, grants: {} } as unknown as Session;
  return { clock, connection: new SocketConnection(deps, transport, caller, session, { typedStream: false, since }) };
}

const MESSAGE = '{"channel":"echo","type":"x","id":"1","payload":{}}';

it('§2: tells the age of the last proof, and becomes stale 45 s after it (contract 09)', () => {
  const { clock, connection } = connect();
  clock.advance(10_000);
  expect(connection.describe()).toMatchObject({ proof_age_ms: 10_000, last_seen_ms: 10_000, rtt_ms: null });
  connection.receive(MESSAGE);
  clock.advance(5_000);
  connection.ping();
  clock.advance(120);
  connection.ponged();
  clock.advance(45_000);
  const row = connection.describe();
  expect(row).toMatchObject({ proof_age_ms: 45_000, last_seen_ms: 50_120, rtt_ms: 120, stale: false });
  expect(row).toMatchObject({ client_surface: 'android', route: 'secure_link', channels: { echo: { open: true } } });
  clock.advance(1);
  expect(connection.describe().stale).toBe(true);
  connection.pinged();
  expect(connection.describe()).toMatchObject({ proof_age_ms: 0, stale: false });
});

it('§2: measures a round trip from the ping that is still unanswered', () => {
  const { clock, connection } = connect();
  connection.ping();
  clock.advance(30_000);
  connection.ping();
  clock.advance(10);
  connection.ponged();
  expect(connection.describe().rtt_ms).toBe(30_010);
  // An answer to nothing measures nothing.
  clock.advance(10);
  connection.ponged();
  expect(connection.describe()).toMatchObject({ rtt_ms: 30_010, proof_age_ms: 0 });
});

it('§2: counts from its authentication after a sleep', () => {
  const { clock, connection } = connect(createTestClock().now() - 60_000);
  expect(connection.describe()).toMatchObject({
    since: (clock.now() - 60_000) / 1000,
    proof_age_ms: 60_000,
    stale: true,
  });
});
