import { accessibilityGate } from './accessibility.ts';
import { blocklistGate } from './blocklist.ts';
import { capabilityGate } from './capability.ts';
import { flavorGate } from './flavor.ts';
import { type Call, type Gate, PASS, type Verdict } from './gate.ts';
import { masterGate } from './master.ts';

/** The first refusal of a list of gates. */
export async function firstRefusal(gates: readonly Gate[], call: Call): Promise<Verdict> {
  for (const gate of gates) {
    const verdict = await gate(call);
    if (verdict.kind !== 'pass') return verdict;
  }
  return PASS;
}

/** Gates 2 and 3, the only ones for `/ping` and `/setup`. */
export const ENTRY: readonly Gate[] = [flavorGate, capabilityGate];

/** Gates 2 to 6. They only look, so they are asked again after every wait for a person. */
export const STANDING: readonly Gate[] = [...ENTRY, accessibilityGate, masterGate, blocklistGate];
