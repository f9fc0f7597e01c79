import { readFile, stat } from 'node:fs/promises';
import { OPERATOR_KEY_HEADER, operatorKeyPath, parseOperatorKey } from '../lib/access/operator-key.ts';
import { createUsers } from '../lib/host/node/users.ts';

const ROOT = 0;

/**
 * The header by which the relay on a port of this machine knows its operator, whatever user runs this command (contract
 * 01 §1.3 rule 6); none when this user cannot read the key. Another user that took the port of a stopped relay must not
 * learn the key, so it goes only to users that can read it anyway, where the system tells who listens.
 */
export async function operatorHeaders(agentHome: string, port: number): Promise<Record<string, string>> {
  const path = operatorKeyPath(agentHome);
  const users = createUsers();
  try {
    const [{ uid }, text, listeners] = await Promise.all([stat(path), readFile(path, 'utf8'), users.ofListeners(port)]);
    const key = parseOperatorKey(text);
    const mayRead = (user: number) => [uid, users.own, ROOT].includes(user);
    const isSafe = listeners === 'untold' || (listeners.length > 0 && listeners.every(mayRead));
    return key !== null && isSafe ? { [OPERATOR_KEY_HEADER]: key } : {};
  } catch {
    return {};
  }
}
