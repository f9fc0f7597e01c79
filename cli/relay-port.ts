import { asPort } from './options.ts';
import { type CommandContext, printWarning } from './output.ts';

export const DEFAULT_PORT = 8767;

/**
 * Where the relay of this machine listens, from `RELAY_PORT`. Unlike for the listener itself, a bad variable is only
 * warned about: the flag may say where the relay is.
 */
export function relayPort(env: Record<string, string | undefined>, context: CommandContext): number {
  const value = env.RELAY_PORT?.trim();
  if (!value) return DEFAULT_PORT;
  try {
    return asPort(value);
  } catch {
    printWarning(context, `RELAY_PORT is no port; using ${DEFAULT_PORT}`);
    return DEFAULT_PORT;
  }
}
