import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { variables } from '../lib/config.ts';
import { RelayError } from '../lib/errors.ts';
import { createFiles } from '../lib/host/node/files.ts';
import { defaultPort, mayCarryCredentials, unbracket } from '../lib/kit/addresses.ts';
import { type Environment, readVariable } from './environment.ts';
import { openOperatorSigner } from './operator-signer.ts';
import { asHttpUrl, type Options, option } from './options.ts';
import { CommandError, printable, UsageError } from './output.ts';
import type { RelayAddress } from './relay-client.ts';

/** Seconds. Each call gets a new token. */
const TOKEN_TTL = 300;

/** Description of `--relay` in every command that takes it. */
export const RELAY_OPTION = [
  '--relay <url>',
  'a relay at the edge, by its public URL: signs as its operator with the key of this machine',
] as const;

/** Description of `--relay` in the commands that save and restore a state, which refuse it. */
export const NO_RELAY_OPTION = ['--relay <url>', 'refused: a relay elsewhere is saved on its own machine'] as const;

/**
 * Refuses `--relay`: a backup contains every secret of a relay, which leave its machine in no other way (contract 11 §3).
 * @throws CommandError with an alternative.
 */
export function refuseRelayElsewhere(options: Options, command: 'backup' | 'restore'): void {
  if (typeof options.relay !== 'string') return;
  const { origin, hostname } = option(options, '--relay', asRelayUrl) as URL;
  throw new CommandError(
    `svc ${command} is for the relay of this machine: the secrets of ${origin} do not leave the machine that it runs on`,
    `Type it there: ssh -t ${hostname} svc ${command} relay.svc. A relay at the edge keeps its state there, without a backup.`,
  );
}

/**
 * The relay of `--relay`, else `SVC_RELAY`, else `svc use` (contract 11 §1), called as its operator; undefined for the relay
 * of this machine (contract 01 §12), which options such as `--no-relay` and `--relay-port` select.
 */
export async function remoteRelay(options: Options, environment: Environment): Promise<RelayAddress | undefined> {
  const isChosen = options.relay !== undefined || options.relayPort !== undefined;
  const chosen = isChosen ? option(options, '--relay', asRelayUrl) : defaultRelay(environment);
  if (!chosen) return undefined;
  const { url, tried } = chosen instanceof URL ? { url: chosen } : chosen;
  const signer = await openOperatorSigner(environment.directories.agentHome);
  const tls = url.protocol === 'https:';
  return {
    host: unbracket(url.hostname),
    port: Number(url.port) || defaultPort(tls ? 'https' : 'http'),
    tls,
    url: url.origin,
    ...(tried !== undefined && { tried }),
    async authorize() {
      const { token } = await signer.sign(url.origin, TOKEN_TTL);
      return { authorization: `Bearer ${token}` };
    },
  };
}

/** @throws RelayError for anything but the https:// URL of a relay. */
export function asRelayUrl(text: string): URL {
  const url = new URL(asHttpUrl(text));
  if (!mayCarryCredentials(url))
    throw new RelayError('invalid', 'must be an https:// URL: the call carries a credential');
  if (url.pathname !== '/' || url.search || url.hash)
    throw new RelayError('invalid', 'must not contain a path or query');
  return url;
}

interface DefaultRelay {
  url: URL;
  /** The source of the choice. */
  tried: string;
}

const usedFile = (environment: Environment): string => join(readVariable(variables.relayHome, environment), 'use');

/**
 * The remote relay that is the default of this shell or user.
 * @throws UsageError for an invalid URL.
 */
export function defaultRelay(environment: Environment): DefaultRelay | undefined {
  const shell = environment.env.SVC_RELAY?.trim();
  if (shell) return named(shell, 'SVC_RELAY names it', 'SVC_RELAY');
  const used = readUsed(environment);
  return used === null
    ? undefined
    : named(used, "it is that of 'svc use', which 'svc use --here' ends", usedFile(environment));
}

function named(text: string, tried: string, where: string): DefaultRelay {
  try {
    return { url: asRelayUrl(text), tried };
  } catch (error) {
    if (!(error instanceof RelayError)) throw error;
    throw new UsageError(`${where}: '${printable(text)}' ${error.message}`);
  }
}

/** Reads the URL stored by `svc use`. Returns null if none was stored. */
function readUsed(environment: Environment): string | null {
  try {
    return readFileSync(usedFile(environment), 'utf8').trim() || null;
  } catch (error) {
    // A home that this user may not read, as after `sudo`, belongs to another user, so it chooses nothing here.
    if (['ENOENT', 'ENOTDIR', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) return null;
    throw error;
  }
}

/** Makes a remote relay the default of this user, or with null the relay of this machine. */
export async function writeUsed(url: URL | null, environment: Environment): Promise<void> {
  const path = usedFile(environment);
  if (url === null) rmSync(path, { force: true });
  else await createFiles().writeAtomic(path, new TextEncoder().encode(`${url.origin}\n`), 0o600);
}
