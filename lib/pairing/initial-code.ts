import type { Store } from '../../storage/schema.ts';
import { sha256 } from '../kit/bytes.ts';
import type { PairingCodes } from './codes.ts';

const KEY = 'initial-code';

/**
 * Registers `RELAY_PAIRING_CODE` where waking up is not starting (edge): once for each value that the deployment has had
 * in a row. A code that came back with every sleep of the object would be a lasting password.
 */
export async function registerInitialCode(
  code: string | undefined,
  { codes, store }: { codes: PairingCodes; store: Store<'pairing'> },
): Promise<void> {
  if (code === undefined) return;
  const hash = sha256(code);
  const kept = await store.getItem(KEY);
  if (kept?.registered === hash) return;
  // Stored first: a failure between the two leaves no code, not one that is registered twice.
  await store.setItem(KEY, { registered: hash });
  await codes.register(code, {});
}
