import { base64url, fromBase64url, utf8ToBytes } from '../kit/bytes.ts';

const CURVE = { name: 'ECDSA', namedCurve: 'P-256' };
const SIGNING = { name: 'ECDSA', hash: 'SHA-256' };

export interface HomeKey {
  /** PKCS #8, base64url. */
  privateKey: string;
  /** Uncompressed point, base64url. */
  publicKey: string;
}

/** A new key with which home authenticates to the edge (ES256, contract 12 §2). */
export async function newHomeKey(): Promise<HomeKey> {
  const pair = await crypto.subtle.generateKey(CURVE, true, ['sign', 'verify']);
  const [privateKey, publicKey] = await Promise.all([
    crypto.subtle.exportKey('pkcs8', pair.privateKey),
    crypto.subtle.exportKey('raw', pair.publicKey),
  ]);
  return { privateKey: base64url(new Uint8Array(privateKey)), publicKey: base64url(new Uint8Array(publicKey)) };
}

/** True for a public key of this kind. */
export const isPublicKey = (text: string): boolean => {
  const bytes = fromBase64url(text);
  return bytes?.length === 65 && bytes[0] === 4;
};

const signed = (nonce: string, host: string) => utf8ToBytes(`svc-relay mirror v1\n${nonce}\n${host}`);

/** Signs a challenge of the edge for the host under which home called it (contract 12 §7). Rejects with a damaged key. */
export async function signChallenge(privateKey: string, nonce: string, host: string): Promise<string> {
  const bytes = fromBase64url(privateKey) as BufferSource;
  const key = await crypto.subtle.importKey('pkcs8', bytes, CURVE, false, ['sign']);
  return base64url(new Uint8Array(await crypto.subtle.sign(SIGNING, key, signed(nonce, host) as BufferSource)));
}

/** Resolves with true if home's key has signed a challenge. Never rejects. */
export async function verifyChallenge(
  publicKey: string,
  signature: string,
  { nonce, host }: { nonce: string; host: string },
): Promise<boolean> {
  try {
    const bytes = fromBase64url(publicKey) as BufferSource;
    const key = await crypto.subtle.importKey('raw', bytes, CURVE, false, ['verify']);
    const given = fromBase64url(signature) as BufferSource;
    return await crypto.subtle.verify(SIGNING, key, given, signed(nonce, host) as BufferSource);
  } catch {
    return false;
  }
}
