import { join, resolve } from 'node:path';
import { type Config, variables } from '../../lib/config.ts';
import { errnoOf } from '../../lib/host/errors.ts';
import type { HostFiles } from '../../lib/host/index.ts';
import { CommandError, printable } from '../output.ts';

/** Maximum bytes of one file, far above any of ours. */
export const MAX_FILE = 1024 * 1024;

/** Files of a relay beside its state, below the agent home. */
const AGENT_FILES = [
  '.env',
  'svc-relay-qr-secret',
  'relay-remote.json',
  'companion/settings.json',
  ...['operator-key', 'operator-key.pem', 'operator-key.pub.pem', 'mcp.json', 'advertised-hosts'].map(
    (name) => `svc-relay/${name}`,
  ),
  ...['relay-secure-link', 'relay-secure-proxy'].flatMap((name) => [`${name}/cert.pem`, `${name}/key.pem`]),
  'relay-secure-link/host-id',
];
/** Below the relay's own home. */
const RELAY_FILES = ['config.yaml', 'use', 'auth/xai-oauth.json'];

const FIXED = new Set([...AGENT_FILES.map((name) => `agent/${name}`), ...RELAY_FILES.map((name) => `relay/${name}`)]);
/** Certificates and keys that the owner keeps in one of these folders: neither hidden, nor outside. */
const CERTIFICATE = /^(?:agent|relay)(?:\/[\w-][\w.-]{0,127}){1,8}\.(?:pem|crt|cer|key)$/;

/** Variables that name a file which may be the owner's. */
const NAMED = [
  'sslCert',
  'sslKey',
  'secureLinkCert',
  'secureLinkKey',
  'secureLinkHostIdFile',
  'voiceOutputConfig',
  'realtimeVoiceConfig',
  'realtimeVoiceXaiOauthPath',
] as const;

type Homes = Pick<Config, 'agentHome' | 'relayHome'>;

/** Accepts the names that a backup may contain. A restore writes no other file. */
export const isKnownFile = (name: string): boolean => FIXED.has(name) || CERTIFICATE.test(name);

/** Where a file of a backup is in a home. */
export function placeOf(name: string, { agentHome, relayHome }: Homes): string {
  const [root = '', ...rest] = name.split('/');
  return join(root === 'agent' ? agentHome : relayHome, ...rest);
}

/** The name in a backup of one of the owner's files; null if it is not in these folders. */
function nameOf(path: string, { agentHome, relayHome }: Homes): string | null {
  for (const [root, folder] of [
    ['agent', agentHome],
    ['relay', relayHome],
  ] as const) {
    const name = path.startsWith(`${folder}/`) ? `${root}/${path.slice(folder.length + 1)}` : '';
    if (isKnownFile(name)) return name;
  }
  return null;
}

export interface Inventory {
  /** Names of files that a backup of this home may hold. */
  names: string[];
  /** Files of the owner's that the settings name and a backup leaves out: `RELAY_SSL_KEY: /etc/ssl/relay.pem`. */
  leftOut: string[];
}

/** Lists the files besides the state that belong to the relay of this configuration, existing or not. */
export function inventoryOf(config: Config): Inventory {
  const names = new Set(FIXED);
  const leftOut: string[] = [];
  for (const key of NAMED) {
    const path = config[key];
    if (typeof path !== 'string') continue;
    const name = nameOf(resolve(path), config);
    if (name !== null) names.add(name);
    else leftOut.push(`${variables[key].name}: ${printable(path)}`);
  }
  return { names: [...names], leftOut };
}

/**
 * The files of an inventory that exist, by their names.
 * @throws CommandError for one that cannot be read, or is larger than any of ours.
 */
export async function readFiles(
  names: readonly string[],
  homes: Homes,
  files: HostFiles,
): Promise<Map<string, Uint8Array>> {
  const found = new Map<string, Uint8Array>();
  for (const name of names) {
    const path = placeOf(name, homes);
    const bytes = await files.read(path, MAX_FILE + 1).catch((error) => {
      throw new CommandError(
        `${printable(path)} cannot be read: ${errnoOf(error) || 'failed'}`,
        'Run this as the user that runs the relay.',
      );
    });
    if (bytes === null) continue;
    if (bytes.length > MAX_FILE) {
      throw new CommandError(
        `${printable(path)} is larger than 1 MiB`,
        'No file of the relay is that large: look at what it is.',
      );
    }
    found.set(name, bytes);
  }
  return found;
}
