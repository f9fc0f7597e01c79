/** THE list of words that name a secret: every word of contract 02 §5.7, 03 §6 and 07 §2.3. */
const SECRET_WORDS = [
  'apikey',
  'authorization',
  'bearer',
  'cookie',
  'otp',
  'passphrase',
  'passwd',
  'password',
  'pin',
  'privatekey',
  'secret',
  'token',
];

/**
 * Environment variables that pair devices or authenticate as this relay. Child processes never get them (contract 02
 * §3.3, §4.2).
 */
export const SECRET_VARIABLES = ['RELAY_PAIRING_CODE', 'RELAY_SECURE_LINK_BROKER_HOST_TOKEN'];

const WORDS = new Set(SECRET_WORDS);
/** As a suffix, `pin` would take `spin` for a secret, so it counts as a whole word only. */
const ENDING = new RegExp(`(?:${SECRET_WORDS.filter((word) => word !== 'pin').join('|')})$`);
/** Words in camelCase, in capitals, or separated by anything but letters. */
const WORD = /[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+/g;
/** A cheap check, which nearly every name fails. */
const CANDIDATE = /auth|bearer|cookie|key|otp|pass|pin|secret|token/i;

/**
 * True if the name of a member suggests a secret: it ends in a secret word, in any case and with any separators
 * (`token`, `sudo_password`, `accessToken`, `X-API-KEY`; not `total_tokens` or `password_hint`).
 */
export function isSecretName(name: string): boolean {
  if (!CANDIDATE.test(name)) return false;
  if (ENDING.test(name.toLowerCase().replace(/[_-]/g, ''))) return true;
  return wordsOf(name).at(-1) === 'pin';
}

/**
 * True if any word of a name is a secret word (contract 03 §6): `PINCode` and `token_count` too. For records of what
 * was typed on a phone, where hiding too much costs nothing.
 */
export function mentionsSecret(name: string): boolean {
  if (!CANDIDATE.test(name)) return false;
  if (isSecretName(name)) return true;
  const words = wordsOf(name);
  return words.some((word, at) => WORDS.has(word) || WORDS.has(`${word}${words[at + 1] ?? ''}`));
}

const wordsOf = (name: string): string[] => (name.match(WORD) ?? []).map((word) => word.toLowerCase());
