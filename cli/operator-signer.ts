import { createPublicKey } from 'node:crypto';
import { chmod, readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { SignJWT } from 'jose/jwt/sign';
import { exportPKCS8 } from 'jose/key/export';
import { generateKeyPair } from 'jose/key/generate/keypair';
import { importPKCS8 } from 'jose/key/import';
import { OPERATOR_ALGORITHM } from '../lib/access/operator-token.ts';
import { describeError } from '../lib/errors.ts';
import { errnoOf, unlessMissing } from '../lib/host/errors.ts';
import { createFiles, fill, makeDirectory, moveToNew, remove } from '../lib/host/node/files.ts';
import { createTemporaryName } from '../lib/host/node/temporary-files.ts';
import { base64url, randomBytes, utf8ToBytes } from '../lib/kit/bytes.ts';
import { CommandError } from './output.ts';

export interface OperatorToken {
  token: string;
  /** Epoch seconds. */
  expiresAt: number;
}

export interface OperatorSigner {
  /** PEM (SPKI), for `RELAY_OPERATOR_PUBLIC_KEY`. */
  publicKey: string;
  /** Signs a token for one relay, by its name or its URL, valid for `ttl` seconds (contract 01 §12). */
  sign(audience: string, ttl: number): Promise<OperatorToken>;
}

/**
 * The operator's key pair in the agent home, created at first use. It never leaves this machine; the edge gets its
 * public half only.
 * @throws CommandError when it can be neither read nor created.
 */
export async function openOperatorSigner(agentHome: string): Promise<OperatorSigner> {
  const directory = join(agentHome, 'svc-relay');
  const { privateKey, publicKey } = await readKeys(directory).catch((error) => {
    throw new CommandError(
      `cannot read or create the operator key: ${describeError(error)}`,
      `Check that this user may write to ${directory}, or set SVC_HOME to another folder.`,
    );
  });
  return {
    publicKey,
    async sign(audience, ttl) {
      const issued = Math.floor(Date.now() / 1000);
      const expiresAt = issued + ttl;
      const token = await new SignJWT()
        .setProtectedHeader({ alg: OPERATOR_ALGORITHM })
        .setAudience(audience)
        .setIssuedAt(issued)
        .setExpirationTime(expiresAt)
        .setJti(base64url(randomBytes(16)))
        .sign(await importPKCS8(privateKey, OPERATOR_ALGORITHM));
      return { token, expiresAt };
    },
  };
}

/**
 * Replaces the key pair. Relays at the edge accept the old one until they are deployed with the new public key.
 * @throws the error of the file system.
 */
export async function rotateOperatorSigner(agentHome: string): Promise<OperatorSigner> {
  const path = join(agentHome, 'svc-relay', 'operator-key.pem');
  const pair = await generateKeyPair(OPERATOR_ALGORITHM, { extractable: true });
  await createFiles().writeAtomic(path, utf8ToBytes(await exportPKCS8(pair.privateKey)), 0o600);
  // Mends the copy for people too.
  return openOperatorSigner(agentHome);
}

interface Keys {
  /** PKCS #8 PEM. */
  privateKey: string;
  /** SPKI PEM. */
  publicKey: string;
}

/** The key pair in `directory`, created at first use. The public file is only a copy for people. */
async function readKeys(directory: string): Promise<Keys> {
  const path = join(directory, 'operator-key.pem');
  const privateKey = (await readOrNull(path)) ?? (await createKey(path));
  const key = createPublicKey(privateKey);
  if (key.asymmetricKeyType !== 'ed25519') throw new Error('operator-key.pem is not an Ed25519 key');
  if (((await stat(path)).mode & 0o077) !== 0) await chmod(path, 0o600);
  const publicKey = key.export({ type: 'spki', format: 'pem' }).toString();
  const publicPath = join(directory, 'operator-key.pub.pem');
  if ((await readOrNull(publicPath)) !== publicKey) {
    await remove(publicPath);
    await createWhole(publicPath, publicKey);
  }
  return { privateKey, publicKey };
}

async function createKey(path: string): Promise<string> {
  const pair = await generateKeyPair(OPERATOR_ALGORITHM, { extractable: true });
  await makeDirectory(dirname(path));
  await createWhole(path, await exportPKCS8(pair.privateKey));
  return await readFile(path, 'utf8');
}

/**
 * Creates a file with mode 0600 that readers see whole or not at all. An existing file stays, so two commands that race
 * both use the key of the first.
 */
async function createWhole(path: string, content: string): Promise<void> {
  const temporary = join(dirname(path), createTemporaryName());
  await fill(temporary, utf8ToBytes(content), 0o600);
  try {
    await moveToNew(temporary, path);
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw error;
  } finally {
    await remove(temporary);
  }
}

const readOrNull = (path: string): Promise<string | null> => unlessMissing(readFile(path, 'utf8'));
