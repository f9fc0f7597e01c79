import { readFile, stat } from 'node:fs/promises';
import { OPERATOR_KEY_HEADER, operatorKeyPath, parseOperatorKey } from '../lib/access/operator-key.ts';
import type { Host } from '../lib/host/index.ts';
import { createUsers } from '../lib/host/node/users.ts';
import type { HostUsers } from '../lib/host/users.ts';
import { canonicalAddress, isLoopbackName, isWildcard } from '../lib/kit/addresses.ts';

const ROOT = 0;
const UNKNOWN = 'a user that the system does not tell';

/**
 * The header by which the relay on a port of this machine knows its operator, whatever user runs this command (contract
 * 01 §1.3 rule 6); none when this user cannot read the key. Another user that took the port of a stopped relay must not
 * learn the key, so it goes only to users that can read it anyway, where the system tells who listens.
 */
export async function operatorHeaders(agentHome: string, port: number): Promise<Record<string, string>> {
  const path = operatorKeyPath(agentHome);
  const users = createUsers();
  try {
    const [{ uid }, text] = await Promise.all([stat(path), readFile(path, 'utf8')]);
    const key = parseOperatorKey(text);
    const stranger = await strangerAmong(users, port, [uid]);
    return key !== null && stranger === undefined ? { [OPERATOR_KEY_HEADER]: key } : {};
  } catch {
    return {};
  }
}

/**
 * A listener on a port of this machine that must not get a credential of its agent: `user 7` (contract
 * 01 §9.1a). Undefined for another machine, and when only this user, root, that of the relay and those of
 * `RELAY_OPERATOR_UIDS` listen there.
 */
export async function strangerOn(
  { host, port }: { host: string; port: number },
  { network, users, agentHome }: Host,
  operatorUids: readonly number[],
): Promise<string | undefined> {
  const address = canonicalAddress(host);
  const isLoopback = isLoopbackName(host);
  const isOwn = network.addresses().some((own) => canonicalAddress(own) === address);
  if (!isLoopback && !isOwn) return undefined;
  const trusted = await trustedUids(agentHome, operatorUids);
  try {
    if (isLoopback) return await strangerAmong(users, port, trusted);
    const listeners = (await users.listeners(port))?.filter(
      (one) => isWildcard(one.address) || one.address === address,
    );
    return (
      listeners &&
      firstStranger(
        listeners.map(({ uid }) => uid),
        [...trusted, users.own],
      )
    );
  } catch {
    return UNKNOWN;
  }
}

/**
 * Users that may have a credential of this machine's agent, beside this user and root: those of the relay and the
 * owner's.
 */
export async function trustedUids(agentHome: string, operatorUids: readonly number[]): Promise<number[]> {
  const relayUser = await stat(operatorKeyPath(agentHome)).then(
    ({ uid }) => [uid],
    () => [],
  );
  return [...relayUser, ...operatorUids];
}

async function strangerAmong(users: HostUsers, port: number, trusted: readonly number[]): Promise<string | undefined> {
  const listeners = await users.ofListeners(port);
  return listeners === 'untold' ? undefined : firstStranger(listeners, [...trusted, users.own]);
}

function firstStranger(listeners: readonly number[], trusted: readonly unknown[]): string | undefined {
  const stranger = listeners.find((user) => user !== ROOT && !trusted.includes(user));
  if (stranger !== undefined) return `user ${stranger}`;
  return listeners.length === 0 ? UNKNOWN : undefined;
}
