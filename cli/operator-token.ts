import { createPublicKey } from 'node:crypto';
import { chmod, link, mkdir, open, readFile, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Command } from 'cac';
import { SignJWT } from 'jose/jwt/sign';
import { exportPKCS8 } from 'jose/key/export';
import { generateKeyPair } from 'jose/key/generate/keypair';
import { importPKCS8 } from 'jose/key/import';
import { OPERATOR_ALGORITHM, OPERATOR_AUDIENCE } from '../lib/access/operator-token.ts';
import { describeError, RelayError } from '../lib/errors.ts';
import { base64url, randomBytes } from '../lib/kit/bytes.ts';
import { describeDuration, parseDuration } from '../lib/pairing/duration.ts';
import { loadEnvironment } from './environment.ts';
import { flag, type Options, option } from './options.ts';
import { type CommandContext, CommandError, line, UsageError } from './output.ts';

/** Seconds. */
const DEFAULT_TTL = 600;
const MAX_TTL = 86_400;

/**
 * `svc relay operator-token`: the credential for operator routes of a relay at the edge, where there is no loopback.
 * The key pair is created once and stays in the agent home; the edge gets its public half only.
 */
export function define(command: Command): void {
  command
    .option('--ttl <duration>', 'lifetime of the token (default 10m, at most 1d)')
    .option('--public-key', 'print the public key instead, as one line for RELAY_OPERATOR_PUBLIC_KEY')
    .option('--json', 'print one JSON document')
    .example((name) => `TOKEN=$(${name} operator-token)`)
    .example((name) => `${name} operator-token --ttl 1h --json`)
    .example((name) => `${name} operator-token --public-key | wrangler secret put RELAY_OPERATOR_PUBLIC_KEY`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const ttl = option(options, '--ttl', asTtl);
  const json = flag(options, '--json');
  const publicOnly = flag(options, '--public-key');
  if (publicOnly && ttl !== undefined) throw new UsageError('--ttl and --public-key exclude each other');

  const { places } = loadEnvironment(context.env);
  const { privateKey, publicKey } = await readKeys(join(places.agentHome, 'svc-relay')).catch((error) => {
    throw new CommandError(`cannot read or create the operator key: ${describeError(error)}`);
  });
  if (publicOnly) {
    const oneLine = publicKey.trim().replaceAll('\n', '\\n');
    return line(context.stdout, json ? JSON.stringify({ public_key: oneLine }) : oneLine);
  }

  const issued = Math.floor(Date.now() / 1000);
  const expires = issued + (ttl ?? DEFAULT_TTL);
  const token = await new SignJWT()
    .setProtectedHeader({ alg: OPERATOR_ALGORITHM })
    .setAudience(OPERATOR_AUDIENCE)
    .setIssuedAt(issued)
    .setExpirationTime(expires)
    .setJti(base64url(randomBytes(16)))
    .sign(await importPKCS8(privateKey, OPERATOR_ALGORITHM));
  if (json) return line(context.stdout, JSON.stringify({ token, expires_at: expires, audience: OPERATOR_AUDIENCE }));
  line(context.stdout, token);
  for (const text of advice(context.program, expires - issued)) line(context.stderr, text);
}

function asTtl(text: string): number {
  const seconds = parseDuration(text);
  if (seconds === 0 || seconds > MAX_TTL) throw new RelayError('invalid', 'must be at most 1d');
  return seconds;
}

const advice = (program: string, ttl: number): string[] => [
  '',
  `Valid for ${describeDuration(ttl)}. Send it to the relay at the edge as: Authorization: Bearer <token>`,
  '',
  'The edge accepts it once it has the public key of this machine as RELAY_OPERATOR_PUBLIC_KEY:',
  `  ${program} operator-token --public-key | wrangler secret put RELAY_OPERATOR_PUBLIC_KEY`,
  'It is not a secret: the [vars] of wrangler.toml may hold it as well.',
];

interface Keys {
  /** PKCS #8 PEM. */
  privateKey: string;
  /** SPKI PEM. */
  publicKey: string;
}

/** The key pair in `directory`, created when there is none. The public file is only a copy for people. */
async function readKeys(directory: string): Promise<Keys> {
  const path = join(directory, 'operator-key.pem');
  const privateKey = (await readOrNull(path)) ?? (await createKey(path));
  const key = createPublicKey(privateKey);
  if (key.asymmetricKeyType !== 'ed25519') throw new Error('operator-key.pem is not an Ed25519 key');
  if (((await stat(path)).mode & 0o077) !== 0) await chmod(path, 0o600);
  const publicKey = key.export({ type: 'spki', format: 'pem' }).toString();
  const publicPath = join(directory, 'operator-key.pub.pem');
  if ((await readOrNull(publicPath)) !== publicKey) {
    await rm(publicPath, { force: true });
    await createWhole(publicPath, publicKey);
  }
  return { privateKey, publicKey };
}

async function createKey(path: string): Promise<string> {
  const pair = await generateKeyPair(OPERATOR_ALGORITHM, { extractable: true });
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await createWhole(path, await exportPKCS8(pair.privateKey));
  return await readFile(path, 'utf8');
}

/**
 * Creates a file with mode 0600 that readers see whole or not at all. An existing file stays, so two commands that race
 * both use the key of the first.
 */
async function createWhole(path: string, content: string): Promise<void> {
  const temporary = `${path}.${base64url(randomBytes(9))}`;
  const file = await open(temporary, 'wx', 0o600);
  try {
    await file.writeFile(content);
    await file.sync();
    await link(temporary, path).catch((error) => {
      if (error.code !== 'EEXIST') throw error;
    });
  } finally {
    await file.close();
    await rm(temporary, { force: true });
  }
}

async function readOrNull(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if ((error as { code?: unknown }).code === 'ENOENT') return null;
    throw error;
  }
}
