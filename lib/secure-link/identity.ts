import { describeError } from '../errors.ts';
import { errnoOf } from '../host/errors.ts';
import type { IdentityFacts, IdentityPem } from '../host/identity.ts';
import type { Host } from '../host/index.ts';
import { utf8ToBytes } from '../kit/bytes.ts';
import { decodeUtf8 } from '../kit/text.ts';
import type { Log } from '../log.ts';
import { advertisedHost } from './advertised.ts';
import type { SecureLinkSettings } from './settings.ts';

/** Directories in the agent home; the second one is that of an earlier version (contract 08 §2.1). */
export const DIRECTORY = 'relay-secure-link';
export const EARLIER_DIRECTORY = 'relay-secure-proxy';

/** Larger files are not our PEM files. */
const MAX_PEM = 64 * 1024;
/** Characters of `cert_der` that clients accept. */
const MAX_CERT_DER = 8192;

/** Paths of a certificate and its key. */
export interface IdentityFiles {
  cert: string;
  key: string;
}

/** State of the identity's files. */
export type FoundIdentity =
  | { kind: 'none'; files: IdentityFiles }
  | { kind: 'unusable'; files: IdentityFiles; reason: string }
  | { kind: 'found'; files: IdentityFiles; pem: IdentityPem; facts: IdentityFacts; key: KeyAccess };

export interface KeyAccess {
  /** True if accounts besides the owner may read the key. */
  isLoose: boolean;
  /** True if it is in the agent home, where the relay may tighten it. */
  isOwn: boolean;
}

export interface Identity extends IdentityPem {
  host: string;
  facts: IdentityFacts;
}

const filesIn = (directory: string): IdentityFiles => ({
  cert: `${directory}/cert.pem`,
  key: `${directory}/key.pem`,
});

type IdentityHost = Pick<Host, 'agentHome' | 'files' | 'identities' | 'network'>;
type IdentitySettings = Pick<SecureLinkSettings, 'bindHost' | 'files'>;
type NamedFiles = Pick<SecureLinkSettings, 'files'>;

/** Reads the identity without any change. Never rejects. */
export async function findIdentity(settings: NamedFiles, host: IdentityHost): Promise<FoundIdentity> {
  const files = await identityFiles(settings, host);
  try {
    return await readIdentity(files, host);
  } catch (error) {
    return { kind: 'unusable', files, reason: `the certificate or key cannot be read (${errnoOf(error) || 'failed'})` };
  }
}

/** The operator's files; else those of an earlier version, if they are the only ones; else the relay's own. */
async function identityFiles({ files: named }: NamedFiles, { agentHome, files }: IdentityHost) {
  if (named) return named;
  const [own, earlier] = [filesIn(`${agentHome}/${DIRECTORY}`), filesIn(`${agentHome}/${EARLIER_DIRECTORY}`)];
  const exists = (path: string) =>
    files.stat(path).then(
      (facts) => facts !== null,
      () => true,
    );
  if ((await exists(own.cert)) || (await exists(own.key))) return own;
  return (await exists(earlier.cert)) && (await exists(earlier.key)) ? earlier : own;
}

async function readIdentity(paths: IdentityFiles, host: IdentityHost): Promise<FoundIdentity> {
  const { files, identities, agentHome } = host;
  const [cert, key] = await Promise.all([files.read(paths.cert, MAX_PEM), files.read(paths.key, MAX_PEM)]);
  if (!cert && !key) return { kind: 'none', files: paths };
  const unusable = (reason: string): FoundIdentity => ({ kind: 'unusable', files: paths, reason });
  if (!cert) return unusable('there is a private key without its certificate');
  if (!key) return unusable('there is a certificate without its private key');
  const pem = { cert: decodeUtf8(cert), key: decodeUtf8(key) };
  const facts = identities.read(pem);
  if (facts === 'certificate-unreadable') return unusable('the certificate is not a PEM certificate');
  if (facts === 'key-unreadable') return unusable('the private key is not a PEM key');
  if (facts === 'key-encrypted') return unusable('the private key is encrypted');
  const [info, realKey, realHome] = await Promise.all([
    files.stat(paths.key),
    files.realPath(paths.key),
    files.realPath(agentHome),
  ]);
  const access = {
    isLoose: ((info?.mode ?? 0) & 0o077) !== 0,
    isOwn: realKey !== null && realHome !== null && realKey.startsWith(`${realHome}/`),
  };
  return { kind: 'found', files: paths, pem, facts, key: access };
}

/**
 * Returns why a found identity cannot serve `host` at `now` (epoch milliseconds); null if it can (contract 08 §2.4). Without
 * a host, its names are not checked.
 */
export function identityProblem(facts: IdentityFacts, host: string | null, now: number): string | null {
  if (!facts.keyMatches) return 'the private key does not belong to the certificate';
  if (!facts.keyIsStrong) return 'the key is neither EC nor RSA with at least 2048 bits';
  if (facts.certDer.length > MAX_CERT_DER) return 'the certificate is too large for clients';
  if (facts.validTo <= now) return EXPIRED;
  if (facts.validFrom > now) return 'the certificate is not valid yet';
  if (host !== null && !facts.isFor(host)) return `the certificate is not for ${host}`;
  return null;
}

/**
 * Loads the identity of Secure Link, or creates it if there is none. An unusable pair stays unchanged, since the relay never
 * replaces a key that phones have pinned (contract 08 §2.4). Returns the reason if there is no identity.
 */
export async function openIdentity(
  settings: IdentitySettings,
  host: IdentityHost,
  now: number,
  log: Log,
): Promise<Identity | string> {
  if (!settings.files) await tightenDirectory(host, log);
  const found = await findIdentity(settings, host);
  if (found.kind !== 'none') log.info(`the identity of Secure Link is in ${found.files.cert} and ${found.files.key}`);
  if (found.kind === 'unusable') return `${found.reason}; ${REPLACE}`;
  const isFor = found.kind === 'found' ? found.facts.isFor : undefined;
  const advertised = await advertisedHost(settings.bindHost, isFor, host.network);
  if (found.kind === 'none') return makeIdentity(found.files, advertised, host, now, log);
  const problem = identityProblem(found.facts, advertised, now);
  if (problem) return `${problem}; ${REPLACE}`;
  if (found.key.isLoose) {
    if (!found.key.isOwn) return 'other accounts can read the private key: change its mode to 0600';
    await host.files.tighten(found.files.key, 0o600);
    log.warn('other accounts could read the private key of Secure Link; its mode is now 0600');
  }
  return { ...found.pem, host: advertised, facts: found.facts };
}

export const EXPIRED = 'the certificate has expired';
export const REPLACE = 'remove or replace the certificate and its key, restart the relay, and pair every device again';

/** The directory belongs to the relay and also contains the host id. */
async function tightenDirectory({ files, agentHome }: IdentityHost, log: Log): Promise<void> {
  const directory = `${agentHome}/${DIRECTORY}`;
  try {
    if (await files.tighten(directory, 0o700))
      log.warn(`${directory} was open to other accounts; its mode is now 0700`);
  } catch (error) {
    log.warn(`the mode of ${directory} cannot be changed: ${describeError(error)}`);
  }
}

async function makeIdentity(
  paths: IdentityFiles,
  advertised: string,
  { files, identities }: IdentityHost,
  now: number,
  log: Log,
): Promise<Identity | string> {
  const made = await newIdentity(advertised, identities, now);
  try {
    await writeIdentity(paths, made, files);
  } catch (error) {
    log.error(`${paths.key} or ${paths.cert}: ${describeError(error)}`);
    return 'the new certificate and key cannot be written';
  }
  log.info(`made the identity of Secure Link for ${advertised}: ${made.facts.pin}`);
  return made;
}

async function newIdentity(host: string, identities: Host['identities'], now: number): Promise<Identity> {
  const pem = await identities.generate(host, now);
  const facts = identities.read(pem);
  if (typeof facts === 'string') throw new Error(`the new identity cannot be read (${facts})`);
  return { ...pem, host, facts };
}

/** The key first: a crash in between leaves a key alone, which never passes for an identity. */
async function writeIdentity(paths: IdentityFiles, { cert, key }: IdentityPem, files: Host['files']): Promise<void> {
  await files.writeAtomic(paths.key, utf8ToBytes(key), 0o600);
  await files.writeAtomic(paths.cert, utf8ToBytes(cert), 0o600);
}

/**
 * Creates a new identity of the relay and replaces the present one. The running relay keeps the old one until it restarts.
 * The old certificate is removed first: a crash in between leaves a key alone, or nothing, and never a mismatched pair.
 * @throws if a file cannot be written.
 */
export async function rotateIdentity(
  { bindHost }: Pick<SecureLinkSettings, 'bindHost'>,
  { agentHome, files, identities, network }: IdentityHost,
  now: number,
): Promise<{ host: string; pin: string }> {
  const host = await advertisedHost(bindHost, undefined, network);
  const made = await newIdentity(host, identities, now);
  const paths = filesIn(`${agentHome}/${DIRECTORY}`);
  await files.tighten(`${agentHome}/${DIRECTORY}`, 0o700);
  await files.remove(paths.cert);
  await writeIdentity(paths, made, files);
  return { host, pin: made.facts.pin };
}
