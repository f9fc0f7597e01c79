import { type Gate, PASS } from './gate.ts';

/** Gate 5: the master toggle is on. */
export const masterGate: Gate = ({ route, env }) =>
  route.bypassesMaster || env.settings.get().masterEnabled ? PASS : { kind: 'bridge-disabled' };
