import {
  createHash,
  createPrivateKey,
  KeyObject,
  randomBytes,
  sign as signBytes,
  verify,
  webcrypto,
  X509Certificate,
} from 'node:crypto';
import { isIP } from 'node:net';
import { connect } from 'node:tls';
import { attempt } from '../../kit/attempt.ts';
import { DAY, HOUR } from '../../kit/units.ts';
import type { PinnedOrigin } from '../dial.ts';
import type { HostIdentities, IdentityFacts, IdentityPem, IdentityProblem } from '../identity.ts';

const LIFETIME = 3650 * DAY;
const MIN_RSA_BITS = 2048;

/** Identities by Node's own X.509 reader. The package that creates them is loaded on first use. */
export const createIdentities = (): HostIdentities => ({ generate, read, sign, servedPin });

async function generate(host: string, now: number): Promise<IdentityPem> {
  // The decorators of the package need the polyfill first.
  await import('reflect-metadata');
  const loaded = await import('@peculiar/x509');
  // In the built program, the whole package is in `default`.
  const x509 = 'default' in loaded ? (loaded.default as typeof loaded) : loaded;
  const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
  const keys = await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
  const serial = randomBytes(16);
  // A positive number of exactly 16 bytes: neither the sign bit nor a leading zero.
  serial[0] = ((serial[0] as number) & 0x7f) | 0x40;
  const certificate = await x509.X509CertificateGenerator.createSelfSigned(
    {
      serialNumber: serial.toString('hex'),
      name: 'CN=svc Secure Link',
      notBefore: new Date(now - HOUR),
      notAfter: new Date(now + LIFETIME),
      signingAlgorithm: algorithm,
      keys,
      extensions: [
        new x509.BasicConstraintsExtension(true, 0, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature | x509.KeyUsageFlags.keyCertSign, true),
        new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
        new x509.SubjectAlternativeNameExtension([{ type: isIP(host) ? 'ip' : 'dns', value: host }]),
        // Strict verifiers (RFC 5280 §4.2.1.2) refuse an authority without it.
        await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      ],
    },
    webcrypto as Crypto,
  );
  const key = KeyObject.from(keys.privateKey as webcrypto.CryptoKey).export({ type: 'pkcs8', format: 'pem' });
  return { cert: `${certificate.toString('pem')}\n`, key: String(key) };
}

function read({ cert, key }: IdentityPem): IdentityFacts | IdentityProblem {
  const leaf = attempt(() => new X509Certificate(cert));
  if (!leaf) return 'certificate-unreadable';
  if (/ENCRYPTED/.test(key)) return 'key-encrypted';
  const privateKey = attempt(() => createPrivateKey(key));
  if (!privateKey) return 'key-unreadable';
  const { asymmetricKeyType, asymmetricKeyDetails } = leaf.publicKey;
  const bits = asymmetricKeyDetails?.modulusLength ?? 0;
  return {
    validFrom: Date.parse(leaf.validFrom),
    validTo: Date.parse(leaf.validTo),
    names: leaf.subjectAltName ?? '',
    keyMatches: leaf.checkPrivateKey(privateKey),
    keyIsStrong: asymmetricKeyType === 'ec' || (asymmetricKeyType === 'rsa' && bits >= MIN_RSA_BITS),
    pin: pinOf(leaf),
    certDer: leaf.raw.toString('base64'),
    isFor: (host) => isFor(leaf, host),
  };
}

/** SHA-256 of a certificate's public key (SubjectPublicKeyInfo). */
export const spkiHash = ({ publicKey }: X509Certificate): Buffer =>
  createHash('sha256')
    .update(publicKey.export({ type: 'spki', format: 'der' }))
    .digest();

/** The hash of a certificate's public key that clients pin (contract 08 §2.5). */
export const pinOf = (leaf: X509Certificate): string => `sha256/${spkiHash(leaf).toString('base64')}`;

const sign = (key: string, bytes: Uint8Array): Uint8Array =>
  signBytes('sha256', bytes, { key: createPrivateKey(key), dsaEncoding: 'ieee-p1363' });

/** True if the key of a pinned origin has signed the bytes, as `HostIdentities.sign` does. */
export function isSignedBy({ pin, certDer }: PinnedOrigin, bytes: Uint8Array, signature: Uint8Array): boolean {
  const leaf = attempt(() => new X509Certificate(Buffer.from(certDer, 'base64')));
  if (!leaf || pinOf(leaf) !== pin) return false;
  const key = { key: leaf.publicKey, dsaEncoding: 'ieee-p1363' } as const;
  return attempt(() => verify('sha256', bytes, key, signature)) ?? false;
}

async function servedPin(host: string, port: number, timeout: number): Promise<string | null> {
  const leaf = await servedLeaf(host, port, timeout);
  return leaf && pinOf(leaf);
}

/** The unverified certificate of the TLS server; null if none is served within `timeout` ms. */
export function servedLeaf(host: string, port: number, timeout: number): Promise<X509Certificate | null> {
  return new Promise((resolve) => {
    const servername = isIP(host) ? undefined : host;
    const socket = connect({ host, port, servername, rejectUnauthorized: false, ALPNProtocols: ['http/1.1'] });
    const end = (leaf: X509Certificate | null) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(leaf);
    };
    const timer = setTimeout(() => end(null), timeout);
    socket.on('error', () => end(null));
    socket.once('secureConnect', () => end(socket.getPeerX509Certificate() ?? null));
  });
}

function isFor(leaf: X509Certificate, host: string): boolean {
  if (isIP(host)) return leaf.checkIP(host) !== undefined;
  // OpenSSL takes a leading dot for "any name below", and a NUL for the end of the name.
  if (!/^[a-z0-9][a-z0-9.-]*$/i.test(host)) return false;
  return leaf.checkHost(host, { subject: 'never', wildcards: false }) !== undefined;
}
