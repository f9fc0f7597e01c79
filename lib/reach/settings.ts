import type { Config } from '../config.ts';
import type { HostFiles } from '../host/index.ts';
import { utf8ToBytes } from '../kit/bytes.ts';
import { decodeUtf8, isPrintable } from '../kit/text.ts';
import { isId, isToken, newId } from './ids.ts';

/** Path of the broker's socket, below its authority (contract 08 §7.2). */
export const CONNECT_PATH = '/v1/connect';

const BROKER_URL = /^wss:\/\/[^\s/?#@\\]+(?:\/|\/v1\/connect)?$/i;
/** Maximum bytes read of a host-id file, more than a valid one has. */
const MAX_FILE = 256;

export interface BrokerSettings {
  /** `wss://` and authority. */
  brokerUrl: string;
  token: string;
}

/** `disabled`: no broker is configured. `unavailable`: the configuration is faulty. */
export type ReachSettings =
  | ({ kind: 'ready' } & BrokerSettings)
  | { kind: 'disabled' }
  | { kind: 'unavailable'; problem: string };

type ReachConfig = Pick<
  Config,
  'reachEnabled' | 'secureLinkEnabled' | 'secureLinkBrokerUrl' | 'secureLinkBrokerHostToken'
>;

/** The configured broker (contract 08 §6.1). */
export function readReachSettings(config: ReachConfig): ReachSettings {
  const { secureLinkBrokerUrl: url, secureLinkBrokerHostToken: token } = config;
  const unavailable = (problem: string): ReachSettings => ({ kind: 'unavailable', problem });
  if (url === undefined && token === undefined) return { kind: 'disabled' };
  if (!config.reachEnabled)
    return unavailable('Reach is experimental: set RELAY_EXPERIMENTAL_REACH_ENABLED=1 to use it');
  if (url === undefined) return unavailable('RELAY_SECURE_LINK_BROKER_URL is not set');
  if (token === undefined) return unavailable('RELAY_SECURE_LINK_BROKER_HOST_TOKEN is not set');
  if (!config.secureLinkEnabled) return unavailable('Reach needs Secure Link: set RELAY_SECURE_LINK_ENABLED=1');
  const brokerUrl = readBrokerUrl(url);
  if (!brokerUrl) return unavailable('RELAY_SECURE_LINK_BROKER_URL must be wss:// and a host, with no other path');
  if (!isToken(token) || !isPrintable(token)) {
    return unavailable('RELAY_SECURE_LINK_BROKER_HOST_TOKEN must have 32 to 512 printable characters');
  }
  return { kind: 'ready', brokerUrl, token };
}

/**
 * `wss://` and the authority of a broker's URL; null for any other URL. Its path may only be that of the socket, since
 * clients store only the authority.
 */
export function readBrokerUrl(text: string): string | null {
  if (!BROKER_URL.test(text) || !URL.canParse(text)) return null;
  const { protocol, host, username, password } = new URL(text);
  return protocol === 'wss:' && host !== '' && username === '' && password === '' ? `wss://${host}` : null;
}

/** Names of the relay's own files in a directory. */
const OWN_NAMES = /^(?:cert\.pem|key\.pem|host-id|\..*\.tmp)$/;

/**
 * This host's ID at the broker, from its file or created now (contract 08 §2.1, §6.1). The file gets mode 0600, and its
 * directory 0700 if it is the relay's own.
 * @throws Error if the file cannot be read, or contains anything else; it is left unchanged.
 */
export async function openHostId(path: string, agentHome: string, files: HostFiles): Promise<string> {
  const directory = path.replace(/\/[^/]*$/, '') || '/';
  const found = await files.read(path, MAX_FILE);
  if (!found) {
    const id = newId();
    await files.writeAtomic(path, utf8ToBytes(`${id}\n`), 0o600);
    await tightenDirectory(directory, path, agentHome, files);
    return id;
  }
  const id = decodeUtf8(found).replace(/\r?\n$/, '');
  if (!isId(id)) throw new Error(`the host id file ${path} does not hold an ID; remove it to get a new one`);
  await files.tighten(path, 0o600);
  await tightenDirectory(directory, path, agentHome, files);
  return id;
}

/** An operator's own file may be in a directory that other programs share, such as `/etc`. */
async function tightenDirectory(directory: string, path: string, agentHome: string, files: HostFiles): Promise<void> {
  const names = (await files.list(directory)) ?? [];
  const file = path.slice(path.lastIndexOf('/') + 1);
  const holdsOthers = names.some(({ name }) => name !== file && !OWN_NAMES.test(name));
  if (directory.startsWith(`${agentHome}/`) || !holdsOthers) await files.tighten(directory, 0o700);
}
