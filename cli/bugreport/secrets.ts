import { homedir } from 'node:os';
import { operatorKeyPath } from '../../lib/access/operator-key.ts';
import { type Config, variables } from '../../lib/config.ts';
import { unlessUnreadable } from '../../lib/host/errors.ts';
import type { HostFiles } from '../../lib/host/index.ts';
import { base64, base64url, bytesToHex } from '../../lib/kit/bytes.ts';
import { decodeEnvFile, parseEnvFile } from '../../lib/kit/env-file.ts';
import { asObject, parseJson } from '../../lib/kit/json.ts';
import { isSecretName, SECRET_VARIABLES } from '../../lib/kit/secret-names.ts';
import { HIDDEN, hideSecrets } from '../../lib/kit/secret-text.ts';
import { decodeUtf8 } from '../../lib/kit/text.ts';
import { qrSecretPath } from '../../lib/pairing/secret.ts';

const MAX_FILE = 1024 * 1024;
/** Shorter values are ordinary words, and hiding each of them would leave nothing to read. */
const MIN_SECRET = 6;
/** Characters of a line that are looked through, and kept. */
const MAX_LINE = 4000;

/** Names of variables whose values are credentials, unless they are paths. */
const NAMES = /(?:KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE|CODE|CREDENTIALS?|AUTH|COOKIE)$/i;

const isCredential = (name: string, value: string): boolean =>
  SECRET_VARIABLES.includes(name) || ((isSecretName(name) || NAMES.test(name)) && !/^[/~]/.test(value));

/**
 * Every secret that a bug report must not hold, from the files that this user may read: variables, keys of the relay, tokens
 * of agents and of the companion, keys of the agent.
 * @throws when a file is there and reading it fails: its secrets would not be recognized in the report.
 */
export async function readSecrets(
  config: Config,
  env: Record<string, string | undefined>,
  files: HostFiles,
): Promise<string[]> {
  const found = new Set<string>();
  const add = (value: unknown) => {
    if (typeof value === 'string' && value.trim().length >= MIN_SECRET) found.add(value.trim());
  };
  const read = (path: string) => unlessUnreadable(files.read(path, MAX_FILE));
  const addVariables = (values: Record<string, string | undefined>) => {
    for (const [name, value = ''] of Object.entries(values)) {
      if (isCredential(name, value)) add(value);
      for (const part of userInfo(value)) add(part);
    }
    for (const part of hiddenParts(values)) add(part);
  };
  addVariables(env);
  const { agentHome, relayHome } = config;
  const dotEnv = await read(`${agentHome}/.env`);
  if (dotEnv) addVariables(parseEnvFile(decodeEnvFile(dotEnv)));

  const qr = await read(qrSecretPath(agentHome));
  if (qr) for (const form of [base64(qr), base64url(qr), bytesToHex(qr), decodeUtf8(qr)]) add(form);
  const texts = [operatorKeyPath(agentHome), `${agentHome}/svc-relay/dashboard-marker`, config.secureLinkHostIdFile];
  for (const path of texts) {
    const bytes = await read(path);
    for (const line of bytes ? decodeUtf8(bytes).split('\n') : []) add(line);
  }
  const keys = [
    `${agentHome}/svc-relay/operator-key.pem`,
    ...['relay-secure-link', 'relay-secure-proxy'].map((name) => `${agentHome}/${name}/key.pem`),
    ...[config.sslKey, config.secureLinkKey],
  ];
  for (const path of keys) {
    const bytes = path === undefined ? null : await read(path);
    for (const line of bytes ? decodeUtf8(bytes).split('\n') : []) if (!line.startsWith('-----')) add(line);
  }
  const documents = [
    `${agentHome}/svc-relay/mcp.json`,
    `${agentHome}/companion/settings.json`,
    `${agentHome}/auth.json`,
    config.realtimeVoiceXaiOauthPath,
  ];
  for (const path of documents) {
    const bytes = await read(path);
    if (!bytes) continue;
    const text = decodeUtf8(bytes);
    const document = parseJson(text);
    // A damaged file no longer tells which of its strings are credentials.
    if (document === undefined) for (const [, string] of text.matchAll(/"([^"\\]+)/g)) add(string);
    else addMembers(document, add);
  }
  for (const path of [config.agentConfig, `${relayHome}/config.yaml`]) {
    const bytes = await read(path);
    for (const [, name = '', value = ''] of decodeUtf8(bytes ?? new Uint8Array()).matchAll(
      /^[ \t-]*([\w-]+):[ \t]*(\S.*)$/gm,
    )) {
      const text = value.replace(/^(["'])(.*)\1.*$/, '$2');
      if (isCredential(name, text)) add(text);
      for (const part of userInfo(text)) add(part);
    }
  }
  // Longest first, because one may be part of another.
  return [...found].sort((one, other) => other.length - one.length);
}

/** Words of variables of the relay that are shown not at all, or only up to the path of their URL. */
function hiddenParts(values: Record<string, string | undefined>): string[] {
  return Object.entries(variables).flatMap(([key, { name, type }]) => {
    const value = values[name]?.trim() ?? '';
    if (value === shown(key as keyof typeof variables, type, value)) return [];
    const rest = value.replace(/^[a-z]+:\/\/[^/?#]*/i, '');
    return rest.split(/[\s"'=&?#/,;:]+/).filter((word) => word.length >= 10 && (/\d/.test(word) || word.length >= 20));
  });
}

/** User and password of every URL in a text. */
function userInfo(text: string): string[] {
  return [...text.matchAll(/:\/\/([^\s/@]+)@/g)].flatMap(([, info = '']) => {
    const parts = info.split(':');
    return [info, ...parts, ...parts.map((part) => decoded(part))];
  });
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Members of a document that hold credentials, at any depth. */
function addMembers(value: unknown, add: (value: unknown) => void, name = ''): void {
  if (typeof value === 'string') {
    if (isCredential(name, '') || /(?:token|key|secret|auth|jwk|\bd\b)$/i.test(name)) add(value);
    return;
  }
  for (const [key, member] of Object.entries(Array.isArray(value) ? { ...value } : (asObject(value) ?? {}))) {
    addMembers(member, add, Array.isArray(value) ? name : key);
  }
}

export type Redact = (text: string) => string;

/** A session token, a device id and the like: what follows the eight characters that commands show. */
const UUID = /\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/gi;
/** Base64, base64url and hex of 24 bytes and more, with a digit and a letter. */
const LONG = /(?<![\w/+.-])(?=[\w+/=-]*\d)(?=[\w+/=-]*[A-Za-z])[A-Za-z0-9_+=-][\w+=-]{31,}/g;
const PAIRING_LINK = /svc-relay:\/\/[^\s"'<>]+/gi;
const USER_INFO = /:\/\/[^\s/@"']+@/g;
const QUERY = /([?&#](?:code|pairing_code|key|secret|token|sig|s|k|d)=)[^&\s"'<>]+/gi;
/** A pairing code after the word, and any mix of six capitals and digits. */
const CODE = /(\b[Cc]ode\W{1,4})[A-Z0-9]{6}\b/g;
const MIXED = /\b(?!SHA\d{3}\b)(?=[A-Z]*\d)(?=\d*[A-Z])[A-Z0-9]{6}\b/g;

/**
 * Takes secrets out of texts: those that are known, wherever they stand, and whatever has the form of one. The home of the
 * user becomes `~`.
 */
export function createRedact(secrets: readonly string[], home = homedir()): Redact {
  const known = secrets.flatMap((secret) => [secret, JSON.stringify(secret).slice(1, -1), encodeURIComponent(secret)]);
  const forms = [...new Set(known)].sort((one, other) => other.length - one.length);
  return (text) => {
    const lines = text.split('\n').map((line) => {
      // Before cutting, because half of a secret would not be found.
      let rest = line;
      for (const form of forms) rest = rest.replaceAll(form, HIDDEN);
      return hideSecrets(rest.slice(0, MAX_LINE))
        .replace(PAIRING_LINK, `svc-relay://${HIDDEN}`)
        .replace(USER_INFO, `://${HIDDEN}@`)
        .replace(QUERY, `$1${HIDDEN}`)
        .replace(UUID, `$1-${HIDDEN}`)
        .replace(LONG, HIDDEN)
        .replace(CODE, `$1${HIDDEN}`)
        .replace(MIXED, HIDDEN)
        .replaceAll(home === '/' ? '\0' : home, '~');
    });
    return lines.join('\n');
  };
}

/** Texts that are shown as they are: addresses and names of what is chosen, never a credential. */
const SHOWN = new Set<keyof typeof variables>([
  ...(['host', 'secureLinkHost', 'relayName', 'terminalEnv', 'phoneHomeChannelName', 'localSttLanguage'] as const),
  ...(['voiceOutputProvider', 'voiceOutputModel', 'voiceOutputLanguage', 'voiceOutputCodec'] as const),
  ...(['realtimeVoiceProvider', 'realtimeVoiceModel'] as const),
]);

/** The variables that are set, for a bug report: each with its value, the beginning of it, or `(set)`, by its kind. */
export function settingsOf(env: Record<string, string | undefined>): { name: string; value: string }[] {
  return Object.entries(variables).flatMap(([key, { name, type }]) => {
    const value = env[name]?.trim();
    return value === undefined ? [] : [{ name, value: shown(key as keyof typeof variables, type, value) }];
  });
}

function shown(key: keyof typeof variables, type: string, value: string): string {
  if (value === '') return '(empty)';
  if (['bool', 'int', 'port', 'level'].includes(type))
    return /^(?:\d{1,10}|[a-z]{2,7})$/i.test(value) ? value : '(set, and not valid)';
  if (type === 'path' || type === 'paths') return value;
  if (/^[a-z]+:\/\//i.test(value))
    return URL.canParse(value) ? `${new URL(value).protocol}//${new URL(value).host}` : '(set)';
  return SHOWN.has(key) && value.length <= 64 ? value : '(set)';
}
