import { destructiveGate } from './destructive.ts';
import { type Gate, PASS } from './gate.ts';
import { firstRefusal, STANDING } from './standing.ts';

/** Gate 9: with unattended access the screen is woken, which a credential may prevent (contract 03 §8.1). */
export const keyguardGate: Gate = async (call) => {
  if (call.route.readOnly || !call.env.settings.get().unattended) return PASS;
  switch (await call.env.device.wake()) {
    case 'awake':
      return PASS;
    case 'locked':
      return { kind: 'keyguard-blocked' };
    case 'woken':
      // Gates 6 and 7 looked at the keyguard; what counts is what was behind it.
      return firstRefusal([...STANDING, destructiveGate], call);
  }
};
