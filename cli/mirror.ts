import type { Command } from 'cac';
import { describeError } from '../lib/errors.ts';
import { isTime } from '../lib/kit/clock.ts';
import { asObject } from '../lib/kit/json.ts';
import { sealText } from '../lib/mirror/seal-status.ts';
import { ACTIONS } from './actions.ts';
import { type OperatorRelay, openOperatorRelay, Refused } from './operator-relay.ts';
import { actionOf, checkOwners, flag, type Options, option } from './options.ts';
import {
  amount,
  type CommandContext,
  CommandError,
  line,
  printable,
  printJson,
  printWarning,
  sentence,
  UsageError,
} from './output.ts';
import { pause } from './pause.ts';
import { asRelayUrl } from './remote-relay.ts';
import { timeOfDay } from './times.ts';

const ROUTE = '/relay/mirror';
/** Milliseconds for the edge to hand over waiting items to home. */
const BRING_HOME = 30_000;

/** `svc relay mirror [enable|disable|status]`: the edge that mirrors the relay of this machine (contract 12 §1). */
export function define(command: Command): void {
  command
    .option('--relay <url>', 'enable: the relay at the edge, by its public URL')
    .option('--force', 'disable: give up items at the edge that cannot be brought home now')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} mirror enable --relay https://relay.example`)
    .example((name) => `${name} mirror status`)
    .example((name) => `${name} mirror disable`)
    .action(run);
}

async function run(word: string | undefined, options: Options, context: CommandContext): Promise<number | void> {
  const action = actionOf(word, ...ACTIONS.mirror);
  checkOwners(options, action, { '--relay': ['enable'], '--force': ['disable'] });
  const home = await openHome(context);
  if (action === 'enable') return enable(home, options, context);
  return action === 'disable' ? disable(home, options, context) : status(home, options, context);
}

/** The relay of this machine, whatever `svc use` says. */
const openHome = (context: CommandContext): Promise<OperatorRelay> => openOperatorRelay({ relayPort: true }, context);

const openEdge = (url: string, context: CommandContext): Promise<OperatorRelay> =>
  openOperatorRelay({ relay: url }, context);

/** The edge pins home's key first, so that the link that home begins then is accepted. */
async function enable(home: OperatorRelay, options: Options, context: CommandContext): Promise<void> {
  const url = option(options, '--relay', asRelayUrl)?.origin;
  if (url === undefined) throw new UsageError('missing --relay: give the public URL of the relay at the edge');
  const before = await home.call({ method: 'GET', path: ROUTE });
  if (before.enabled === true && before.url !== url) {
    throw new CommandError(
      `the mirror is at ${printable(String(before.url))} already`,
      'End that first with: svc relay mirror disable',
    );
  }
  const edge = await openEdge(url, context);
  await edge.call({ method: 'POST', path: ROUTE, body: { key: before.key } });
  const answer = await home.call({ method: 'POST', path: ROUTE, body: { url } });
  if (flag(options, '--json')) return printJson(context.stdout, answer);
  sentence(context.stdout, `This relay is mirrored at ${url}: revoking a device on one side revokes it on both.`);
  line(context.stdout, 'See the link with: svc relay mirror status');
}

/**
 * Brings home what waits at the edge, then ends the mirror there and here. With `--force` also where that is not possible:
 * an edge that cannot be reached goes by its lease then.
 */
async function disable(home: OperatorRelay, options: Options, context: CommandContext): Promise<number> {
  const { url, link } = await home.call({ method: 'GET', path: ROUTE });
  const edge = typeof url === 'string' ? await openEdge(url, context) : undefined;
  const place = printable(String(url));
  const isForced = flag(options, '--force');
  const { remains, refusal } = edge ? await bringHome({ home, edge, isLinked: link === 'up' }) : NOTHING_WAITS;
  const left = remains?.left ?? null;
  const because = refusal === undefined ? '' : `: ${refusal}`;
  if (left !== 0 && !isForced) {
    await home.call({ method: 'POST', path: ROUTE, body: { recall: false } });
    throw new CommandError(
      left === null
        ? `${place} does not answer, so that nothing can be brought home from there; nothing was changed`
        : `${waits(left)} at ${place} for this relay, and cannot be brought home now${because}; nothing was changed`,
      'Try again once the link is up (svc relay mirror status), or leave what waits there with --force.',
    );
  }
  const failure = await edge?.call({ method: 'DELETE', path: ROUTE }).then(
    () => undefined,
    (error: unknown) => error,
  );
  const answer = await home.call({ method: 'DELETE', path: ROUTE });
  const isPending = failure !== undefined;
  const result = { ...answer, edge: isPending ? 'pending' : 'confirmed', left, left_at_edge: remains?.items ?? null };
  if (flag(options, '--json')) printJson(context.stdout, result);
  else if (!edge) sentence(context.stdout, 'This relay was not mirrored.');
  else if (!isPending) sentence(context.stdout, `This relay is no longer mirrored at ${place}.`);
  const came = itemsText(asObject(answer.came_home) ?? {});
  if (came && !flag(options, '--json')) sentence(context.stdout, `Came home: ${came}.`);
  if (left && !flag(options, '--json')) {
    const items = itemsText(remains?.items ?? {});
    printWarning(context, `${waits(left)} at ${place}, and will not come home${items && `: ${items}`}`);
    if (refusal !== undefined) printWarning(context, `home could not recall it${because}`);
  }
  if (isPending && !flag(options, '--json')) {
    throw new CommandError(
      `the mirror has ended here, but ${place} was not informed: it accepts the devices for a week at most`,
      failure instanceof CommandError ? failure.message : 'Revoke them there with: svc devices revoke --relay URL',
    );
  }
  return isPending ? 1 : 0;
}

const waits = (count: number, what = 'item'): string => `${amount(count, what)} ${count === 1 ? 'waits' : 'wait'}`;

/** `2 messages, 1 upload`; empty without any. */
const itemsText = (items: Record<string, unknown>): string =>
  (
    [
      ['message', 'messages'],
      ['reply', 'replies'],
      ['upload', 'uploads'],
    ] as const
  )
    .filter(([, many]) => Number(items[many]) > 0)
    .map(([one, many]) => amount(Number(items[many]), one, many))
    .join(', ');

/** Counts of what waits at the edge: everything together, and items by kind. */
interface Remains {
  left: number;
  items: Record<'messages' | 'replies' | 'uploads', number>;
}

interface Brought {
  /** Null when the edge does not answer. */
  remains: Remains | null;
  /** The reason, if home refused the last request to recall. */
  refusal?: string;
}
const NOTHING_WAITS: Brought = { remains: { left: 0, items: { messages: 0, replies: 0, uploads: 0 } } };

interface Sides {
  home: OperatorRelay;
  edge: OperatorRelay;
  isLinked: boolean;
}

/**
 * Brings home what waits at the edge, for half a minute at most. Home ends a recall that is not requested again, as when
 * this command is killed. Without a link, this only counts.
 */
async function bringHome({ home, edge, isLinked }: Sides): Promise<Brought> {
  const ask = () =>
    home.call({ method: 'POST', path: ROUTE, body: { recall: true } }).then(
      () => undefined,
      (error: unknown) => (error instanceof Refused ? error.reason : describeError(error)),
    );
  let refusal = isLinked ? await ask() : undefined;
  // Home's status may be out of date: after a refusal, no recall is begun later.
  const isRecalled = isLinked && refusal === undefined;
  const end = Date.now() + BRING_HOME;
  for (;;) {
    const remains = await waitingAt(edge);
    if (!isRecalled || remains?.left === 0 || Date.now() >= end) return { remains, refusal };
    refusal = await ask();
    await pause(200);
  }
}

/** Asks the edge how much waits there. Null if it does not answer. */
async function waitingAt(edge: OperatorRelay): Promise<Remains | null> {
  const mirror = await edge.call({ method: 'GET', path: ROUTE }).catch(() => null);
  if (!mirror) return null;
  // An edge of an older version does not count its messages and replies.
  const [messages = 0, replies = 0, uploads = 0, changes = 0] = [
    mirror.messages,
    mirror.replies,
    asObject(mirror.uploads)?.count,
    asObject(mirror.waiting)?.out,
  ].map((count) => Number(count ?? 0));
  return { left: changes + messages + uploads, items: { messages, replies, uploads } };
}

async function status(home: OperatorRelay, options: Options, context: CommandContext): Promise<void> {
  const answer = await home.call({ method: 'GET', path: ROUTE });
  if (flag(options, '--json')) {
    const { ok, enabled, url, link, since, waiting, uploads, mailbox, epoch, error } = answer;
    return printJson(context.stdout, { ok, enabled, url, link, since, waiting, uploads, mailbox, epoch, error });
  }
  const text = mirrorText(answer, false);
  if (text === undefined) {
    sentence(context.stdout, 'This relay is not mirrored.');
    line(context.stdout, 'Begin with: svc relay mirror enable --relay https://relay.example');
    return;
  }
  sentence(context.stdout, `${text}, at ${printable(String(answer.url))}.`);
  const seal = sealText(answer.mailbox);
  if (seal !== undefined) sentence(context.stdout, `The mailbox is ${printable(seal)}.`);
  const { count: left = 0, error: failure, refused } = asObject(answer.uploads) ?? {};
  if (Number(left) > 0) {
    sentence(context.stdout, `${waits(Number(left), 'upload')} at the edge.`);
  }
  if (typeof failure === 'string') sentence(context.stdout, `An upload could not be taken over: ${printable(failure)}`);
  if (typeof refused === 'string') sentence(context.stdout, `A sealed upload was refused: ${printable(refused)}`);
  if (typeof answer.error === 'string') sentence(context.stdout, `The last attempt failed: ${printable(answer.error)}`);
}

/**
 * The mirror in a line (contract 12 §1), undefined without one: at home `home: up · edge: in step`, at the edge
 * `home off since 14:02`. `now` is epoch seconds.
 */
export function mirrorText(mirror: Record<string, unknown>, isEdge: boolean): string | undefined {
  const { enabled, link, since, waiting } = mirror;
  if (enabled !== true) return undefined;
  const count = Number(asObject(waiting)?.out ?? 0);
  const wait = count === 0 ? '' : waits(count, 'change');
  // Null at an edge to which home has not been linked yet.
  const when = isTime(since, 1000) ? ` since ${timeOfDay(since)}` : '';
  if (isEdge)
    return `${link === 'up' ? 'home: up' : `home off${when}`}${count === 0 ? '' : ` · ${count} wait${count === 1 ? 's' : ''} at the edge`}`;
  const edge = link === 'up' ? wait || 'in step' : `not linked${when}${wait && `, ${wait}`}`;
  return `home: up · edge: ${edge}`;
}
