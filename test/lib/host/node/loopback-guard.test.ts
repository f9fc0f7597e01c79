import type { Socket } from 'node:net';
import { expect, it } from 'vitest';
import { createLoopbackGuard, ForeignListener } from '../../../../lib/host/node/loopback-guard.ts';
import type { HostUsers } from '../../../../lib/host/users.ts';
import { createLog } from '../../../../lib/log.ts';

type Owners = Awaited<ReturnType<HostUsers['ofServer']>>;

/** Judges a connection to `remoteAddress` whose server belongs to the owners, as each look finds them. */
async function judge(found: Owners[], remoteAddress = '127.0.0.1', operatorUids: number[] = []) {
  const lines: string[] = [];
  let looks = 0;
  const ofServer = async () => found[Math.min(looks++, found.length - 1)] as Owners;
  const users = { own: 1000, ofServer } as Partial<HostUsers> as HostUsers;
  const log = createLog('WARNING', (text) => lines.push(text));
  const guard = createLoopbackGuard({ users, operatorUids, log });
  const socket = { remoteAddress, remotePort: 8642, localAddress: remoteAddress, localPort: 40_000 } as Socket;
  const refusal = await guard(socket);
  await guard(socket);
  return { refusal, lines };
}

it.each<[string, Owners[], number[]]>([
  ['the own account', [[1000]], []],
  ['root', [[0]], []],
  ['an account of RELAY_OPERATOR_UIDS', [[7]], [7]],
  ['accounts that are all trusted', [[0, 7, 1000]], [7]],
  ['the own account, seen with the second look', ['unknown', [1000]], []],
  ['a system that does not tell', ['untold'], []],
])('contract 01 §9.1a: a credential may go to %s', async (_name, found, uids) => {
  expect(await judge(found, '127.0.0.1', uids)).toEqual({ refusal: undefined, lines: [] });
});

it.each<[string, Owners[], number[]]>([
  ['another account', [[7]], []],
  ['a port that another account shares with the own one', [[1000, 7]], []],
  ['one that is not of RELAY_OPERATOR_UIDS', [[7]], [8]],
])('contract 01 §9.1a: no credential goes to %s, and one warning says so', async (_name, found, uids) => {
  const { refusal, lines } = await judge(found, '::1', uids);
  expect(refusal).toBeInstanceOf(ForeignListener);
  expect(lines).toEqual([expect.stringContaining('[::1]:8642 is served by user 7')]);
});

it('contract 01 §9.1a: nor to a server that does not show whose it is', async () => {
  const { refusal } = await judge(['unknown']);
  expect(refusal?.message).toBe('127.0.0.1:8642 does not show whose it is');
});

it('looks at servers of this machine alone', async () => {
  expect((await judge([[7]], '192.0.2.7')).refusal).toBeUndefined();
});
