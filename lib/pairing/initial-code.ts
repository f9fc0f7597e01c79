import type { Store } from '../../storage/schema.ts';
import { sha256 } from '../kit/sha256.ts';
import type { PairingCodes } from './codes.ts';

const KEY = 'initial-code';

/**
 * Registers `RELAY_PAIRING_CODE` at the edge, where waking up is not a start: once for each consecutive value of the
 * deployment. A code that was registered again after every sleep would be a permanent password.
 */
export async function registerInitialCode(
  code: string | undefined,
  { codes, store }: { codes: PairingCodes; store: Store<'pairing'> },
): Promise<void> {
  if (code === undefined) return;
  const hash = sha256(code);
  const stored = await store.getItem(KEY);
  if (stored?.registered === hash) return;
  // Stored first: a failure between the two leaves no code, rather than a code that is registered twice.
  await store.setItem(KEY, { registered: hash });
  await codes.register(code, {});
}
