import { expect, it } from 'vitest';
import { openLocalOperator } from '../../../lib/access/local-operator.ts';
import type { CallerFacts } from '../../../lib/access/loopback.ts';
import type { Peer } from '../../../lib/access/peer.ts';
import { createNodeHost } from '../../../lib/host/node/index.ts';
import type { Owner } from '../../../lib/host/users.ts';
import { createLog } from '../../../lib/log.ts';
import { temporaryDirectory } from '../../support/temp.ts';

const OWN = 1000;
const KEY = 'k'.repeat(43);

interface Setting {
  /** Owner of the other end. */
  owner?: Owner;
  own?: number | null;
  requireOperatorKey?: boolean;
  operatorUids?: number[];
}

async function setup({ owner = 'untold', own = OWN, ...config }: Setting = {}) {
  const agentHome = await temporaryDirectory();
  const host = createNodeHost({ agentHome });
  await host.files.createExclusive(`${agentHome}/svc-relay/operator-key`, new TextEncoder().encode(KEY), 0o600);
  let asked = 0;
  const ofConnection = async () => {
    asked++;
    return owner;
  };
  const operator = await openLocalOperator({
    host: { ...host, users: { ...host.users, own, ofConnection } },
    config: { requireOperatorKey: false, operatorUids: [], ...config },
    log: createLog('ERROR', () => {}),
  });
  return { operator, asked: () => asked };
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

it('without a key file no key is right, and the relay says why', async () => {
  const agentHome = await temporaryDirectory({ 'svc-relay': 'in the way' });
  const lines: string[] = [];
  const operator = await openLocalOperator({
    host: createNodeHost({ agentHome }),
    config: { requireOperatorKey: true, operatorUids: [] },
    log: createLog('DEBUG', (line) => lines.push(line)),
  });
  expect(lines).toEqual([expect.stringContaining('can be neither read nor made, so none is accepted')]);
  for (const key of ['', 'null', 'undefined']) {
    expect(await operator.refusal(caller(peer(), { 'x-svc-operator-key': key }))).toBe('no-key');
  }
});

it('without a host nobody is local', async () => {
  const operator = await openLocalOperator({
    config: { requireOperatorKey: false, operatorUids: [] },
    log: createLog('ERROR', () => {}),
  });
  expect(await operator.refusal(caller({ ...peer(), via: 'edge' }))).toBe('remote');
});
