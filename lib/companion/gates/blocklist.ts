import type { SettingsStore } from '../types.ts';
import { type Gate, PASS } from './gate.ts';

/** Whether the owner keeps a package from the agent; exact, and a blank name is none (contract 03 §8.6). */
export const isBlocked = (settings: SettingsStore, packageName: string | null): packageName is string =>
  packageName !== null && packageName.trim() !== '' && settings.get().blocklist.includes(packageName);

/** Gate 6: what is in the foreground is not blocklisted. */
export const blocklistGate: Gate = ({ route, env }) => {
  if (route.bypassesBlocklist) return PASS;
  const { foreground } = env.device.info();
  return isBlocked(env.settings, foreground) ? { kind: 'blocked-package', package: foreground } : PASS;
};
