import { type Capability, grantState, isTimed, isWellFormed, type SettingsStore } from '../safety-settings.ts';
import { type Environment, PASS, type SafetyGate, type Verdict } from './gate.ts';

/** Gate 2: the store build has no device control. */
const flavorGate: SafetyGate = ({ route, env }) => {
  const { flavor } = env.settings.get();
  return flavor === 'sideload' || route.ungated ? PASS : { kind: 'sideload-only', flavor };
};

/** Gate 3: the owner granted the route's capability, and the grant has not expired (contract 03 §8.2). */
const capabilityGate: SafetyGate = ({ route, env }) =>
  route.capability === null ? PASS : checkCapability(env, route.capability);

/** Checks that a capability is granted right now. */
export function checkCapability(env: Pick<Environment, 'settings' | 'clock'>, capability: Capability): Verdict {
  const settings = env.settings.get();
  const { policy } = settings;
  if (policy === 'unbound' || policy === 'unavailable') return { kind: `policy-${policy}`, capability };
  if (policy !== 'bound' || !isWellFormed(settings)) return { kind: 'policy-invalid', capability };
  const state = grantState(settings, capability, env.clock.now());
  if (state === 'live') return PASS;
  return { kind: state === 'expired' ? 'capability-expired' : 'capability-denied', capability };
}

/** Gate 4: the accessibility service is running. */
const accessibilityGate: SafetyGate = ({ env }) =>
  env.device.info().accessibilityGranted ? PASS : { kind: 'accessibility-off' };

/** Gate 5: the master toggle is on. */
const masterGate: SafetyGate = ({ route, env }) =>
  route.bypassesMaster || env.settings.get().masterEnabled ? PASS : { kind: 'bridge-disabled' };

/** Gate 6: the foreground app is not on the blocklist. */
const blocklistGate: SafetyGate = ({ route, env }) => {
  if (route.bypassesBlocklist) return PASS;
  const { foreground } = env.device.info();
  return isBlocked(env.settings, foreground) ? { kind: 'blocked-package', package: foreground } : PASS;
};

/** True if a package is on the blocklist: an exact match; a blank name never is (contract 03 §8.6). */
export const isBlocked = (settings: SettingsStore, packageName: string | null): packageName is string =>
  packageName !== null && packageName.trim() !== '' && settings.get().blocklist.includes(packageName);

/** Gate 8: an accepted timed command renews the leases (contract 03 §8.5). Never refuses. */
export const autoDisableGate: SafetyGate = ({ route, env }) => {
  if (route.capability !== null && isTimed(route.capability)) env.autoDisable.extend();
  return PASS;
};

/** Gates 2 and 3, the only ones for `/ping` and `/setup`. */
export const ENTRY_GATES: readonly SafetyGate[] = [flavorGate, capabilityGate];

/** Gates 2 to 6. They have no side effects, so they run again after every wait for a person. */
export const STANDING_GATES: readonly SafetyGate[] = [...ENTRY_GATES, accessibilityGate, masterGate, blocklistGate];
