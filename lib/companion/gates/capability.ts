import { type Capability, grantState, isWellFormed } from '../capabilities.ts';
import { type Environment, type Gate, PASS, type Verdict } from './gate.ts';

/** Gate 3: the owner granted what the route needs, and the grant has not run out (contract 03 §8.2). */
export const capabilityGate: Gate = ({ route, env }) =>
  route.capability === null ? PASS : granted(env, route.capability);

/** Whether a capability is in force at this moment. */
export function granted(env: Pick<Environment, 'settings' | 'clock'>, capability: Capability): Verdict {
  const settings = env.settings.get();
  switch (settings.policy) {
    case 'bound':
      break;
    case 'unbound':
      return { kind: 'policy-unbound', capability };
    case 'unavailable':
      return { kind: 'policy-unavailable', capability };
    default:
      return { kind: 'policy-invalid', capability };
  }
  if (!isWellFormed(settings)) return { kind: 'policy-invalid', capability };
  switch (grantState(settings, capability, env.clock.now())) {
    case 'live':
      return PASS;
    case 'expired':
      return { kind: 'capability-expired', capability };
    case 'absent':
      return { kind: 'capability-denied', capability };
  }
}
