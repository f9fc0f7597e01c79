import { describe, expect, it } from 'vitest';
import type { Refusal } from '../../../lib/access/local-operator.ts';
import type { Peer } from '../../../lib/access/peer.ts';
import { createProofs } from '../../../lib/access/proofs.ts';
import { createSessionBearers } from '../../../lib/access/session-bearers.ts';
import type { Policy } from '../../../lib/sessions/grants.ts';
import {
  createVoiceCallers,
  isSamePrincipal,
  type VoiceCaller,
  type VoicePrincipal,
} from '../../../lib/voice/principal.ts';
import { createTestLog } from '../../support/log.ts';
import { memoryStores } from '../../support/states.ts';
import { setup as setupSessions } from '../sessions/setup.ts';

const KEY = 'the API key';
const DAY = 86_400;

/** Callers of voice over sessions on a stopped clock. The API server accepts `KEY`. */
async function setup({ config = {}, local = 'remote' as Refusal | null, ownKey = '' } = {}) {
  const { sessions, clock, pair } = await setupSessions();
  const log = createTestLog();
  const security = { allowInsecureApiBearer: false };
  const probed: string[] = [];
  const callers = await createVoiceCallers({
    config: { webapiUrl: 'http://api.example', trustProxyHeaders: false, trustVpnPeers: false, ...config },
    upstream: async ({ headers }) => {
      const token = headers.authorization?.replace('Bearer ', '') ?? '';
      probed.push(token);
      return { status: [KEY, ownKey].includes(token) ? 200 : 401, headers: {}, body: (async function* () {})() };
    },
    sessions,
    sessionBearers: createSessionBearers({ sessions, proofs: createProofs(clock) }),
    security: security as never,
    localOperator: { refusal: async () => local ?? undefined },
    apiKey: async () => ownKey,
    store: memoryStores().open('voice-callers'),
    clock,
    log,
  });
  const sessionOf = async (policy: Policy = {}, id = 'the-phone') => {
    const { session, token, refreshToken } = await pair({ id }, policy);
    const principal = await callers.authenticate(caller(token), 'voice:tts');
    return { session, token, refreshToken, principal };
  };
  /** Watches a principal's use of `voice:tts`; the returned list has the reasons of its end. */
  const watch = async (principal: VoicePrincipal) => {
    const ends: string[] = [];
    const stop = callers.onPrincipalEnded(principal, 'voice:tts', (reason) => ends.push(reason));
    await Promise.resolve();
    return { ends, stop };
  };
  return { callers, sessions, clock, security, probed, log, sessionOf, watch };
}

function caller(token: string, peer: Partial<Peer> = {}, headers: Record<string, string> = {}): VoiceCaller {
  return {
    peer: { address: '192.0.2.1', tls: false, via: 'direct', ...peer },
    headers: new Headers({ authorization: `Bearer ${token}`, ...headers }),
    method: 'GET',
    url: 'http://192.0.2.2/voice/output/config',
  };
}

const refused = { kind: 'forbidden', message: expect.stringContaining('HTTPS') };

describe('the transport of an API key (contract 05 §2)', () => {
  it.each([
    ['TLS', { tls: true }, true],
    ['Secure Link without TLS', { via: 'secure-link' }, false],
    ['plain http', {}, false],
    ['a VPN address', { address: '100.100.1.2' }, false],
  ] as const)('%s: %s', async (_name, peer, passes) => {
    const { callers, probed } = await setup();
    const answer = callers.authenticate(caller(KEY, peer), 'voice:tts');
    await (passes
      ? expect(answer).resolves.toMatchObject({ kind: 'api' })
      : expect(answer).rejects.toMatchObject(refused));
    expect(probed).toHaveLength(passes ? 2 : 0);
  });

  it.each([
    ['100.64.0.0', true],
    ['100.127.255.255', true],
    ['::ffff:100.100.1.2', true],
    ['100.63.255.255', false],
    ['100.128.0.0', false],
    ['10.64.0.1', false],
    ['100::64', false],
    [null, false],
  ])('with RELAY_TRUST_VPN_PEERS %s: %s', async (address, passes) => {
    const { callers } = await setup({ config: { trustVpnPeers: true } });
    const answer = callers.authenticate(caller(KEY, { address }), 'voice:tts');
    await (passes ? expect(answer).resolves.toBeDefined() : expect(answer).rejects.toMatchObject(refused));
    // Neither an address in a header nor one at another end of the relay counts.
    const forwarded = caller(KEY, {}, { 'x-forwarded-for': address ?? '', 'x-real-ip': address ?? '' });
    await expect(callers.authenticate(forwarded, 'voice:tts')).rejects.toMatchObject(refused);
    const through = caller(KEY, { address, via: 'reach' });
    await expect(callers.authenticate(through, 'voice:tts')).rejects.toMatchObject(refused);
  });

  it('a local caller of another user is not strictly local', async () => {
    const { callers } = await setup({ local: 'other-user' });
    const local = caller(KEY, { address: '127.0.0.1' });
    await expect(callers.authenticate(local, 'voice:tts')).rejects.toMatchObject(refused);
  });

  it('a remembered key is still refused over plain http', async () => {
    const { callers, security, probed } = await setup();
    security.allowInsecureApiBearer = true;
    await callers.authenticate(caller(KEY), 'voice:tts');
    security.allowInsecureApiBearer = false;
    await expect(callers.authenticate(caller(KEY), 'voice:tts')).rejects.toMatchObject(refused);
    expect(probed).toContain(KEY);
  });
});

describe('what the relay has issued itself (contract 05 §2)', () => {
  it('is never sent to the API server: dead sessions, and refresh tokens of live ones', async () => {
    const { callers, sessions, sessionOf, probed } = await setup({ local: null });
    const { session, token, refreshToken = '' } = await sessionOf();
    await expect(callers.authenticate(caller(refreshToken), 'voice:tts')).rejects.toMatchObject({
      kind: 'unauthorized',
    });
    await sessions.revoke(session);
    await expect(callers.authenticate(caller(token), 'voice:tts')).rejects.toMatchObject({ kind: 'unauthorized' });
    expect(probed).toEqual([]);
  });

  it("may look like the host's own API key", async () => {
    const ownKey = crypto.randomUUID();
    const { callers, probed } = await setup({ local: null, ownKey });
    await callers.authenticate(caller(ownKey), 'voice:tts');
    await expect(callers.authenticate(caller(crypto.randomUUID()), 'voice:tts')).rejects.toThrow();
    expect(probed).toEqual([ownKey]);
  });
});

describe('principals (contract 05 §2, §12)', () => {
  it('are the same by device, and by API key', async () => {
    const { callers, sessionOf, sessions } = await setup({ local: null });
    const phone = await sessionOf();
    const renewed = await sessions.refresh(phone.refreshToken as string, phone.session.device);
    const again = await callers.authenticate(caller(renewed?.token ?? ''), 'voice:tts');
    const other = await sessionOf({}, 'another');
    const [nameless, nameless2] = [await sessionOf({}, 'unknown'), await sessionOf({}, 'unknown')];
    const api = await callers.authenticate(caller(KEY), 'voice:tts');
    expect(isSamePrincipal(phone.principal, again)).toBe(true);
    expect(isSamePrincipal(phone.principal, other.principal)).toBe(false);
    expect(isSamePrincipal(nameless.principal, nameless2.principal)).toBe(false);
    expect(isSamePrincipal(api, await callers.authenticate(caller(KEY), 'voice:realtime'))).toBe(true);
    expect(isSamePrincipal(api, { ...phone.principal, key: api.key })).toBe(false);
  });
});

describe('the end of a principal (contract 05 §12)', () => {
  it('is the end of its session', async () => {
    const { sessions, sessionOf, watch } = await setup();
    const [revoked, other] = [await sessionOf(), await sessionOf({}, 'another')];
    const [first, second, stays] = [
      await watch(revoked.principal),
      await watch(revoked.principal),
      await watch(other.principal),
    ];
    await sessions.revoke(revoked.session);
    expect([first.ends, second.ends, stays.ends]).toEqual([['session revoked'], ['session revoked'], []]);
  });

  it('is the expiry of its session, at that time', async () => {
    const { clock, sessionOf, watch } = await setup();
    const { ends } = await watch((await sessionOf({ ttlSeconds: 100 })).principal);
    clock.advance(99_999);
    expect(ends).toEqual([]);
    clock.advance(1);
    expect(ends).toEqual(['session expired']);
  });

  it('is the expiry of the grant, while the session goes on', async () => {
    const { clock, sessions, sessionOf, watch } = await setup();
    const { principal, session } = await sessionOf({ grants: { 'voice:tts': 1, 'voice:stt': 2 } });
    const { ends } = await watch(principal);
    clock.advance(999);
    expect(ends).toEqual([]);
    clock.advance(1);
    expect(ends).toEqual(['voice:tts grant ended']);
    expect(sessions.isAlive(session)).toBe(true);
    clock.advance(5_000);
    expect(ends).toHaveLength(1);
  });

  it('follows a reduction of the grant, and of the session', async () => {
    const { clock, sessions, sessionOf, watch } = await setup();
    const [one, two, three] = [await sessionOf(), await sessionOf({}, 'two'), await sessionOf({}, 'three')];
    const watches = [await watch(one.principal), await watch(two.principal), await watch(three.principal)];
    await sessions.reduce(one.session, { grants: { 'voice:tts': 10 } });
    await sessions.reduce(two.session, { ttlSeconds: 20 });
    await sessions.reduce(three.session, { grants: { 'voice:stt': 1 } });
    clock.advance(10_000);
    expect(watches.map(({ ends }) => ends.length)).toEqual([1, 0, 0]);
    clock.advance(10_000);
    expect(watches.map(({ ends }) => ends)).toEqual([['voice:tts grant ended'], ['session expired'], []]);
  });

  it('is not a refresh, after which it follows the new session', async () => {
    const { clock, sessions, sessionOf, watch } = await setup();
    const { principal, session, refreshToken } = await sessionOf({ grants: { 'voice:tts': 100 } });
    const { ends } = await watch(principal);
    clock.advance(50_000);
    const renewed = await sessions.refresh(refreshToken as string, session.device);
    await Promise.resolve();
    expect(ends).toEqual([]);
    clock.advance(50_000);
    expect(ends).toEqual(['voice:tts grant ended']);

    const again = await sessionOf({}, 'another');
    const second = await watch(again.principal);
    const next = await sessions.refresh(again.refreshToken as string, again.session.device);
    await Promise.resolve();
    await sessions.revoke(next?.session as never);
    expect(second.ends).toEqual(['session revoked']);
    expect(renewed).toBeDefined();
  });

  it('is a new pairing of its device', async () => {
    const { sessionOf, watch } = await setup();
    const { ends } = await watch((await sessionOf()).principal);
    await sessionOf();
    await Promise.resolve();
    expect(ends).toEqual(['session replaced']);
  });

  it('is reported when it came before the watch, but not before the watch is there', async () => {
    const { callers, sessions, sessionOf, clock } = await setup();
    const { principal, session } = await sessionOf();
    await sessions.revoke(session);
    const ends: string[] = [];
    callers.onPrincipalEnded(principal, 'voice:tts', (reason) => ends.push(reason));
    expect(ends).toEqual([]);
    await Promise.resolve();
    expect(ends).toEqual(['session revoked']);
    expect(clock.pending).toBe(0);
  });

  it('is not reported to a watch that was stopped, which leaves no timer', async () => {
    const { sessions, sessionOf, watch, clock } = await setup();
    const { principal, session } = await sessionOf({ ttlSeconds: DAY });
    const before = clock.pending;
    const { ends, stop } = await watch(principal);
    expect(clock.pending).toBe(before + 1);
    stop();
    stop();
    expect(clock.pending).toBe(before);
    await sessions.revoke(session);
    expect(ends).toEqual([]);
  });

  it('never comes for an API key', async () => {
    const { callers, clock } = await setup({ local: null });
    const api = await callers.authenticate(caller(KEY), 'voice:tts');
    const ends: string[] = [];
    const stop = callers.onPrincipalEnded(api, 'voice:tts', (reason) => ends.push(reason));
    clock.advance(DAY * 1000);
    stop();
    expect(ends).toEqual([]);
  });
});
