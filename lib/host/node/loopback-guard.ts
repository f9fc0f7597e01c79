import type { Socket } from 'node:net';
import { plainAddress, urlHost } from '../../kit/addresses.ts';
import type { Log } from '../../log.ts';
import type { HostUsers } from '../users.ts';

/** Returns why a connection must not be used; undefined if it may. */
export type LoopbackGuard = (socket: Socket) => Promise<Error | undefined>;

export interface LoopbackGuardDeps {
  users: HostUsers;
  /** `RELAY_OPERATOR_UIDS`. */
  operatorUids: readonly number[];
  log: Log;
}

const ROOT = 0;
/** Listeners remembered, so that each is warned about once. */
const MAX_WARNED = 256;

/** True for a loopback address: any of 127/8, or `::1`. */
const isLoopback = (address: string): boolean => address === '::1' || address.startsWith('127.');

/**
 * Checks the account that serves a connection to this machine before a credential is sent over it (contract 01 §9.1a).
 * Allowed are the relay's own account, root, and `RELAY_OPERATOR_UIDS`. The lookup is for this very connection, so that
 * a program which takes over the port in between gains nothing. If the system does not report accounts, every listener
 * passes.
 */
export function createLoopbackGuard({ users, operatorUids, log }: LoopbackGuardDeps): LoopbackGuard {
  const trusted = new Set<unknown>([users.own, ROOT, ...operatorUids]);
  const warned = new Set<string>();

  return async ({ remoteAddress, remotePort, localAddress, localPort }) => {
    const address = plainAddress(remoteAddress ?? '');
    if (!isLoopback(address)) return undefined;
    const ends = {
      local: { address: localAddress, port: localPort },
      remote: { address: remoteAddress, port: remotePort },
    };
    let owners = await users.ofServer(ends);
    // Its row may have moved while the table was read.
    if (owners === 'unknown') owners = await users.ofServer(ends);
    if (owners === 'untold') return undefined;
    // A server that has hung up already gets nothing, whoever it was.
    if (owners === 'unknown') return new Error(`${urlHost(address)}:${remotePort} does not show whose it is`);
    const stranger = owners.find((owner) => !trusted.has(owner));
    if (stranger === undefined) return undefined;
    const reason = `${urlHost(address)}:${remotePort} is served by user ${stranger}`;
    if (!warned.has(reason)) {
      if (warned.size >= MAX_WARNED) warned.clear();
      warned.add(reason);
      log.warn(`${reason}, so no credential is sent there: stop it, or name its user in RELAY_OPERATOR_UIDS`);
    }
    return new ForeignListener(reason);
  };
}

/** Another account serves the port. The message may be shown to a client. */
export class ForeignListener extends Error {}
