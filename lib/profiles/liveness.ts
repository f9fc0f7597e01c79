import type { Host } from '../host/index.ts';
import { asObject, type JsonObject, parseJson } from '../kit/json.ts';

/** Milliseconds for the TCP fallback. */
const CONNECT_TIMEOUT = 250;

export interface PidFile {
  pid: number;
  /** Clock ticks since boot; null if absent; NaN, which equals nothing, if it is not a number. */
  startTime: number | null;
}

/** Reads `gateway.pid`: JSON `{pid, start_time?}` or a bare integer. Null for anything else (contract 07 §1.3). */
export function parsePidFile(text: string): PidFile | null {
  const value = parseJson(text);
  const record: JsonObject | null = typeof value === 'number' ? { pid: value } : asObject(value);
  if (!record) return null;
  const { pid, start_time: start } = record;
  if (typeof pid !== 'number' || !Number.isSafeInteger(pid) || pid < 1) return null;
  if (start === undefined || start === null) return { pid, startTime: null };
  const digits = typeof start === 'number' || (typeof start === 'string' && /^\d+$/.test(start));
  return { pid, startTime: digits ? Number(start) : Number.NaN };
}

/**
 * True if the gateway of a profile runs: its pid file names a live process, or the port at `apiServerUrl` is open
 * (contract 07 §1.3). Advisory. Sends no signal other than 0.
 */
export async function isGatewayRunning(
  host: Host,
  pidFile: string | null,
  apiServerUrl: string | null,
): Promise<boolean> {
  const recorded = pidFile === null ? null : parsePidFile(pidFile);
  if (recorded && (await isGateway(host, recorded))) return true;
  if (apiServerUrl === null) return false;
  const { protocol, hostname, port } = new URL(apiServerUrl);
  const bare = hostname.replace(/^\[(.*)\]$/, '$1');
  const dialled = bare === '0.0.0.0' || bare === '::' ? '127.0.0.1' : bare;
  // A URL omits the default port of its scheme.
  return host.network.canConnect(dialled, Number(port) || (protocol === 'https:' ? 443 : 80), CONNECT_TIMEOUT);
}

async function isGateway({ processes }: Host, { pid, startTime }: PidFile): Promise<boolean> {
  if (!processes.exists(pid)) return false;
  const facts = await processes.facts(pid);
  // No facts: either a system without /proc, or the process has just ended.
  if (!facts) return processes.exists(pid);
  if (startTime !== null && facts.startTime !== startTime) return false;
  return /svc|gateway/i.test(facts.command);
}
