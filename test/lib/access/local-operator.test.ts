import { describe, expect, it } from 'vitest';
import { openLocalOperator } from '../../../lib/access/local-operator.ts';
import type { CallerFacts } from '../../../lib/access/loopback.ts';
import type { Peer } from '../../../lib/access/peer.ts';
import { createNodeHost } from '../../../lib/host/node/index.ts';
import type { LocalProxy, Owner } from '../../../lib/host/users.ts';
import { createLog } from '../../../lib/log.ts';
import { createTestClock } from '../../support/clock.ts';
import { temporaryDirectory } from '../../support/temp.ts';

const OWN = 1000;
const KEY = 'k'.repeat(43);

interface Setting {
  /** Owner of the other end. */
  owner?: Owner;
  own?: number | null;
  requireOperatorKey?: boolean;
  operatorUids?: number[];
  /** What a search for programs that forward calls finds. */
  proxies?(): Promise<LocalProxy[]>;
}

async function setup({ owner = 'untold', own = OWN, proxies = async () => [], ...config }: Setting = {}) {
  const agentHome = await temporaryDirectory();
  const host = createNodeHost({ agentHome });
  await host.files.createExclusive(`${agentHome}/svc-relay/operator-key`, new TextEncoder().encode(KEY), 0o600);
  const clock = createTestClock();
  let asked = 0;
  const ofConnection = async () => {
    asked++;
    return owner;
  };
  const operator = await openLocalOperator({
    host: { ...host, users: { ...host.users, own, ofConnection, proxies } },
    config: { port: 8767, requireOperatorKey: false, operatorUids: [], ...config },
    clock,
    log: createLog('ERROR', () => {}),
  });
  return { operator, clock, asked: () => asked, keyPath: `${agentHome}/svc-relay/operator-key`, files: host.files };
}

const peer = (): Peer => ({
  address: '127.0.0.1',
  tls: false,
  via: 'direct',
  ends: () => ({ local: { address: '127.0.0.1', port: 8767 }, remote: { address: '127.0.0.1', port: 40_000 } }),
});

const caller = (from: Peer, headers: Record<string, string> = {}): CallerFacts => ({
  peer: from,
  headers: new Headers({ host: '127.0.0.1:8767', ...headers }),
  method: 'POST',
  httpVersion: '1.1',
  target: '/pairing/mint',
});

it.each<[string, Setting, string | undefined, string | undefined]>([
  ['the own user', { owner: OWN }, undefined, undefined],
  ['root, for a relay of another user', { owner: 0 }, 'other-user', undefined],
  ['root, for a relay of root', { owner: 0, own: 0 }, undefined, undefined],
  ['another user', { owner: 65_534 }, 'other-user', undefined],
  ['another user, for a relay of root', { owner: OWN, own: 0 }, 'other-user', undefined],
  ['a user that RELAY_OPERATOR_UIDS names', { owner: 7, operatorUids: [6, 7] }, undefined, undefined],
  ['a user that it does not name', { owner: 8, operatorUids: [6, 7] }, 'other-user', undefined],
  ['a connection that cannot be found', { owner: 'unknown' }, 'other-user', undefined],
  ['not a number', { owner: Number.NaN }, 'other-user', undefined],
  ['a system that does not tell', { owner: 'untold' }, undefined, undefined],
  ['a system whose users have no numbers', { owner: 'untold', own: null }, undefined, undefined],
  ['the own user where the key is required', { owner: OWN, requireOperatorKey: true }, 'no-key', undefined],
  [
    'a named user where the key is required',
    { owner: 7, operatorUids: [7], requireOperatorKey: true },
    'no-key',
    undefined,
  ],
  ['any user where the key is required', { requireOperatorKey: true }, 'no-key', undefined],
])('contract 01 §1.3 rule 6: %s', async (_name, setting, without, withKey) => {
  const { operator } = await setup(setting);
  expect(await operator.refusal(caller(peer()))).toBe(without);
  expect(await operator.refusal(caller(peer(), { 'x-svc-operator-key': 'x' }))).toBe(without);
  expect(await operator.refusal(caller(peer(), { 'x-svc-operator-key': KEY }))).toBe(withKey);
});

it('contract 01 §1.3: the key replaces no other rule', async () => {
  const { operator, asked } = await setup({ owner: OWN });
  const key = { 'x-svc-operator-key': KEY };
  expect(await operator.refusal(caller(peer(), { ...key, via: '1.1 x' }))).toBe('remote');
  expect(await operator.refusal({ ...caller(peer(), key), httpVersion: '1.0' })).toBe('remote');
  expect(await operator.refusal(caller({ ...peer(), address: '192.0.2.1' }, key))).toBe('remote');
  expect(asked()).toBe(0);
});

it('contract 01 §1.3 rule 6: the system is asked once per connection, and only when nothing else decides', async () => {
  const { operator, asked } = await setup({ owner: 65_534 });
  const one = peer();
  await operator.refusal(caller(one, { 'x-svc-operator-key': KEY }));
  expect(asked()).toBe(0);
  await Promise.all([operator.refusal(caller(one)), operator.refusal(caller(one))]);
  await operator.refusal(caller(one));
  expect(asked()).toBe(1);
  expect(await operator.describe(one)).toBe('127.0.0.1, user 65534');
  await operator.refusal(caller(peer()));
  expect(asked()).toBe(2);
  expect(await operator.describe(peer())).toBe('127.0.0.1');
  expect(asked()).toBe(2);
});

it('a connection whose ends are not known is that of a stranger', async () => {
  const { operator } = await setup({ owner: OWN });
  const { ends: _, ...without } = peer();
  expect(await operator.refusal(caller(without))).toBe('other-user');
});

describe('programs that may forward calls as the own user (contract 01 §1.3 rule 6)', () => {
  const NGINX = { pid: 12, program: 'nginx', ports: [80, 443] };

  it('are searched for while such a call waits, once a minute, and are remembered', async () => {
    let searches = 0;
    const proxies = async () => (++searches === 1 ? [NGINX] : []);
    const { operator, clock } = await setup({ owner: OWN, proxies });
    expect(await operator.state()).toEqual({ keyRequired: false, forwarders: [] });
    expect(await operator.refusal(caller(peer()))).toBeUndefined();
    expect((await operator.state()).forwarders).toEqual([NGINX]);
    clock.advance(59_999);
    await operator.refusal(caller(peer()));
    expect(searches).toBe(1);
    clock.advance(1);
    await operator.refusal(caller(peer()));
    expect(searches).toBe(2);
    expect((await operator.state()).forwarders).toEqual([NGINX]);
  });

  it.each<[string, Setting, Record<string, string>]>([
    ['the key', { owner: OWN }, { 'x-svc-operator-key': KEY }],
    ['another user', { owner: 7 }, {}],
    ['a named user', { owner: 7, operatorUids: [7] }, {}],
    ['the key required', { owner: OWN, requireOperatorKey: true }, {}],
    ['a header of a proxy', { owner: OWN }, { via: '1.1 nginx' }],
  ])('are not searched for with %s', async (_name, setting, headers) => {
    const proxies = () => Promise.reject(new Error('searched'));
    const { operator } = await setup({ ...setting, proxies });
    await operator.refusal(caller(peer(), headers));
    expect((await operator.state()).forwarders).toEqual([]);
  });

  it('delay a call by a second at most, and a failed search does not end it', async () => {
    const endless = await setup({ owner: OWN, proxies: () => new Promise(() => {}) });
    const refusal = endless.operator.refusal(caller(peer()));
    await endless.clock.advanceAsync(1_000);
    expect(await refusal).toBeUndefined();
    const failing = await setup({ owner: OWN, proxies: () => Promise.reject(new Error('EMFILE')) });
    expect(await failing.operator.refusal(caller(peer()))).toBeUndefined();
  });

  it('are at most sixteen, of which each is named once', async () => {
    const found = Array.from({ length: 20 }, (_, pid) => ({ pid, program: 'nginx', ports: [pid] }));
    const { operator, clock } = await setup({ owner: OWN, proxies: async () => found });
    for (let count = 0; count < 2; count++) {
      await operator.refusal(caller(peer()));
      clock.advance(60_000);
    }
    expect((await operator.state()).forwarders).toEqual(found.slice(4));
  });
});

it('11 §3: a key that was replaced is refused at once, and one that others can read is none', async () => {
  const { operator, keyPath, files } = await setup({ requireOperatorKey: true });
  const refusal = (key: string) => operator.refusal(caller(peer(), { 'x-svc-operator-key': key }));
  expect(await refusal(KEY)).toBeUndefined();
  const fresh = 'n'.repeat(43);
  await files.writeAtomic(keyPath, new TextEncoder().encode(fresh), 0o600);
  expect([await refusal(KEY), await refusal(fresh)]).toEqual(['no-key', undefined]);
  await files.writeAtomic(keyPath, new TextEncoder().encode(fresh), 0o640);
  expect(await refusal(fresh)).toBe('no-key');
  await files.remove(keyPath);
  expect([await refusal(fresh), await refusal(KEY)]).toEqual(['no-key', 'no-key']);
});

it('without a key file no key is right, and the relay says why', async () => {
  const agentHome = await temporaryDirectory({ 'svc-relay': 'in the way' });
  const lines: string[] = [];
  const operator = await openLocalOperator({
    host: createNodeHost({ agentHome }),
    config: { port: 8767, requireOperatorKey: true, operatorUids: [] },
    clock: createTestClock(),
    log: createLog('DEBUG', (line) => lines.push(line)),
  });
  expect(lines).toEqual([expect.stringContaining('can be neither read nor created, so no key is accepted')]);
  for (const key of ['', 'null', 'undefined']) {
    expect(await operator.refusal(caller(peer(), { 'x-svc-operator-key': key }))).toBe('no-key');
  }
});

it('without a host nobody is local', async () => {
  const operator = await openLocalOperator({
    config: { port: 8767, requireOperatorKey: false, operatorUids: [] },
    clock: createTestClock(),
    log: createLog('ERROR', () => {}),
  });
  expect(await operator.refusal(caller({ ...peer(), via: 'edge' }))).toBe('remote');
});
