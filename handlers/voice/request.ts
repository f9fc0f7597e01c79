import { RelayError } from '../../lib/errors.ts';
import type { BasicCaller } from '../../lib/voice/basic/basic.ts';
import type { VoicePrincipal } from '../../lib/voice/principal.ts';
import { readJson } from '../../lib/web/json.ts';
import { lastOf, type RelayRequest } from '../request.ts';

const BODY_LIMIT = 2 * 1024 * 1024;
/** Maximum characters of a profile name. No directory has a longer one, and each event of a session may repeat it. */
const MAX_PROFILE = 1024;

/**
 * The body of a voice route as a JSON object of at most 2 MiB. With `optional`, an empty body and `null` are `{}` (contract
 * 05 §3).
 * @throws RelayError `invalid`, `too-large`
 */
export const readVoiceBody = (
  request: Request,
  { optional = false }: { optional?: boolean } = {},
): Promise<Record<string, unknown>> =>
  readJson(request, { limit: BODY_LIMIT, empty: optional, null: optional, notObject: 'JSON body must be an object' });

/**
 * Reads the profile that a request names in its query or, failing that, in its body. Returns null if it names none
 * (contract 05 §3).
 * @throws RelayError `invalid` for a name of more than 1024 characters
 */
export function profileOf({ query }: RelayRequest, body: Record<string, unknown> = {}): string | null {
  const named = lastOf(query).profile?.trim() || (typeof body.profile === 'string' && body.profile.trim()) || null;
  if (named !== null && named.length > MAX_PROFILE) {
    throw new RelayError('invalid', `profile has more than ${MAX_PROFILE} characters`);
  }
  return named;
}

/** The caller of a basic route, until it hangs up. */
export const basicCallerOf = ({ voice, signal }: RelayRequest): BasicCaller => ({
  principal: voice as VoicePrincipal,
  signal,
});
