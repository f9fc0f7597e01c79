import { describe, expect, it } from 'vitest';
import type { Peer } from '../../../lib/access/peer.ts';
import { createProofs } from '../../../lib/access/proofs.ts';
import { createReadBudgets } from '../../../lib/kit/byte-budget.ts';
import { createLog } from '../../../lib/log.ts';
import { openSessions } from '../../../lib/sessions/sessions.ts';
import { createSockets, type SocketsDeps } from '../../../lib/socket/sockets.ts';
import { createTestClock } from '../../support/clock.ts';
import { codesOf, limiterOf, sessionStores } from '../../support/states.ts';

const CREDENTIAL = { kind: 'broker_route', token: 'a route token' };
const settled = () => new Promise((resolve) => setImmediate(resolve));

async function setUp(routeCredential: SocketsDeps['routeCredential']) {
  const clock = createTestClock();
  const log = createLog('ERROR', () => {});
  const sessions = await openSessions({ ...sessionStores(), clock, log });
  const codes = await codesOf(clock, log);
  const sockets = createSockets({
    channels: () => ({}),
    sessions,
    codes,
    limiter: await limiterOf(clock),
    proofs: createProofs(clock),
    clock,
    log,
    budgets: createReadBudgets(1024, clock),
    version: '1.0.0',
    profiles: () => [],
    routeCredential,
  });
  await codes.register('ABC123', {});
  return {
    sessions,
    /** Authenticates with the code: what the socket is sent. */
    async authenticate(via: Peer['via']) {
      const sent: { type: string; payload: Record<string, unknown> }[] = [];
      const transport = {
        id: crypto.randomUUID(),
        send: (data: string | Uint8Array) => void sent.push(JSON.parse(String(data))),
        close() {},
        terminate() {},
        unsent: () => 0,
        pause: () => true,
        resume() {},
      };
      const peer = { address: '127.0.0.1', tls: true, via };
      const socket = sockets.open(transport, { peer, key: 'somebody', transportHint: 'wss' });
      const payload = { pairing_code: 'ABC123', route_credential: true };
      socket.message(JSON.stringify({ channel: 'system', type: 'auth', id: '1', payload }));
      await settled();
      return sent;
    },
  };
}

describe('contract 08 §6.4: route_credential of auth.ok', () => {
  it.each(['secure-link', 'reach'] as const)('is there over %s', async (via) => {
    const { authenticate } = await setUp(async () => CREDENTIAL);
    expect(await authenticate(via)).toMatchObject([{ type: 'auth.ok', payload: { route_credential: CREDENTIAL } }]);
  });

  it.each(['direct', 'ingress', 'edge'] as const)('is never there over %s', async (via) => {
    let asked = 0;
    const { authenticate } = await setUp(async () => {
      asked++;
      return CREDENTIAL;
    });
    const [answer] = await authenticate(via);
    expect(answer?.type).toBe('auth.ok');
    expect(answer?.payload).not.toHaveProperty('route_credential');
    expect(asked).toBe(0);
  });

  it('is left out where there is none', async () => {
    for (const credential of [undefined, async () => undefined]) {
      const { authenticate } = await setUp(credential);
      const [answer] = await authenticate('reach');
      expect(answer?.type).toBe('auth.ok');
      expect(answer?.payload).not.toHaveProperty('route_credential');
    }
  });

  it('is not waited for by a session that ends meanwhile', async () => {
    const test = await setUp(async (session) => {
      await test.sessions.revoke(session);
      return CREDENTIAL;
    });
    expect(await test.authenticate('reach')).toMatchObject([{ type: 'auth.fail' }]);
  });
});
