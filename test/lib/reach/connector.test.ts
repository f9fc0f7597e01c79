import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { backoff } from '../../../lib/kit/reconnect.ts';
import { digestOf } from '../../../lib/kit/sha256.ts';
import { createLog } from '../../../lib/log.ts';
import { Connector, otherRelayAdvice, PACE } from '../../../lib/reach/connector.ts';
import { closeFrame } from '../../../lib/reach/frames.ts';
import type { BrokerRequest, HostLink } from '../../../lib/reach/host-link.ts';
import type { StreamPort } from '../../../lib/reach/host-streams.ts';
import { newId } from '../../../lib/reach/ids.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { dataFrame } from '../../support/frames.ts';
import { createScriptedBroker, HOST_TOKEN, REFUSED, type ScriptedBrokerOptions } from './scripted-broker.ts';

const settled = () => new Promise((resolve) => setImmediate(resolve));

let clock: TestClock;
let log: string[];
let connectors: { connector: Connector; verify(): void }[];

beforeEach(() => {
  clock = createTestClock();
  log = [];
  connectors = [];
});
afterEach(async () => {
  for (const { connector, verify } of connectors) {
    await connector.stop();
    verify();
  }
  expect(clock.pending).toBe(0);
  expect(log.join('\n')).not.toContain(HOST_TOKEN);
});

async function setUp(options: ScriptedBrokerOptions = {}) {
  const broker = createScriptedBroker(options);
  const ports: StreamPort[] = [];
  const received: string[] = [];
  let connections = 0;
  const connector = new Connector({
    brokerUrl: 'wss://reach.example',
    hostId: newId(),
    token: HOST_TOKEN,
    dial: broker.dial,
    openLocalEnd: (port) => {
      ports.push(port);
      return { write: (bytes) => received.push(Buffer.from(bytes).toString()) > 0, end() {}, destroy() {} };
    },
    clock,
    log: createLog('DEBUG', (line) => log.push(line)),
    random: () => 0,
    onConnected: () => {
      connections++;
    },
  });
  connectors.push({ connector, verify: broker.verify });
  expect(connector.status).toMatchObject({ state: 'stopped', connectAttempts: 0, connectedAt: null, lastError: null });
  connector.start();
  expect(connector.status).toMatchObject({ state: 'connecting', connectAttempts: 1 });
  await settled();
  return { broker, connector, ports, received, connections: () => connections };
}

const bootstrap = (pairing_id = newId()): BrokerRequest => ({
  type: 'publish_bootstrap',
  pairing_id,
  token_sha256: digestOf('a token'),
  expires_at: 1_800_000_000,
  max_uses: 4,
});

describe('contract 08 §6.1: states', () => {
  it('registers at /v1/connect, and is connected', async () => {
    const { broker, connector, connections } = await setUp();
    expect(broker.urls).toEqual(['wss://reach.example/v1/connect']);
    expect(connector.status).toMatchObject({ state: 'connected', connectedAt: clock.now() / 1000, lastError: null });
    expect(connections()).toBe(1);
  });

  it('waits 1, 2, 4, ... 60 s between attempts, with a fresh connection id each time', async () => {
    const { broker, connector } = await setUp({ answer: (accepted) => accepted.close(1000) });
    for (const delay of [1, 2, 4, 8, 16, 32, 60, 60]) {
      expect(connector.status).toMatchObject({ state: 'backoff', connectedAt: null });
      const { length } = broker.urls;
      await clock.advanceAsync(delay * 1000 - 1);
      expect(broker.urls).toHaveLength(length);
      await clock.advanceAsync(1);
      expect(broker.urls).toHaveLength(length + 1);
    }
    expect(connector.status.lastError).toBe('the broker closed the connection (1000)');
    expect(connector.status.connectAttempts).toBe(9);
  });

  it('says that another relay may have its credentials when a connection that worked is closed without a reason', () => {
    expect(otherRelayAdvice('host_busy')).toContain('Another relay');
    expect(otherRelayAdvice('the broker closed the connection (1008)')).toContain('stop one of the two');
    for (const other of ['unauthorized', 'the broker closed the connection (1006)', 'connection refused', 'null']) {
      expect(otherRelayAdvice(other)).toBeNull();
    }
  });

  it('adds up to a second or a quarter of the delay, whichever is less', () => {
    fc.assert(
      fc.property(fc.nat(5000), fc.double({ min: 0, max: 1, noNaN: true }), (failures, random) => {
        const wait = backoff(failures, random, PACE);
        const base = Math.min(60_000, 1000 * 2 ** failures);
        return wait >= base && wait <= base + Math.min(1000, base / 4);
      }),
    );
  });

  it('is in backoff after a clean close, and begins with one second again after a connection of 30 s', async () => {
    const { broker, connector } = await setUp();
    broker.last.close(1006);
    expect(connector.status.state).toBe('backoff');
    await clock.advanceAsync(1000);
    broker.last.close(1000);
    await clock.advanceAsync(1999);
    expect(connector.status.state).toBe('backoff');
    await clock.advanceAsync(1);
    expect(connector.status.state).toBe('connected');
    await clock.advanceAsync(30_000);
    broker.last.close(1000, 'bye');
    expect(connector.status).toMatchObject({
      state: 'backoff',
      lastError: 'the broker closed the connection (1000: bye)',
    });
    await clock.advanceAsync(1000);
    expect(connector.status).toMatchObject({ state: 'connected', lastError: null });
  });

  it('is back within two seconds of a restart, however often (issue 23 §2.4), and later slows down', async () => {
    const { broker, connector } = await setUp();
    for (let round = 0; round < 10; round++) {
      broker.last.close(round % 2 === 0 ? 1001 : 1012);
      const { length } = broker.urls;
      await clock.advanceAsync(499);
      expect([connector.status.state, broker.urls.length]).toEqual(['backoff', length]);
      await clock.advanceAsync(1);
      expect(connector.status.state).toBe('connected');
    }
    broker.refuse(REFUSED);
    broker.last.close(1001);
    const { length } = broker.urls;
    await clock.advanceAsync(15_000);
    expect(broker.urls.length - length).toBe(30);
    await clock.advanceAsync(15_000);
    expect(broker.urls.length - length).toBe(34);
  });

  it('gives the registration ten seconds', async () => {
    const { broker, connector } = await setUp({ answer: () => {} });
    await clock.advanceAsync(9_999);
    expect(connector.status.state).toBe('connecting');
    await clock.advanceAsync(1);
    expect(connector.status).toMatchObject({
      state: 'backoff',
      lastError: 'the broker did not answer the registration',
    });
    expect(broker.last.end).toBe('terminated');
  });

  it('reports why a broker cannot be reached, and the code of one that refuses', async () => {
    const { broker, connector } = await setUp({
      answer: (accepted) => accepted.text({ type: 'error', protocol_version: 1, code: 'unauthorized' }),
    });
    expect(connector.status).toMatchObject({ state: 'backoff', lastError: 'unauthorized' });
    broker.refuse('connection refused');
    await clock.advanceAsync(1000);
    expect(connector.status).toMatchObject({ state: 'backoff', lastError: 'connection refused' });
  });

  it('keeps the token and long texts out of the last error', async () => {
    const { broker, connector } = await setUp();
    broker.last.close(1008, `${HOST_TOKEN} ${'x'.repeat(1000)}`);
    expect(connector.status.lastError).not.toContain(HOST_TOKEN);
    expect(connector.status.lastError?.length).toBeLessThanOrEqual(500);
  });

  it('closes streams with CLOSE and the socket with 1001 when it stops', async () => {
    const { broker, connector } = await setUp();
    const id = broker.last.open();
    expect(connector.status.activeStreams).toBe(1);
    await connector.stop();
    expect(broker.last.frames).toEqual([{ type: 'close', streamId: id }]);
    expect(broker.last.end).toEqual({ code: 1001 });
    expect(connector.status).toMatchObject({
      state: 'stopped',
      activeStreams: 0,
      connectedAt: null,
      completedStreams: 1,
    });
    await clock.advanceAsync(100_000);
    expect(broker.urls).toHaveLength(1);
  });

  it.each(['connecting', 'backoff'])('stops in %s', async (state) => {
    const { broker, connector } = await setUp({ answer: (accepted) => accepted.close() });
    if (state === 'connecting') {
      broker.hang();
      await clock.advanceAsync(1000);
    }
    expect(connector.status.state).toBe(state);
    await connector.stop();
    expect(connector.status.state).toBe('stopped');
  });
});

describe('contract 08 §6.4: a broker that lies', () => {
  const frame = (flags: number, payload = 'x', version = 1) =>
    Buffer.concat([Buffer.from([version, flags]), Buffer.alloc(16, 7), Buffer.from(payload)]);
  type Broken = (accepted: ReturnType<typeof createScriptedBroker>['last']) => void;
  const lies: [string, Broken][] = [
    [
      'a stream for another connection',
      (to) => to.text({ type: 'open', protocol_version: 1, stream_id: newId(), host_connection_id: newId() }),
    ],
    ['a stream without a connection', (to) => to.text({ type: 'open', protocol_version: 1, stream_id: newId() })],
    [
      'a stream with a bad id',
      (to) => to.text({ type: 'open', protocol_version: 1, stream_id: 'x', host_connection_id: to.connectionId }),
    ],
    ['a second registration', (to) => to.text({ type: 'registered', protocol_version: 1 })],
    ['an unknown message', (to) => to.text({ type: 'reboot', protocol_version: 1 })],
    [
      'another version',
      (to) => to.text({ type: 'revoked', protocol_version: 2, credential_kind: 'route', credential_id: 'x' }),
    ],
    ['no JSON', (to) => to.text('{"type":')],
    ['deep JSON', (to) => to.text('['.repeat(100_000))],
    ['a long message', (to) => to.text({ type: 'open', protocol_version: 1, filler: 'x'.repeat(5000) })],
    ['a short frame', (to) => to.bytes(Buffer.alloc(17, 1))],
    ['another version of frames', (to) => to.bytes(frame(2, 'x', 2))],
    ['unknown flags', (to) => to.bytes(frame(6))],
    ['WINDOW without flow control', (to) => to.bytes(frame(8, '\0\0\0\x01'))],
    ['DATA without payload', (to) => to.bytes(frame(2, ''))],
    ['CLOSE with payload', (to) => to.bytes(frame(4))],
  ];

  it.each(lies)('ends the connection over %s, with no stream', async (_name, lie) => {
    const { broker, connector, ports } = await setUp();
    lie(broker.last);
    expect(connector.status).toMatchObject({ state: 'backoff', activeStreams: 0 });
    expect(connector.status.lastError).toContain('protocol violation');
    await settled();
    expect([ports.length, broker.last.end]).toEqual([0, 'terminated']);
  });

  it.each([
    [
      'text',
      (to: ReturnType<typeof createScriptedBroker>['last']) =>
        to.text({ type: 'published', protocol_version: 1, credential_kind: 'route', credential_id: 'x' }),
    ],
    ['a frame', (to: ReturnType<typeof createScriptedBroker>['last']) => to.bytes(closeFrame(newId()))],
  ])('ends the attempt over %s instead of the answer to the registration', async (_name, lie) => {
    const { connector } = await setUp({ answer: lie });
    expect(connector.status.state).toBe('backoff');
  });

  it('stays connected over acknowledgements of nothing, and DATA of unknown streams', async () => {
    const { broker, connector } = await setUp();
    broker.last.text({ type: 'published', protocol_version: 1, credential_kind: 'bootstrap', pairing_id: 'none' });
    broker.last.text({ type: 'revoked', protocol_version: 1, credential_kind: 'route', credential_id: 'none' });
    const id = newId();
    broker.last.bytes(dataFrame(id, Buffer.from('x')));
    expect(connector.status.state).toBe('connected');
    expect(broker.last.frames).toEqual([{ type: 'close', streamId: id }]);
  });

  it('survives any frames and messages', async () => {
    const { broker, connector } = await setUp();
    const garbage = fc.oneof(fc.uint8Array({ maxLength: 64 }), fc.json(), fc.string());
    await fc.assert(
      fc.asyncProperty(fc.array(garbage, { maxLength: 5 }), async (messages) => {
        for (const message of messages) {
          if (typeof message === 'string') broker.last.text(message);
          else broker.last.bytes(message);
        }
        await clock.advanceAsync(61_000);
        expect(connector.status.state).toBe('connected');
      }),
      { numRuns: 50 },
    );
  });
});

describe('contract 08 §6.4: requests', () => {
  it('is acknowledged by the message that names the same credential', async () => {
    const { broker, connector } = await setUp({ acknowledges: false });
    const [one, two] = [bootstrap(), bootstrap()];
    const done: string[] = [];
    void connector.broker?.request(one).then(() => done.push('one'));
    void connector.broker?.request(two).then(() => done.push('two'));
    broker.last.acknowledge(two);
    await settled();
    expect(done).toEqual(['two']);
    broker.last.acknowledge(one);
    await settled();
    expect(done).toEqual(['two', 'one']);
  });

  it('fails without an answer in ten seconds, without a connection, and twice for one credential', async () => {
    const { broker, connector } = await setUp({ acknowledges: false });
    const message = bootstrap();
    const link = connector.broker as HostLink;
    const failed = expect(link.request(message)).rejects.toMatchObject({ code: 'timeout' });
    await expect(link.request(message)).rejects.toMatchObject({ code: 'busy' });
    await clock.advanceAsync(10_000);
    await failed;
    const lost = expect(link.request(message)).rejects.toMatchObject({ code: 'offline' });
    broker.last.close();
    await lost;
    await expect(link.request(message)).rejects.toMatchObject({ code: 'offline' });
    expect(connector.broker).toBeUndefined();
  });

  it('fails with the code of the error that ends the connection', async () => {
    const { broker, connector } = await setUp({ acknowledges: false });
    const failed = expect(connector.broker?.request(bootstrap())).rejects.toMatchObject({ code: 'quota_exceeded' });
    broker.last.text({ type: 'error', protocol_version: 1, code: 'quota_exceeded' });
    await failed;
    expect(connector.status).toMatchObject({ state: 'backoff', lastError: 'quota_exceeded' });
  });
});

describe('contract 08 §7.6: flow control', () => {
  it('is answered once, and then WINDOW is legal', async () => {
    const { broker, connector, ports } = await setUp({ flow: { version: 1, window: 1000 } });
    expect(broker.last.requests).toEqual([{ type: 'flow', window: 262_144 }]);
    const id = broker.last.open();
    ports[0]?.send([Buffer.alloc(3000)], () => {});
    await settled();
    const sent = () => broker.last.frames.reduce((sum, one) => sum + (one.type === 'data' ? one.payload.length : 0), 0);
    expect(sent()).toBe(1000);
    broker.last.bytes(Buffer.concat([Buffer.from([1, 8]), Buffer.from(id, 'base64url'), Buffer.from([0, 0, 0x10, 0])]));
    await settled();
    expect([sent(), connector.status.state]).toEqual([3000, 'connected']);
  });

  it('is not used with an offer of another version', async () => {
    const { broker } = await setUp({ flow: { version: 2, window: 1000 } });
    expect(broker.last.requests).toEqual([]);
  });
});
