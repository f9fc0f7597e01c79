import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Command } from 'cac';
import { variables } from '../../lib/config.ts';
import { describeError, RelayError } from '../../lib/errors.ts';
import { createFiles } from '../../lib/host/node/files.ts';
import { base64url, randomBytes, utf8ToBytes } from '../../lib/kit/bytes.ts';
import { digestOf } from '../../lib/kit/sha256.ts';
import { parseHosts } from '../../lib/reach/broker/hosts.ts';
import { labelOf } from '../../lib/reach/broker/label.ts';
import { isId, newId } from '../../lib/reach/ids.ts';
import { loadEnvironment, readVariable } from '../environment.ts';
import { underLock } from '../hold-state.ts';
import { asText, flag, type Options, option } from '../options.ts';
import { type CommandContext, CommandError, line, printJson } from '../output.ts';

/** Bytes of a token. Its 64 characters cannot be mistaken for a digest, so a file of digests refuses it. */
const TOKEN_BYTES = 48;

/** `svc reach token`: the credential with which one host authenticates to a broker, which gets only its digest. */
export function define(command: Command): void {
  command
    .option('--host-id <id>', "ID of the host (default this machine's, or a new one)")
    .option(
      '--credentials <file>',
      "add the digest to a broker's credentials file; an earlier token works until the next",
    )
    .option('--json', 'print one JSON document')
    .example((name) => `${name} token`)
    .example((name) => `${name} token --credentials hosts.json`)
    .example((name) => `${name} token --host-id AbCdEfGhIjKlMnOpQrStUg --json`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const given = option(options, '--host-id', asHostId);
  const file = option(options, '--credentials', asText);
  const environment = loadEnvironment(context.env);
  const idFile = readVariable(variables.secureLinkHostIdFile, environment);
  const own = given ?? readOwnId(idFile);
  const hostId = own ?? newId();
  const token = base64url(randomBytes(TOKEN_BYTES));
  const digest = digestOf(token);
  if (file !== undefined) await addTo(resolve(file), hostId, digest);
  const label = labelOf(hostId);
  const entry = { [hostId]: { host_token_sha256: digest } };
  if (flag(options, '--json')) {
    return printJson(context.stdout, {
      host_id: hostId,
      token,
      host_token_sha256: digest,
      label,
      credentials: { hosts: entry },
    });
  }
  line(context.stdout, `Host ID  ${hostId}`);
  line(context.stdout, `Token    ${token}`);
  line(context.stdout, `Digest   ${digest}`);
  line(context.stdout);
  if (file === undefined) {
    line(context.stdout, "On the broker's machine, in its credentials file (it holds digests only, never the token):");
    line(context.stdout, `  ${JSON.stringify({ hosts: entry })}`);
  } else {
    line(context.stdout, `${file} has the digest. A running broker reads it again on SIGHUP.`);
  }
  line(context.stdout);
  line(context.stdout, "On the host, in the relay's environment (shown once: nothing keeps the token):");
  line(context.stdout, '  RELAY_EXPERIMENTAL_REACH_ENABLED=1');
  line(context.stdout, `  RELAY_SECURE_LINK_BROKER_URL=wss://${label}.<name of the broker>`);
  line(context.stdout, `  RELAY_SECURE_LINK_BROKER_HOST_TOKEN=${token}`);
  line(context.stdout, `This name lets a broker at the edge sleep. \`svc reach start\` needs no ${label}. in it.`);
  if (own === undefined) {
    line(context.stdout, `and this ID in ${idFile}, before the relay makes one of its own:`);
    line(context.stdout, `  ${hostId}`);
  }
}

function asHostId(text: string): string {
  if (isId(text)) return text;
  throw new RelayError('invalid', 'must be a host ID: 22 characters of base64url');
}

/** The ID of this machine, if it has one. @throws CommandError if the file contains anything else. */
function readOwnId(path: string): string | undefined {
  let text: string;
  try {
    text = readFileSync(path, 'utf8').trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new CommandError(`cannot read ${path}: ${describeError(error)}`, 'Give the ID with --host-id.');
  }
  if (isId(text)) return text;
  throw new CommandError(`${path} holds no host ID`, 'Give the ID with --host-id, or remove the file.');
}

/** Adds a digest to a credentials file, which it creates if missing. Keeps the host's previous digest. */
async function addTo(path: string, hostId: string, digest: string): Promise<void> {
  try {
    await underLock(path, () => createFiles().writeAtomic(path, utf8ToBytes(withDigest(path, hostId, digest)), 0o600));
  } catch (error) {
    if (error instanceof CommandError) throw error;
    throw new CommandError(`cannot write ${path}: ${describeError(error)}`, 'Check its permissions.');
  }
}

/** The new content of a credentials file. */
function withDigest(path: string, hostId: string, digest: string): string {
  let hosts: Map<string, string[]> | string;
  try {
    hosts = parseHosts(readFileSync(path, 'utf8'));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') {
      throw new CommandError(`cannot read ${path}: ${describeError(error)}`, 'Check its permissions.');
    }
    hosts = new Map();
  }
  if (typeof hosts === 'string') throw new CommandError(`${path} is invalid: ${hosts}`, 'Correct it first.');
  const former = hosts.get(hostId)?.at(-1);
  hosts.set(hostId, former === undefined ? [digest] : [former, digest]);
  const entries = [...hosts].map(([id, digests]) => {
    return [id, { host_token_sha256: digests.length === 1 ? digests[0] : digests }];
  });
  return `${JSON.stringify({ hosts: Object.fromEntries(entries) }, null, 2)}\n`;
}
