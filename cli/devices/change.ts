import { parseDuration, parseGrants } from '../../lib/pairing/duration.ts';
import { confirm } from '../confirm.ts';
import { didYouMean } from '../did-you-mean.ts';
import { type OperatorRelay, openOperatorRelay, Refused } from '../operator-relay.ts';
import { asText, flag, type Options, option } from '../options.ts';
import { type CommandContext, CommandError, line, printable, printJson, printWarning, UsageError } from '../output.ts';
import { type Device, devicesOf, duration, grantsLeft, nameOf } from './rows.ts';

/** Minimum length of a session's prefix (contract 01 §6.4). */
const MIN_PREFIX = 4;

/** `svc devices revoke <device>`: ends its session and, unless told otherwise, its shells. */
export async function revoke(device: string | undefined, options: Options, context: CommandContext): Promise<void> {
  const wanted = required(device);
  const relay = await openOperatorRelay(options, context);
  const found = await find(relay, wanted, context);
  const keepsShells = flag(options, '--keep-shells');
  if (!flag(options, '--yes')) {
    const shells = keepsShells ? 'Its shells in tmux go on.' : 'Its shells end, with everything that runs in them.';
    const question = `Revoke ${nameOf(found)}? ${shells}`;
    const isSure = await confirm(context, question, 'revoke asks on a terminal: give --yes to revoke without asking');
    if (!isSure) throw new CommandError('nothing was revoked');
  }
  const query = keepsShells ? '?keep_shells=1' : '';
  const answer = await relay
    .call({ method: 'DELETE', path: `/sessions/${found.prefix}${query}` })
    .catch((error) => Promise.reject(explainUnstored(error, `Revoked ${nameOf(found)}`, context)));
  const edge = answer.edge === 'pending' ? await revokeAtEdge(relay, found, context) : answer.edge;
  const all = { ...answer, ...(edge !== undefined && { edge }), keep_shells: keepsShells };
  if (flag(options, '--json')) return printJson(context.stdout, all);
  line(
    context.stdout,
    `Revoked ${nameOf(found)}.${shellsEnded(answer)}${edge === 'confirmed' ? ' It is revoked at the edge too.' : ''}`,
  );
  if (edge === 'pending') {
    printWarning(
      context,
      'the edge has not been informed yet: it learns of it when home next connects, and accepts the device for a week at most',
    );
  }
}

/** Revokes a device at the edge by this machine's key, when the relay has no link to tell it (contract 12 §2). */
async function revokeAtEdge(home: OperatorRelay, device: Device, context: CommandContext): Promise<unknown> {
  try {
    const { url } = await home.call({ method: 'GET', path: '/relay/mirror' });
    if (typeof url !== 'string') return 'pending';
    const edge = await openOperatorRelay({ relay: url }, context);
    const answer = await edge.call({ method: 'GET', path: '/relay/devices' });
    const { device_id: id, created_at: since } = device.raw;
    const own = devicesOf(answer, Date.now() / 1000).filter(
      ({ raw }) => raw.device_id === id && raw.created_at === since,
    );
    for (const { prefix } of own) await edge.call({ method: 'DELETE', path: `/sessions/${prefix}` });
    return 'confirmed';
  } catch {
    return 'pending';
  }
}

/**
 * `svc devices rename <device> <name>`: the owner's name for it, which wins over the one that it sends (contract 11
 * §2).
 */
export async function rename(
  device: string | undefined,
  name: string | undefined,
  options: Options,
  context: CommandContext,
): Promise<void> {
  const wanted = required(device);
  if (name === undefined || name.trim() === '') throw new UsageError('missing <name>: give the new name of the device');
  const relay = await openOperatorRelay(options, context);
  const found = await find(relay, wanted, context);
  const answer = await relay
    .call({ method: 'PUT', path: `/sessions/${found.prefix}/name`, body: { name } })
    .catch((error) => Promise.reject(explainUnstored(error, `Renamed ${nameOf(found)}`, context)));
  if (flag(options, '--json')) return printJson(context.stdout, answer);
  line(context.stdout, `Renamed ${nameOf(found)} to ${printable(String(answer.device_name))}.`);
}

/** `svc devices extend <device> [--ttl]`: its pairing's durations anew, counted from now (contract 11 §2). */
export async function extend(device: string | undefined, options: Options, context: CommandContext): Promise<void> {
  const wanted = required(device);
  const ttl = option(options, '--ttl', parseDuration);
  const relay = await openOperatorRelay(options, context);
  const found = await find(relay, wanted, context);
  const answer = await relay.call({
    method: 'POST',
    path: `/sessions/${found.prefix}/extend`,
    body: ttl === undefined ? {} : { ttl_seconds: ttl },
  });
  if (flag(options, '--json')) return printJson(context.stdout, answer);
  line(context.stdout, `Extended ${nameOf(found)}.`);
  printLeft(answer, context);
}

/** `svc devices reduce <device>`: shortens its session or its grants; nothing is ever extended (contract 09 §1). */
export async function reduce(device: string | undefined, options: Options, context: CommandContext): Promise<void> {
  const wanted = required(device);
  const ttl = option(options, '--ttl', parseDuration);
  const grants = option(options, '--grants', parseGrants);
  const without = option(options, '--without', asText)
    ?.split(',')
    .map((grant) => grant.trim());
  if (ttl === undefined && grants === undefined && without === undefined) {
    throw new UsageError('nothing to reduce: give --ttl, --grants or --without');
  }
  const relay = await openOperatorRelay(options, context);
  const found = await find(relay, wanted, context);
  const body = {
    ttl_seconds: ttl,
    grants: grants && Object.fromEntries(expand('--grants', Object.entries(grants), found)),
    without:
      without &&
      expand(
        '--without',
        without.map((name) => [name, 0]),
        found,
      ).map(([name]) => name),
  };
  const answer = await relay
    .call({ method: 'PATCH', path: `/sessions/${found.prefix}`, body })
    .catch((error) => Promise.reject(explain(error, found, context)));
  if (flag(options, '--json')) return printJson(context.stdout, answer);
  line(context.stdout, `Reduced ${nameOf(found)}.${shellsEnded(answer)}`);
  printLeft(answer, context);
}

/** Remaining rights of a session after a change. */
function printLeft(answer: Record<string, unknown>, context: CommandContext): void {
  const now = Date.now() / 1000;
  const left = { grants: (answer.grants ?? {}) as Record<string, unknown>, expiresAt: expiryOf(answer) };
  line(context.stdout, `  Ends    ${left.expiresAt === null ? 'never' : `in ${duration(left.expiresAt - now)}`}`);
  line(context.stdout, `  Grants  ${grantsLeft(left, now)}`);
}

/** Number of shells that ended with a change; empty for none. */
function shellsEnded({ shells_ended: count }: Record<string, unknown>): string {
  if (typeof count !== 'number' || count === 0) return '';
  return count === 1 ? ' 1 shell ended.' : ` ${count} shells ended.`;
}

const expiryOf = ({ expires_at: expiry }: Record<string, unknown>): number | null =>
  typeof expiry === 'number' ? expiry : null;

/**
 * `voice` names every grant of voice, as the list shows it.
 * @throws UsageError for a grant that the device does not have.
 */
function expand(flag: string, grants: [string, number][], { grants: held, name }: Device): [string, number][] {
  return grants.flatMap(([grant, seconds]) => {
    const names = Object.keys(held).filter((own) => own === grant || (grant === 'voice' && own.startsWith('voice:')));
    if (names.length > 0) return names.map((own): [string, number] => [own, seconds]);
    const own = Object.keys(held).map((text) => printable(text).replace(/^voice:.*/, 'voice'));
    const has = own.length > 0 ? `it has ${[...new Set(own)].join(', ')}` : 'it has none';
    throw new UsageError(`${flag}: ${name} has no grant '${printable(grant)}'; ${has}`);
  });
}

/** A change that is in effect, but that a crash of the relay would undo, or that left shells (contract 01 §6.7). */
function explainUnstored(error: unknown, done: string, { program }: CommandContext): unknown {
  if (!(error instanceof Refused) || !error.isApplied) return error;
  if (error.hasShellsLeft) {
    return new CommandError(
      `${done}, but its shells may go on: the relay tries again until they have ended`,
      `See why, and whether they have ended by now, with: ${program} logs`,
    );
  }
  return new CommandError(
    `${done}, but the relay could not store that: a crash would undo it; it is tried again until it is stored`,
    `See why, and whether it is stored by now, with: ${program} status`,
  );
}

/** A refusal to extend is not about credentials, so it gets its own advice. */
function explain(error: unknown, device: Device, context: CommandContext): unknown {
  const { program } = context;
  if (error instanceof Refused && error.isApplied) return explainUnstored(error, `Reduced ${nameOf(device)}`, context);
  if (!(error instanceof Refused) || error.status !== 403 || !/extend|expir/.test(error.reason)) return error;
  const end = device.expiresAt === null ? 'never' : `in ${duration(device.expiresAt - Date.now() / 1000)}`;
  return new CommandError(
    `${nameOf(device)} ends ${end}, and can only be reduced; nothing was changed`,
    `See what is left with '${program} devices'. To give more: ${program} devices extend "${device.name}"`,
  );
}

function required(device: string | undefined): string {
  if (device === undefined) throw new UsageError('missing <device>: give its name, or the prefix of its session');
  return device;
}

/** One of several devices of the same name: `3f9c2a10 (Pixel 9, connected over reach, seen 3 min ago)`. */
function described({ prefix, name, state, age, route }: Device): string {
  const how = route === '' ? state : `${state} over ${route.replaceAll('_', ' ')}`;
  return `${prefix} (${name}, ${how}, seen ${duration(age)} ago)`;
}

/** The one device of a name (in any case), or of a session's prefix. */
async function find(relay: OperatorRelay, device: string, context: CommandContext): Promise<Device> {
  const answer = await relay.call({ method: 'GET', path: '/relay/devices' });
  const wanted = printable(device).toLowerCase();
  const devices = devicesOf(answer, Date.now() / 1000);
  const found = devices.filter(
    ({ name, prefix }) =>
      name.toLowerCase() === wanted || (device.length >= MIN_PREFIX && prefix !== '' && prefix.startsWith(device)),
  );
  const [row, second] = found;
  if (!row) {
    const names = devices.map(({ name }) => name);
    const begun = names.find((name) => name.toLowerCase().startsWith(wanted));
    const suggestion = begun === undefined ? didYouMean(wanted, names) : `; did you mean '${begun}'?`;
    throw new CommandError(
      `no paired device has the name or session '${printable(device)}'${suggestion}`,
      `List them with: ${context.program} devices`,
    );
  }
  if (second) {
    const which = found.map(described).join(', ');
    throw new CommandError(
      `'${printable(device)}' names several devices: ${which}`,
      'Give the session of one of them.',
    );
  }
  return row;
}
