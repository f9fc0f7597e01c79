import { type Gate, PASS } from './gate.ts';

/** Gate 2: the store build has no device control (contract 03 §8.1). */
export const flavorGate: Gate = ({ route, env }) => {
  const { flavor } = env.settings.get();
  return flavor === 'sideload' || route.ungated ? PASS : { kind: 'sideload-only', flavor };
};
