import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { describe, expect, it, onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import {
  MOUNT,
  SIGNED_IN,
  startDashboard,
  startRecorder,
  type TestDashboard,
  TRANSPORT,
} from '../support/dashboard.ts';
import { type FaultKind, startFlakyProxy } from '../support/flaky-proxy.ts';
import { TIMEOUT } from '../support/limits.ts';
import { connectRaw, request } from '../support/raw-socket.ts';

const SESSION = { ...SIGNED_IN, 'x-svc-relay-session': 'a-session' };
const MEDIA = `${TRANSPORT}/media/${'T'.repeat(32)}`;

/** A socket through the ingress. */
function dial({ port }: TestDashboard): WebSocket {
  const client = new WebSocket(`ws://127.0.0.1:${port}${TRANSPORT}/ws?ticket=good`, { perMessageDeflate: false });
  client.on('error', () => {});
  onTestFinished(() => client.terminate());
  return client;
}

/** How a socket ends: its close code, or the status by which it was refused. */
const endOf = (client: WebSocket): Promise<number> =>
  Promise.race([
    once(client, 'close').then(([code]) => code as number),
    once(client, 'unexpected-response').then(([asked, answer]) => {
      asked.destroy();
      return answer.statusCode as number;
    }),
  ]);

/** Unlike `once`, takes an abort for a close. */
const closeOf = (asked: IncomingMessage) => new Promise((resolve) => asked.once('close', resolve));

describe('bodies that arrive slowly, or not at all', () => {
  /** A relay that reads bodies, and the requests that it got. */
  async function startReader() {
    const got: IncomingMessage[] = [];
    const recorder = await startRecorder((req, res) => {
      got.push(req);
      req.on('error', () => {});
      req.resume().on('end', () => res.end('{}'));
      recorder.server.emit('asked', req);
    });
    return { ...recorder, server: recorder.server, got };
  }

  const begun = (path: string, length = 10) =>
    request('POST', path, { ...SESSION, 'content-length': String(length) }, 'x');

  it('an upload that stalls ends with 504, and the call to the relay with it', async () => {
    const relay = await startReader();
    const dashboard = await startDashboard({ relayPort: relay.port, limits: { http: { idle: 1_000 } } });
    const client = await connectRaw(dashboard.port);
    onTestFinished(client.destroy);
    client.write(begun(`${TRANSPORT}/media/upload`));
    const [asked] = (await once(relay.server, 'asked')) as [IncomingMessage];
    const ended = closeOf(asked);
    const { status, body } = await client.response();
    expect([status, JSON.parse(body)]).toEqual([504, { detail: 'relay transport timed out' }]);
    await ended;
    expect(asked.complete).toBe(false);
  });

  it('an upload that trickles for ever ends at the total limit', async () => {
    const relay = await startReader();
    const limits = { http: { idle: 1_000, total: 300 } };
    const dashboard = await startDashboard({ relayPort: relay.port, limits });
    const client = await connectRaw(dashboard.port);
    onTestFinished(client.destroy);
    client.write(begun(`${TRANSPORT}/media/upload`, 1_000_000));
    const drip = setInterval(() => client.write('x'), 20);
    onTestFinished(() => clearInterval(drip));
    expect((await client.response()).status).toBe(504);
  });

  it('a client that half-closes or resets in a body ends the call to the relay', async () => {
    const relay = await startReader();
    const dashboard = await startDashboard({ relayPort: relay.port });
    for (const leave of ['end', 'resetAndDestroy'] as const) {
      const client = await connectRaw(dashboard.port);
      client.write(begun(`${TRANSPORT}/media/upload`));
      const [asked] = (await once(relay.server, 'asked')) as [IncomingMessage];
      const ended = closeOf(asked);
      client.socket[leave]();
      await ended;
      expect(asked.complete).toBe(false);
      client.destroy();
    }
  });

  it('a draft that is cut off stores nothing', async () => {
    const dashboard = await startDashboard({ relayPort: 1 });
    const draft = JSON.stringify({
      title: 'A',
      document: { schemaVersion: 1, pages: [{ id: 'a', title: {}, content: { type: 'text', id: 'a' } }] },
    });
    const put = (length: number) =>
      request('PUT', `${MOUNT}/mobile/plugins/a/draft`, { ...SIGNED_IN, 'content-length': String(length) }, draft);
    const cut = await connectRaw(dashboard.port);
    cut.write(put(draft.length + 1));
    cut.socket.end();
    await cut.ended();
    const list = async () => {
      const answer = await fetch(`${dashboard.url}${MOUNT}/mobile/plugins`, { headers: SIGNED_IN });
      return (await answer.json()).plugins.length;
    };
    expect(await list()).toBe(0);
    const whole = await connectRaw(dashboard.port);
    onTestFinished(whole.destroy);
    whole.write(put(draft.length));
    expect((await whole.response()).status).toBe(200);
    expect(await list()).toBe(1);
  });
});

describe('a relay behind a bad connection', () => {
  const BODY = Buffer.alloc(300_000, 'relay');

  /** The dashboard in front of a flaky way to a relay that serves a body of a known length. */
  async function start(faults: FaultKind[]) {
    const relay = await startRecorder((req, res) => {
      req.resume().on('end', () => res.writeHead(200, { 'content-length': BODY.length }).end(BODY));
    });
    const proxy = await startFlakyProxy({ port: relay.port, seed: 14, faults, after: [0, 200_000] });
    onTestFinished(() => proxy.close());
    const limits = { http: { idle: 200, total: 1_000 }, sockets: { check: 20, ping: 50, idle: 1_500 } };
    const dashboard = await startDashboard({ relayPort: proxy.port, limits });
    return { relay, proxy, dashboard };
  }

  it.each<FaultKind>(['cut', 'reset', 'stall', 'half-open'])(
    'gives the whole body or a failure, never a part as the whole: %s',
    async (fault) => {
      const { proxy, dashboard } = await start([fault]);
      const upload = new Uint8Array(150_000);
      const ask = async (method: string, path: string) => {
        const init = { method, headers: SESSION, ...(method === 'POST' && { body: upload }) };
        try {
          const answer = await fetch(dashboard.url + path, init);
          const body = Buffer.from(await answer.arrayBuffer());
          return answer.status === 200 ? body.equals(BODY) : answer.status;
        } catch {
          return 'broken off';
        }
      };
      const calls = Array.from({ length: 12 }, (_, at) =>
        at % 2 === 0 ? ask('GET', MEDIA) : ask('POST', `${TRANSPORT}/media/upload`),
      );
      for (const outcome of await Promise.all(calls)) expect([true, 502, 504, 'broken off']).toContain(outcome);
      expect(proxy.strikes.length).toBeGreaterThan(0);
      proxy.plan(['none']);
      // A connection that was kept may still break once.
      await expect.poll(() => ask('GET', MEDIA), { timeout: TIMEOUT }).toBe(true);
    },
  );

  it('ends a socket whose way to the relay breaks, and takes the next one at once', async () => {
    const { relay, proxy, dashboard } = await start(['none']);
    for (const [fault, code] of [
      ['cut', 1011],
      ['reset', 1011],
      ['stall', 1011],
      ['half-open', 1011],
    ] as const) {
      const client = dial(dashboard);
      await Promise.all([once(client, 'open'), once(relay.server, 'opened')]);
      const end = endOf(client);
      proxy.strike(fault, 'down');
      expect([fault, await end]).toEqual([fault, code]);
    }
    const client = dial(dashboard);
    await once(client, 'open');
  });

  it('closes sockets when the relay is gone, refuses new ones, and takes them when it is back', async () => {
    const relay = await startRecorder();
    const dashboard = await startDashboard({ relayPort: relay.port });
    const clients = Array.from({ length: 5 }, () => dial(dashboard));
    const opened = Promise.all(clients.map((client) => once(client, 'open')));
    await expect.poll(() => relay.sockets.length, { timeout: TIMEOUT }).toBe(5);
    await opened;
    const ends = Promise.all(clients.map(endOf));
    relay.server.close();
    for (const socket of relay.sockets) socket.terminate();
    expect(await ends).toEqual([1011, 1011, 1011, 1011, 1011]);
    expect(await endOf(dial(dashboard))).toBe(502);
    relay.server.listen(relay.port, '127.0.0.1');
    await once(relay.server, 'listening');
    const again = dial(dashboard);
    await once(again, 'open');
    again.send('hello');
    const [said] = await once(relay.sockets.at(-1) as WebSocket, 'message');
    expect(String(said)).toBe('hello');
  });
});

describe('the credential of a live session (contract 07 §4.2)', () => {
  it.each([
    ['hangs', () => new Promise<never>(() => {})],
    ['rejects', () => Promise.reject(new Error('secret'))],
    [
      'throws',
      () => {
        throw new Error('secret');
      },
    ],
    ['answers at once', () => null as unknown as Promise<null>],
  ])('a dashboard that %s costs the report nothing but that', async (_name, activeCredential) => {
    const dashboard = await startDashboard({ relayPort: 1, limits: { decision: 50 }, activeCredential });
    const answer = await fetch(`${dashboard.url}${MOUNT}/provider-usage?session_id=s`, { headers: SIGNED_IN });
    const body = await answer.json();
    expect([answer.status, body.providers.length]).toEqual([200, 4]);
    expect(JSON.stringify(body)).not.toContain('secret');
  });
});
