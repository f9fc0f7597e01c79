import { readFile } from 'node:fs/promises';
import type { Config } from '../lib/config.ts';
import { lockHolder } from '../lib/host/node/relay-lock.ts';
import { UNIT } from '../lib/operator/service/unit.ts';

export interface RelayProcess {
  pid: number;
  /** True if this user's systemd runs it. */
  isService: boolean;
}

/**
 * The process of the relay on this state, by the lock on its database; without a database, by its port. Null if this user
 * cannot see it. Linux only.
 */
export async function relayProcess({
  stateFile,
  port,
}: Pick<Config, 'stateFile' | 'port'>): Promise<RelayProcess | null> {
  const pid = stateFile === null ? await byPort(port) : lockHolder(stateFile);
  return pid === undefined ? null : { pid, isService: await isService(pid) };
}

async function byPort(port: number): Promise<number | undefined> {
  const { portHolder } = await import('../lib/host/node/port-holder.ts');
  const holder = await portHolder(port);
  return holder && /\bsvc(?:-relay)?(?:\.js)?$/.test(holder.program) ? holder.pid : undefined;
}

const isService = async (pid: number): Promise<boolean> =>
  (await readFile(`/proc/${pid}/cgroup`, 'utf8').catch(() => '')).includes(`/${UNIT}`);
