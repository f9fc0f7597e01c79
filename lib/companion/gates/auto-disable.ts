import { isTimed } from '../capabilities.ts';
import { type Gate, PASS } from './gate.ts';

/** Gate 8: an accepted timed command gives its leases a new term (contract 03 §8.5). Never refuses. */
export const autoDisableGate: Gate = ({ route, env }) => {
  if (route.capability !== null && isTimed(route.capability)) env.autoDisable.extend();
  return PASS;
};
