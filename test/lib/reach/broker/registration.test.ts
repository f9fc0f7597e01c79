import { describe, expect, it } from 'vitest';
import { digestOf } from '../../../../lib/kit/sha256.ts';
import { newId, newToken } from '../../../../lib/reach/ids.ts';
import { encodeMessage } from '../../../../lib/reach/messages.ts';
import { createTestClock } from '../../../support/clock.ts';
import { dataFrame } from '../../../support/frames.ts';
import { World, type WorldSocket } from './world.ts';

const refused = (code: string) => ({ json: [{ type: 'error', protocol_version: 1, code }], closed: 1008 });
const DAY = 24 * 3_600_000;

describe('registration §7.3', () => {
  it('admits a host, and offers flow control', () => {
    const host = new World().host();
    expect(host.json).toEqual([{ type: 'registered', protocol_version: 1, flow: { version: 1, window: 262_144 } }]);
    expect(host.closed).toBeUndefined();
  });

  it('refuses an unknown host and a wrong token in the same way', () => {
    const world = new World();
    expect(world.host({ token: newToken() })).toMatchObject(refused('unauthorized'));
    expect(world.host({ host_id: newId() })).toMatchObject(refused('unauthorized'));
  });

  it('takes either of two digests while a token is replaced', () => {
    const tokens = [newToken(), newToken()] as const;
    const id = newId();
    const world = new World({ hosts: new Map([[id, tokens.map(digestOf)]]) });
    for (const token of tokens) {
      const host = world.host({ host_id: id, token });
      expect(host.json[0].type).toBe('registered');
      world.drop(host);
    }
  });

  it('refuses a first message that is binary, and one that comes too late', async () => {
    const world = new World();
    const [binary, late] = [world.open(), world.open()];
    world.send(binary, new Uint8Array(3));
    expect(binary).toMatchObject(refused('unauthorized'));
    await world.pass(9_000);
    expect(late.closed).toBeUndefined();
    await world.pass(1_000);
    expect(late).toMatchObject(refused('unauthorized'));
  });

  it('answers a second registration of a host with host_busy and leaves the first alone', () => {
    const world = new World();
    const first = world.host();
    expect(world.host()).toMatchObject(refused('host_busy'));
    expect([first.closed, first.probes]).toEqual([undefined, 1]);
    // Nobody else can have it probed.
    world.host({ token: newToken() });
    expect(first.probes).toBe(1);
    world.drop(first);
    expect(world.host().closed).toBeUndefined();
  });

  it('lets a second registration replace the first once that is old enough (§8)', async () => {
    const world = new World({ replaceAfter: 10_000 });
    const first = world.host();
    const { client } = world.match(first);
    expect(world.host()).toMatchObject(refused('host_busy'));
    await world.pass(10_000);
    const second = world.host();
    expect([first.closed, client.closed, second.closed]).toEqual([1008, 1001, undefined]);
    expect(world.broker.counts()).toEqual({ hosts_online: 1, active_streams: 0 });
  });

  it('counts the age of a registration over a loss of its memory (§8)', async () => {
    const world = new World({ replaceAfter: 10_000 });
    const first = world.host();
    const snapshot = structuredClone(world.broker.snapshot(first));
    const { hostId: host_id, hostToken: token } = world;
    const woken = new World({ replaceAfter: 10_000, hosts: new Map([[host_id, [digestOf(token)]]]) });
    woken.clock.advance(9_999);
    expect(woken.broker.restore(first, snapshot as never)).toBe(true);
    expect(woken.host({ host_id, token })).toMatchObject(refused('host_busy'));
    woken.clock.advance(1);
    expect([woken.host({ host_id, token }).closed, first.closed]).toEqual([undefined, 1008]);
  });

  it('refuses a connection ID that was used before, of a host or a client', () => {
    const world = new World();
    const connection_id = newId();
    const host = world.host({ connection_id });
    expect(world.register({ token: world.route(host), connection_id })).toMatchObject(refused('replayed'));
    world.drop(host);
    expect(world.host({ connection_id })).toMatchObject(refused('replayed'));
  });

  it('remembers 65,536 connection IDs: one more, and the oldest is forgotten at once (§7.7)', () => {
    const end = createTestClock().now() / 1000 + 3600;
    const ids = Array.from({ length: 65_536 }, newId);
    const [oldest, , third] = ids as [string, string, string];
    // A store returns them in any order.
    const stored = ids.map((connection_id, at) => ({ connection_id, expires_at: end + at })).reverse();
    const world = new World({ stored, keepsSeen: true });
    expect(world.host({ connection_id: oldest })).toMatchObject(refused('replayed'));
    world.holdsSaves = true;
    const host = world.host();
    const forgotten = world.held.flatMap(({ changes }) => changes).filter(({ record }) => record === null);
    expect(forgotten).toEqual([{ table: 'seen', digest: oldest, record: null }]);
    world.drop(host);
    expect(world.host({ connection_id: oldest }).json[0]).toMatchObject({ type: 'registered' });
    expect(world.host({ connection_id: third })).toMatchObject(refused('replayed'));
  });

  it('checks a client in the order of the contract', async () => {
    const world = new World();
    const host = world.host();
    const route = world.route(host);
    const bootstrap = world.bootstrap(host);
    const other = world.bootstrap(host, 1, 10);
    const unknown = { token: newToken() };
    expect(world.register(unknown)).toMatchObject(refused('unauthorized'));
    expect(world.register({ token: route, host_id: newId() })).toMatchObject(refused('unauthorized'));
    expect(world.register({ token: route, credential_kind: 'bootstrap' })).toMatchObject(refused('unauthorized'));
    expect(world.register({ token: bootstrap, credential_kind: 'bootstrap' }).json[0].type).toBe('matched');
    expect(world.register({ token: bootstrap, credential_kind: 'bootstrap' })).toMatchObject(refused('replayed'));
    await world.pass(11_000);
    expect(world.register({ token: other, credential_kind: 'bootstrap' })).toMatchObject(refused('expired'));
    world.drop(host);
    expect(world.register({ token: other, credential_kind: 'bootstrap' })).toMatchObject(refused('expired'));
    expect(world.register({ token: bootstrap, credential_kind: 'bootstrap' })).toMatchObject(refused('replayed'));
    expect(world.register({ token: route })).toMatchObject(refused('host_offline'));
    world.clock.advance(DAY);
    expect(world.register({ token: other, credential_kind: 'bootstrap' })).toMatchObject(refused('unauthorized'));
  });

  it('spends no use while the host is offline', () => {
    const world = new World();
    const first = world.host();
    const token = world.bootstrap(first, 2);
    world.drop(first);
    expect(world.register({ token, credential_kind: 'bootstrap' })).toMatchObject(refused('host_offline'));
    world.host();
    for (const answer of ['matched', 'matched', 'error']) {
      expect(world.register({ token, credential_kind: 'bootstrap' }).json[0].type).toBe(answer);
    }
  });

  it('limits streams per route to 6 and per host to 16', () => {
    const world = new World();
    const host = world.host();
    const token = world.route(host);
    for (let index = 0; index < 6; index++) world.match(host, token);
    expect(world.register({ token })).toMatchObject(refused('host_busy'));
    for (let index = 6; index < 16; index++) world.match(host);
    expect(world.register({ token: world.route(host) })).toMatchObject(refused('host_busy'));
    expect(world.broker.counts().active_streams).toBe(16);
  });

  it('limits hosts online to 256', () => {
    const tokens = Array.from({ length: 257 }, newToken);
    const ids = tokens.map(() => newId());
    const world = new World({
      hosts: new Map(tokens.map((token, index) => [ids[index] as string, [digestOf(token)]])),
    });
    const sockets = tokens.map((token, index) =>
      world.register({ role: 'host', credential_kind: 'host', host_id: ids[index] as string, token }),
    );
    expect(sockets.filter(({ closed }) => closed === undefined)).toHaveLength(256);
    expect(sockets.at(-1)).toMatchObject(refused('host_busy'));
  });

  it('shows neither tokens, digests nor whole IDs in its log', () => {
    const world = new World();
    const host = world.host();
    const token = world.bootstrap(host);
    world.register({ token, credential_kind: 'bootstrap' });
    world.register({ token, credential_kind: 'bootstrap' });
    world.register({ token: newToken() });
    world.drop(host);
    const log = world.log.join('\n');
    expect(log).toContain(world.hostId.slice(0, 6));
    const secrets = [world.hostToken, token, world.hostId, digestOf(token), digestOf(world.hostToken)];
    for (const secret of secrets) expect(log).not.toContain(secret);
  });
});

describe('control §7.4', () => {
  it('acknowledges a publication after it is stored, and the credential works after a restart', () => {
    const world = new World();
    const host = world.host();
    world.holdsSaves = true;
    const token = world.route(host, 'route-1');
    expect(host.json).toHaveLength(1);
    world.releaseSaves();
    const published = { type: 'published', protocol_version: 1, credential_kind: 'route', credential_id: 'route-1' };
    expect(host.json[1]).toEqual(published);
    const again = new World({
      hosts: new Map([[world.hostId, [digestOf(world.hostToken)]]]),
      stored: [...world.stored.values(), { junk: 1 }, null],
    });
    again.host({ host_id: world.hostId, token: world.hostToken });
    expect(again.register({ host_id: world.hostId, token }).json[0].type).toBe('matched');
  });

  it('remembers a consumed bootstrap over a restart, on disk before the client is matched', () => {
    const world = new World();
    const host = world.host();
    const token = world.bootstrap(host);
    world.holdsSaves = true;
    const client = world.register({ token, credential_kind: 'bootstrap' });
    expect([client.json, host.json.length]).toEqual([[], 2]);
    world.releaseSaves();
    expect([client.json[0].type, host.json[2].type]).toEqual(['matched', 'open']);
    const again = new World({
      hosts: new Map([[world.hostId, [digestOf(world.hostToken)]]]),
      stored: [...world.stored.values()],
    });
    const replay = again.register({ host_id: world.hostId, token, credential_kind: 'bootstrap' });
    expect(replay).toMatchObject(refused('replayed'));
  });

  it('closes the host without an answer when nothing can be stored, and matches nobody', () => {
    const world = new World();
    const host = world.host();
    const token = world.bootstrap(host);
    world.holdsSaves = true;
    const client = world.register({ token, credential_kind: 'bootstrap' });
    world.releaseSaves(false);
    expect(client).toMatchObject({ messages: [], closed: 1011 });
    world.route(host);
    world.releaseSaves(false);
    expect(host.closed).toBe(1011);
    expect(host.json).toHaveLength(2);
  });

  it('replaces the route of a credential ID, and its open streams stay', () => {
    const world = new World();
    const host = world.host();
    const old = world.route(host, 'same');
    const { client, id } = world.match(host, old);
    const next = world.route(host, 'same');
    expect(world.register({ token: old })).toMatchObject(refused('unauthorized'));
    expect(world.register({ token: next }).json[0].type).toBe('matched');
    world.send(host, dataFrame(id, Uint8Array.of(7)));
    expect(client.received).toEqual([7]);
    expect([...world.stored.keys()].filter((key) => key.startsWith('credential:'))).toHaveLength(1);
  });

  it('revokes a route with its streams, any number of times', () => {
    const world = new World();
    const host = world.host();
    const token = world.route(host, 'gone');
    const { client, id } = world.match(host, token);
    const { client: other } = world.match(host);
    const revoke = encodeMessage({ type: 'revoke', credential_kind: 'route', credential_id: 'gone' });
    world.send(host, revoke);
    world.send(host, revoke);
    expect([client.closed, other.closed]).toEqual([1000, undefined]);
    expect(host.frames).toEqual([{ type: 'close', streamId: id }]);
    expect(host.json.filter(({ type }) => type === 'revoked')).toHaveLength(2);
    expect(world.register({ token })).toMatchObject(refused('unauthorized'));
  });

  it('lets a client whose route is revoked take what its host had sent before', () => {
    const world = new World();
    const host = world.host();
    const { client, id } = world.match(host, world.route(host, 'gone'));
    client.isFast = false;
    for (let index = 0; index < 10; index++) world.send(host, dataFrame(id, new Uint8Array(100_000).fill(index)));
    world.send(host, encodeMessage({ type: 'revoke', credential_kind: 'route', credential_id: 'gone' }));
    expect(host.frames).toEqual([{ type: 'close', streamId: id }]);
    expect(client.closed).toBeUndefined();
    world.send(client, new Uint8Array(10));
    world.take(client);
    expect([client.received.length, client.received.at(-1), client.closed]).toEqual([1_000_000, 9, 1000]);
    expect(host.frames).toHaveLength(1);
  });

  it('refuses what is invalid, in the past or too far ahead, and closes the host', () => {
    const bad = (change: object) => {
      const world = new World();
      const host = world.host();
      const now = world.clock.now() / 1000;
      const message = { type: 'publish_bootstrap', protocol_version: 1, pairing_id: 'p', max_uses: 1 };
      world.send(host, JSON.stringify({ ...message, token_sha256: digestOf('t'), expires_at: now + 60, ...change }));
      return host.closed === undefined ? 'accepted' : world.codeOf(host);
    };
    const now = new World().clock.now() / 1000;
    expect(bad({})).toBe('accepted');
    expect(bad({ expires_at: new Date((now + 60) * 1000).toISOString() })).toBe('accepted');
    expect(bad({ expires_at: now })).toBe('unauthorized');
    expect(bad({ expires_at: now + 86_401 })).toBe('unauthorized');
    expect(bad({ max_uses: 9 })).toBe('unauthorized');
    expect(bad({ extra: 1 })).toBe('unauthorized');
    expect(bad({ type: 'register' })).toBe('unauthorized');
    expect(bad({ extra: 'x'.repeat(4096) })).toBe('quota_exceeded');
  });

  it('refuses a digest that another host has, and a 1025th credential', async () => {
    const [one, two] = [newToken(), newToken()];
    const ids = [newId(), newId()] as const;
    const hosts = new Map([
      [ids[0], [digestOf(one)]],
      [ids[1], [digestOf(two)]],
    ]);
    const world = new World({ hosts });
    const first = world.host({ host_id: ids[0], token: one });
    const second = world.host({ host_id: ids[1], token: two });
    const token = world.route(first);
    world.route(second, 'x', token);
    expect(world.codeOf(second)).toBe('unauthorized');
    for (let index = 1; index < 1024; index++) world.bootstrap(first, 1, 60);
    expect(first.closed).toBeUndefined();
    // Expired entries give way.
    await world.pass(61_000);
    world.bootstrap(first);
    expect(first.closed).toBeUndefined();
    for (let index = 2; index < 1024; index++) world.bootstrap(first);
    expect(first.closed).toBeUndefined();
    world.bootstrap(first);
    expect(world.codeOf(first)).toBe('quota_exceeded');
  });

  it('counts consumed bootstraps towards the limit, also after a restart, until they would have expired', async () => {
    const world = new World();
    const host = world.host();
    const consume = () =>
      world.drop(world.register({ token: world.bootstrap(host, 1, 60), credential_kind: 'bootstrap' }));
    for (let index = 0; index < 1024; index++) consume();
    expect([host.closed, world.stored.size]).toEqual([undefined, 1024]);
    world.bootstrap(host);
    expect(world.codeOf(host)).toBe('quota_exceeded');

    const hosts = new Map([[world.hostId, [digestOf(world.hostToken)]]]);
    const again = new World({ hosts, stored: [...world.stored.values()] });
    const known = { host_id: world.hostId, token: world.hostToken };
    const second = again.host(known);
    again.bootstrap(second);
    expect(again.codeOf(second)).toBe('quota_exceeded');
    // The bootstraps are over, so that their digests open nothing any more.
    await again.pass(61_000);
    const third = again.host(known);
    again.bootstrap(third);
    expect(third.closed).toBeUndefined();
  });

  it('still refuses what a former version stored as consumed, without its host', () => {
    const [hostToken, token] = [newToken(), newToken()];
    const host_id = newId();
    const expires_at = createTestClock().now() / 1000 + 3600;
    const stored = [{ token_sha256: digestOf(token), expires_at }];
    const world = new World({ hosts: new Map([[host_id, [digestOf(hostToken)]]]), stored });
    world.host({ host_id, token: hostToken });
    expect(world.register({ host_id, token, credential_kind: 'bootstrap' })).toMatchObject(refused('replayed'));
  });

  it('drops the credentials of a host that is no longer listed, and closes it', () => {
    const world = new World();
    const host = world.host();
    world.route(host);
    world.run(world.broker.reload(new Map([[world.hostId, [digestOf('other')]]])));
    expect(host).toMatchObject({ closed: 1008 });
    expect(world.stored.size).toBe(1);
    world.run(world.broker.reload(new Map()));
    expect(world.stored.size).toBe(0);
  });

  it('forgets what is over for a day', () => {
    const world = new World();
    const host = world.host();
    world.bootstrap(host);
    world.match(host, world.route(host));
    world.register({ token: world.bootstrap(host), credential_kind: 'bootstrap' });
    expect(world.stored.size).toBe(3);
    world.clock.advance(DAY + 3_601_000);
    world.run(world.broker.prune());
    expect(world.stored.size).toBe(0);
  });
});

describe('limits §7.7', () => {
  it('admits 30 attempts a minute from a source, and gives those back that a route credential matched', async () => {
    const world = new World();
    const attempts = (count: number, source = '192.0.2.9') =>
      Array.from({ length: count }, () => world.broker.admits(source)).filter(Boolean).length;
    expect(attempts(40)).toBe(30);
    expect(attempts(1, '192.0.2.10')).toBe(1);
    await world.pass(61_000);
    expect(attempts(1)).toBe(1);
    const host = world.host();
    world.register({ token: world.route(host) }, '192.0.2.9');
    expect(attempts(40)).toBe(30);
  });

  it('gives no attempt back for a host, nor for a bootstrap: each of those leaves a record', async () => {
    const world = new World();
    const source = '192.0.2.9';
    const admitted = (connect: () => WorldSocket) =>
      Array.from({ length: 40 }, () => {
        if (!world.broker.admits(source)) return false;
        const socket = connect();
        expect(socket.closed).toBeUndefined();
        world.drop(socket);
        return true;
      }).filter(Boolean).length;
    expect(admitted(() => world.host({}, source))).toBe(30);
    await world.pass(61_000);
    const host = world.host();
    const bootstrap = () => ({ token: world.bootstrap(host), credential_kind: 'bootstrap' }) as const;
    expect(admitted(() => world.register(bootstrap(), source))).toBe(30);
  });

  it('admits at most 16 sockets of a source and 512 in all that have not registered', () => {
    const world = new World();
    const open = (source: string) => {
      const admitted = world.broker.admits(source);
      if (admitted) world.open(source);
      return admitted;
    };
    expect(Array.from({ length: 20 }, () => open('a')).filter(Boolean)).toHaveLength(16);
    let total = 16;
    for (let source = 0; source < 40; source++) {
      for (let index = 0; index < 16; index++) if (open(`source-${source}`)) total++;
    }
    expect(total).toBe(512);
  });

  it('tracks 4096 sources, then refuses new ones until old ones age out', async () => {
    const world = new World();
    for (let index = 0; index < 4096; index++) expect(world.broker.admits(`s${index}`)).toBe(true);
    expect(world.broker.admits('one more')).toBe(false);
    await world.pass(61_000);
    expect(world.broker.admits('one more')).toBe(true);
  });
});
