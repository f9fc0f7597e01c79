import { type Gate, PASS } from './gate.ts';

/** Gate 4: the accessibility service is running. */
export const accessibilityGate: Gate = ({ env }) =>
  env.device.info().accessibilityGranted ? PASS : { kind: 'accessibility-off' };
