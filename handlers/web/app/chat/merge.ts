import type { HistoryItem } from '../../../../lib/chat/history-items.ts';
import { asObject } from '../../../../lib/kit/json.ts';
import type { Payload } from '../../../../lib/socket/envelope.ts';
import { agentTurn, personTurn, type ToolCall, type Turn, textOf, usageOf } from './turns.ts';

/** Maximum turns stored of a conversation. */
const MAX_TURNS = 200;
/** Milliseconds by which the agent's clock and that of this device may differ. */
const MAX_APART = 15 * 60_000;

/** A turn as reported by the relay (contract 10 §1). */
export interface TurnRow {
  turnId: string;
  /** The name that its sender gave it, else the relay's. */
  request: string;
  sessionId: string | null;
  state: Turn['state'];
  seq: number;
  /** Start, epoch ms; undefined if the relay does not report it. */
  at?: number;
}

const STATES: Readonly<Record<string, Turn['state']>> = {
  running: 'streaming',
  done: 'done',
  cancelled: 'stopped',
  failed: 'broken',
  interrupted: 'broken',
};

/** Reads `chat.turn` and rows of `chat.turns`; undefined if invalid. */
export function rowOf(value: unknown): TurnRow | undefined {
  const row = asObject(value);
  const turnId = textOf(row?.turn_id);
  const state = STATES[textOf(row?.state)];
  if (!row || turnId === '' || !state) return undefined;
  const sessionId = textOf(row.session_id) || null;
  const seq = typeof row.seq === 'number' ? row.seq : 0;
  const at = typeof row.started_at === 'number' ? { at: row.started_at * 1000 } : {};
  return { turnId, request: textOf(row.client_turn_id) || turnId, sessionId, state, seq, ...at };
}

/**
 * The exchange of a `chat.snapshot` (contract 10 §1), merged into the known one. `at` is the start of the turn, epoch ms,
 * since the snapshots of several turns come in any order.
 */
export function applySnapshot(turns: readonly Turn[], request: string, payload: Payload, at: number): Turn[] {
  const known = turns.find((turn) => turn.request === request && turn.from === 'agent');
  const question = turns.find((turn) => turn.request === request && turn.from === 'person');
  const seq = typeof payload.seq === 'number' ? payload.seq : 0;
  const state = STATES[textOf(payload.state)] ?? 'streaming';
  const before = known ?? agentTurn(request, at);
  const usage = usageOf(payload.usage);
  const answer: Turn = {
    ...before,
    turnId: textOf(payload.turn_id),
    seq,
    text: textOf(payload.text),
    tools: toolsOf(payload.tools, before.tools),
    state,
    ...(usage && { usage }),
    error: state === 'broken' ? textOf(payload.error) || 'The relay ended while the agent answered.' : undefined,
  };
  if (known && (known.seq ?? 0) > seq) return [...turns];
  const person = question ?? personTurn(request, textOf(payload.question), before.at);
  return mergeTurns(
    turns.filter((turn) => turn.request !== request),
    [person, answer],
  );
}

/** The relay shows the arguments of a tool call, then its result. */
const toolsOf = (value: unknown, known: readonly ToolCall[]): ToolCall[] =>
  (Array.isArray(value) ? value : []).map((row) => {
    const tool = asObject(row);
    const id = textOf(tool?.id);
    const state = tool?.state === 'failed' || tool?.state === 'done' ? tool.state : 'running';
    const preview = textOf(tool?.preview);
    const args = known.find((other) => other.id === id && id !== '')?.args ?? (state === 'running' ? preview : null);
    return { id, name: textOf(tool?.name) || 'tool', state, args, result: state === 'running' ? '' : preview };
  });

/** Merges two views of one conversation: no exchange is lost, and of each the more complete view stays. */
export function mergeTurns(some: readonly Turn[], others: readonly Turn[]): Turn[] {
  const all = new Map<string, Turn>();
  for (const turn of [...some, ...others]) {
    const key = `${turn.request} ${turn.from}`;
    const known = all.get(key);
    // The views' times differ, and the order of a conversation must not depend on which one came first.
    all.set(key, known ? { ...better(known, turn), at: Math.min(known.at, turn.at) } : turn);
  }
  const turns = [...all.values()];
  const begins = new Map<string, number>();
  for (const { request, at } of turns) begins.set(request, Math.min(at, begins.get(request) ?? at));
  const order = ({ request, from, at }: Turn) =>
    [begins.get(request) ?? at, request, from === 'person' ? 0 : 1] as const;
  return turns.toSorted((a, b) => compare(order(a), order(b))).slice(-MAX_TURNS);
}

function compare(a: readonly (string | number)[], b: readonly (string | number)[]): number {
  const at = a.findIndex((value, index) => value !== b[index]);
  if (at < 0) return 0;
  return (a[at] as number) < (b[at] as number) ? -1 : 1;
}

/** Picks the more complete view of a message: that of the relay's later event, then a finished one, then the longer one. */
function better(a: Turn, b: Turn): Turn {
  const rank = (turn: Turn) => [turn.seq ?? 0, turn.state === 'streaming' ? 0 : 1, turn.text.length];
  return compare(rank(a), rank(b)) < 0 ? b : a;
}

interface Exchange {
  person?: Turn;
  agent?: Turn;
}

/**
 * The turns of the history, replaced by this browser's if these are more complete, plus those that only this browser knows.
 */
export function withHistory(items: readonly HistoryItem[], own: readonly Turn[]): Turn[] {
  const past = exchangesOf(items);
  const mine = [...byRequest(own).values()];
  const covered = new Map<Exchange, Exchange>();
  for (const exchange of mine.toReversed()) {
    // Clocks differ, so the two may be in a different order.
    const same = past.filter((other) => !covered.has(other) && isSame(other, exchange));
    const closest = same
      .toReversed()
      .reduce<Exchange | undefined>(
        (best, other) => (best && apart(best, exchange) <= apart(other, exchange) ? best : other),
        undefined,
      );
    if (closest) covered.set(closest, exchange);
  }
  const used = new Set(covered.values());
  const rest = mine.filter((exchange) => !used.has(exchange));
  const all: Exchange[] = [];
  for (const exchange of past) {
    const known = covered.get(exchange);
    const at = timeOf(known ?? exchange);
    while (rest.length > 0 && timeOf(rest[0] as Exchange) < at) all.push(rest.shift() as Exchange);
    all.push(known ? improved(known, exchange) : exchange);
  }
  return [...all, ...rest].flatMap(({ person, agent }) => [person, agent].filter((turn) => turn !== undefined));
}

function byRequest(turns: readonly Turn[]): Map<string, Exchange> {
  const groups = new Map<string, Exchange>();
  for (const turn of turns) {
    const group = groups.get(turn.request) ?? {};
    group[turn.from] = turn;
    groups.set(turn.request, group);
  }
  return groups;
}

const timeOf = ({ person, agent }: Exchange): number => person?.at ?? agent?.at ?? 0;

function isSame(past: Exchange, own: Exchange): boolean {
  const said = own.person?.text.trim();
  const stored = past.person?.text.trim();
  if (said === undefined || stored === undefined || said !== stored) return false;
  return apart(past, own) < MAX_APART;
}

/** Milliseconds between an exchange of the history and one of this browser; 0 if the history has no time. */
function apart(past: Exchange, own: Exchange): number {
  const at = timeOf(past);
  return at === 0 ? 0 : Math.abs(at - timeOf(own));
}

/** An exchange of this browser; the agent may know an end of it that was never delivered. */
const improved = (own: Exchange, past: Exchange): Exchange =>
  own.agent?.state === 'broken' && (past.agent?.text.length ?? 0) > own.agent.text.length
    ? { ...own, agent: past.agent }
    : own;

function exchangesOf(items: readonly HistoryItem[]): Exchange[] {
  const exchanges: Exchange[] = [];
  for (const { id, role, text, ts, tool_name: name } of items) {
    const at = (ts ?? 0) * 1000;
    const request = `past ${id}`;
    if (role === 'user') exchanges.push({ person: personTurn(request, text, at) });
    if (role !== 'assistant' && role !== 'tool') continue;
    const exchange = exchanges.at(-1) ?? {};
    if (exchanges.length === 0) exchanges.push(exchange);
    const agent: Turn = exchange.agent ?? {
      ...agentTurn(exchange.person?.request ?? request, at),
      state: 'done',
    };
    const tool: ToolCall = { id, name: name ?? 'tool', state: 'done', args: null, result: text };
    exchange.agent =
      role === 'tool'
        ? { ...agent, tools: [...agent.tools, tool] }
        : { ...agent, text: [agent.text, text].filter((part) => part !== '').join('\n\n') };
  }
  return exchanges;
}
