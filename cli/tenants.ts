import { readFileSync } from 'node:fs';
import type { Command } from 'cac';
import { describeError, RelayError } from '../lib/errors.ts';
import { asObject } from '../lib/kit/json.ts';
import { ACTIONS } from './actions.ts';
import { confirm } from './confirm.ts';
import { loadEnvironment } from './environment.ts';
import { type OperatorCall, type OperatorRelay, openOperatorRelay, Refused } from './operator-relay.ts';
import { actionOf, asText, checkOwners, flag, type Options, option } from './options.ts';
import {
  type CommandContext,
  CommandError,
  columns,
  line,
  printable,
  printJson,
  sentence,
  UsageError,
} from './output.ts';
import { asRelayUrl, defaultRelay } from './remote-relay.ts';
import { dayOf } from './times.ts';

const TENANTS = '/relay/tenants';
const CLAIM = '/relay/claim';
/** A released relay removes its uploads before it answers. */
const TIMEOUT = 30_000;

type Action = (typeof ACTIONS.tenants)[number];

/** `svc relay tenants [list|claim|show|set|release]`: relays of other people in a deployment at the edge (contract 12 §6). */
export function define(command: Command): void {
  command
    .option('--public-key <key>', "claim, set: the public key of the tenant's operator, as one line or a file")
    .option('-y, --yes', 'release: do not ask')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} tenants list https://relay.example`)
    .example((name) => `${name} tenants claim https://alice.example --public-key alice.pem`)
    .example((name) => `${name} tenants show https://alice.example`)
    .example((name) => `${name} tenants set https://alice.example RELAY_MAX_SESSIONS=100`)
    .example((name) => `${name} tenants set https://alice.example RELAY_MAX_SESSIONS=   # as by default`)
    .example((name) => `${name} tenants release https://alice.example`)
    .action(run);
}

interface Target {
  relay: OperatorRelay;
  /** The origin of the address. */
  url: string;
  /** Keyed by name; null unsets one. */
  settings: Record<string, string | null>;
  options: Options;
  context: CommandContext;
}

async function run(
  word: string | undefined,
  address: string | undefined,
  words: string[],
  options: Options,
  context: CommandContext,
): Promise<void> {
  const action = actionOf(word, ...ACTIONS.tenants);
  checkOwners(options, action, { '--public-key': ['claim', 'set'], '--yes': ['release'] });
  if (words.length > 0 && action !== 'claim' && action !== 'set') {
    throw new UsageError(`unexpected argument '${words[0]}'`);
  }
  const url = addressOf(action, address, context);
  const settings = Object.fromEntries(words.map((text) => settingOf(text, action)));
  const relay = await openOperatorRelay({ relay: url }, context);
  await actions[action]({ relay, url, settings, options, context });
}

/** A list may use the deployment of `svc use`; changes have to name the address. */
function addressOf(action: Action, address: string | undefined, context: CommandContext): string {
  try {
    const url = address === undefined ? undefined : asRelayUrl(address);
    const chosen = url ?? (action === 'list' ? defaultRelay(loadEnvironment(context.env))?.url : undefined);
    if (chosen) return chosen.origin;
  } catch (error) {
    if (error instanceof RelayError) throw new UsageError(`the URL ${error.message}`);
    throw error;
  }
  const which = action === 'list' ? 'any address of the deployment' : "the tenant's address";
  throw new UsageError(`missing <url>: give ${which}, such as https://alice.example.com`);
}

function settingOf(text: string, action: Action): [name: string, value: string | null] {
  const [, name, value] = /^([A-Z_]+)=(.*)$/s.exec(text) ?? [];
  if (name === undefined || value === undefined) {
    throw new UsageError(
      `'${text}' is no setting: give NAME=value, such as RELAY_WEBAPI_URL=https://agent.example.com`,
    );
  }
  if (value === '' && action === 'claim') throw new UsageError(`${name} needs a value`);
  return [name, value === '' ? null : value];
}

/** The PEM of `--public-key`: the text itself, or the content of the named file. */
function publicKeyOf(options: Options): string | undefined {
  const given = option(options, '--public-key', asText)?.trim();
  if (given === undefined || given.startsWith('-----BEGIN')) return given;
  try {
    return readFileSync(given, 'utf8').trim();
  } catch (error) {
    throw new CommandError(
      `the public key cannot be read: ${describeError(error)}`,
      'The tenant prints it with: svc relay operator-token --public-key. Give it as --public-key="-----BEGIN ..." or as a file.',
    );
  }
}

const actions: Record<Action, (target: Target) => Promise<void>> = { list, claim, show, set, release };

async function list(target: Target): Promise<void> {
  const { options, context, url } = target;
  const tenants: unknown[] = [];
  let cursor: unknown = null;
  do {
    const query = typeof cursor === 'string' ? `?cursor=${encodeURIComponent(cursor)}` : '';
    const answer = await call('list', target, { method: 'GET', path: TENANTS + query });
    if (Array.isArray(answer.tenants)) tenants.push(...answer.tenants);
    cursor = answer.cursor;
  } while (typeof cursor === 'string');
  if (flag(options, '--json')) return printJson(context.stdout, { ok: true, tenants });
  if (tenants.length === 0) {
    sentence(context.stdout, `Nobody has claimed a name at the deployment of ${url}.`);
    return line(context.stdout, 'Claim one with: svc relay tenants claim https://alice.example.com --public-key FILE');
  }
  const rows = tenants.map((entry) => {
    const { name, claimed_at: at } = asObject(entry) ?? {};
    return [typeof at === 'number' ? dayOf(at) : '-', printable(String(name))];
  });
  for (const row of columns([['CLAIMED', 'NAME'], ...rows], '')) line(context.stdout, row);
}

async function claim(target: Target): Promise<void> {
  const { url, settings, options, context } = target;
  const key = publicKeyOf(options);
  if (key === undefined) {
    throw new UsageError(
      "missing --public-key: the tenant's, which `svc relay operator-token --public-key` prints on the tenant's machine",
    );
  }
  const body = { operator_public_key: key, settings };
  const answer = await call('claim', target, { method: 'POST', path: CLAIM, body });
  if (flag(options, '--json')) return printJson(context.stdout, answer);
  if (answer.claimed !== true) {
    return sentence(context.stdout, `${url} was claimed with this key before. Its settings are as they were.`);
  }
  sentence(context.stdout, `${url} is claimed. It may take a minute until the name is known everywhere.`);
  sentence(context.stdout, `Its tenant tries it with: svc relay doctor --relay ${url}`);
}

async function show(target: Target): Promise<void> {
  printTenant(await call('show', target, { method: 'GET', path: CLAIM }), target);
}

async function set(target: Target): Promise<void> {
  const key = publicKeyOf(target.options);
  const { settings } = target;
  if (key === undefined && Object.keys(settings).length === 0) {
    throw new UsageError('nothing to set: give NAME=value or --public-key; `show` prints what is set');
  }
  const body = { settings, ...(key !== undefined && { operator_public_key: key }) };
  printTenant(await call('set', target, { method: 'PATCH', path: CLAIM, body }), target);
}

function printTenant(tenant: Record<string, unknown>, { options, context }: Target): void {
  if (flag(options, '--json')) {
    printJson(context.stdout, tenant);
    return;
  }
  const { name, claimed_at: at, operator_public_key: key } = tenant;
  sentence(
    context.stdout,
    `${printable(String(name))}${typeof at === 'number' ? `, claimed on ${dayOf(at)}` : ''}, with the operator's key:`,
  );
  for (const row of String(key).replaceAll('\\n', '\n').trim().split('\n')) {
    line(context.stdout, `  ${printable(row)}`);
  }
  const settings = Object.entries(asObject(tenant.settings) ?? {});
  if (settings.length === 0) sentence(context.stdout, 'It has no settings of its own.');
  for (const [setting, value] of settings) line(context.stdout, `${printable(setting)}=${printable(String(value))}`);
}

async function release(target: Target): Promise<void> {
  const { url, options, context } = target;
  if (!flag(options, '--yes')) {
    const question = `Release ${url}? Its devices, messages and uploads are removed, and anybody with a token can claim it.`;
    const isSure = await confirm(context, question, 'release asks on a terminal: give --yes to release without asking');
    if (!isSure) throw new CommandError('nothing was released', 'Answer y, or give --yes.');
  }
  const answer = await call('release', target, { method: 'DELETE', path: CLAIM });
  if (flag(options, '--json')) return printJson(context.stdout, answer);
  sentence(context.stdout, `${url} is released: everything of its relay is removed.`);
  if (answer.pending === true) sentence(context.stdout, 'Some of it could not be removed yet; that is tried again.');
}

/** One call about a tenant. A refusal includes the next step. */
async function call(action: Action, { relay, url }: Target, request: OperatorCall): Promise<Record<string, unknown>> {
  try {
    return await relay.call({ timeout: TIMEOUT, ...request });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    throw new CommandError(error.message, nextAfter(error, action, url));
  }
}

const PROVIDER =
  "Run this where the deployment's operator key is: 'svc relay operator-token --public-key' has to print " +
  'the RELAY_OPERATOR_PUBLIC_KEY of its wrangler.toml.';

function nextAfter({ status, next }: Refused, action: Action, url: string): string | undefined {
  switch (status) {
    case 400:
      return 'Correct that, and try again. See: svc relay tenants --help';
    case 401:
      if (action === 'list' || action === 'claim') return PROVIDER;
      if (action === 'set') return "Run this on the machine of the tenant's operator, whose key claimed the name.";
      return "Run this as the tenant's operator or the deployment's, on the machine that has the key.";
    case 404:
      return action === 'list' || action === 'claim'
        ? `Does ${url} lead to a deployment with the KV namespace TENANTS? A name of the deployment's own relay cannot be claimed.`
        : 'See the names with: svc relay tenants list URL. A new one may take a minute.';
    case 409:
      return action === 'claim'
        ? `Its operator can hand it over with 'svc relay tenants set ${url} --public-key FILE'; to begin anew: svc relay tenants release ${url}`
        : `See it with: svc relay tenants show ${url}`;
    case 421:
      return 'This deployment has no tenants: bind a KV namespace as TENANTS in its wrangler.toml, and deploy.';
    case 429:
      return 'Try again in a minute.';
    case 503:
      return 'Try again; if it stays, see the bindings of the deployment, and its log with: npx wrangler tail';
    default:
      return next;
  }
}
