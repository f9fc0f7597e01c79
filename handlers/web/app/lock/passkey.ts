import { base64url, fromBase64url, utf8ToBytes } from '../../../../lib/kit/bytes.ts';
import { parseObject } from '../../../../lib/kit/json.ts';

/** Milliseconds for a person to touch the sensor. */
const TIMEOUT = 120_000;
/** COSE numbers of ES256, EdDSA and RS256, in the order of preference. */
const ALGORITHMS = [-7, -8, -257];
/** Flag of the authenticator data for a verified person (WebAuthn §6.1). */
const USER_VERIFIED = 0x04;
const FLAGS_AT = 32;

/** Why this browser cannot lock the page with a passkey, in a sentence; null if it can. */
export async function passkeyObstacle(): Promise<string | null> {
  if (!isSecureContext) return 'A passkey needs a secure page: open the relay by its https address.';
  if (!('PublicKeyCredential' in window)) return 'This browser does not support passkeys.';
  if (/^[\d.]+$|^\[/.test(location.hostname))
    return 'Passkeys belong to a name: open the relay by its name instead of its IP address.';
  const hasVerifier = await PublicKeyCredential.isUserVerifyingPlatformAuthenticatorAvailable().catch(() => false);
  if (!hasVerifier)
    return 'This device has no fingerprint, face or screen lock that the browser can use. Set one up in the settings of the device.';
  return null;
}

const challenge = () => crypto.getRandomValues(new Uint8Array(32));

/**
 * Creates a passkey on this device, and resolves with its id. The same `user` replaces the former one. @throws Error with a
 * sentence for people.
 */
export async function createPasskey(user: string, signal: AbortSignal): Promise<string> {
  const asked = challenge();
  const label = `svc · ${location.host}`;
  const made = await ask(() =>
    navigator.credentials.create({
      signal,
      publicKey: {
        challenge: asked,
        rp: { name: 'svc' },
        user: { id: utf8ToBytes(user) as BufferSource, name: label, displayName: label },
        pubKeyCredParams: ALGORITHMS.map((alg) => ({ type: 'public-key', alg })),
        authenticatorSelection: { authenticatorAttachment: 'platform', userVerification: 'required' },
        timeout: TIMEOUT,
      },
    }),
  );
  const response = made.response as AuthenticatorAttestationResponse;
  check(response, new Uint8Array(response.getAuthenticatorData()), 'webauthn.create', asked);
  return base64url(new Uint8Array(made.rawId));
}

/** Resolves once the person was verified with the passkey. @throws Error with a sentence for people. */
export async function askForPasskey(id: string, signal: AbortSignal): Promise<void> {
  const asked = challenge();
  const given = await ask(() =>
    navigator.credentials.get({
      signal,
      publicKey: {
        challenge: asked,
        allowCredentials: [
          { type: 'public-key', id: (fromBase64url(id) ?? new Uint8Array()) as BufferSource, transports: ['internal'] },
        ],
        userVerification: 'required',
        timeout: TIMEOUT,
      },
    }),
  );
  const response = given.response as AuthenticatorAssertionResponse;
  if (base64url(new Uint8Array(given.rawId)) !== id) throw new Error('That was a different passkey.');
  check(response, new Uint8Array(response.authenticatorData), 'webauthn.get', asked);
}

async function ask(call: () => Promise<Credential | null>): Promise<PublicKeyCredential> {
  let credential: Credential | null = null;
  try {
    credential = await call();
  } catch (error) {
    const name = error instanceof DOMException ? error.name : '';
    if (name === 'AbortError' || name === 'NotAllowedError') {
      throw new Error('The passkey was not confirmed: it was cancelled, took too long, or is not on this device.');
    }
    throw new Error('This browser could not use the passkey.');
  }
  if (!(credential instanceof PublicKeyCredential)) throw new Error('This browser could not use the passkey.');
  return credential;
}

/**
 * Checks that the answer is for this challenge and that the person was verified. The signature is not checked, since code
 * that could forge the browser's answer could also skip the check.
 */
function check(response: AuthenticatorResponse, data: Uint8Array, type: string, asked: Uint8Array): void {
  const client = parseObject(new TextDecoder().decode(response.clientDataJSON));
  const isAnswer = client?.type === type && client.challenge === base64url(asked) && client.origin === location.origin;
  if (!isAnswer || ((data[FLAGS_AT] ?? 0) & USER_VERIFIED) === 0) {
    throw new Error('The passkey did not verify who you are.');
  }
}
