import * as v from 'valibot';
import type { ChatTool, ChatTurnHead, ChatTurnRecord, Store } from '../../storage/schema.ts';
import { describeError, notStored, RelayError } from '../errors.ts';
import { batched, entriesOf, listOf, readAs } from '../kit/entries.ts';
import { isObject } from '../kit/json.ts';
import { utf8Length } from '../kit/text.ts';
import type { Log } from '../log.ts';
import type { Answer } from './turns.ts';

/** Limits of what is stored (contract 10 §1). */
const MAX_PER_FAMILY = 100;
export const MAX_BYTES = 32 * 1024 * 1024;
/** Seconds. */
export const RETENTION = 7 * 86_400;
/** Bytes counted for a turn in addition to its texts. */
const OVERHEAD = 1024;
/** Only the last block of an answer is written again as it grows. */
const TEXT_BLOCK = 32 * 1024;
const TOOL_BLOCK = 16;
/** Maximum blocks of one kind in a turn. */
const MAX_BLOCKS = 64;

/** The texts of a turn. */
export interface TurnTexts {
  question: string;
  text: string;
  tools: readonly ChatTool[];
}

/** A record to write, or to remove. */
type Write = [key: string, value: ChatTurnRecord | null];

interface Entry {
  head: ChatTurnHead;
  /** Length of the answer as written so far. */
  text: number;
  tools: readonly ChatTool[];
  /** Length of the answer whose bytes are counted, which a failed write does not take back. */
  counted: number;
  /** UTF-8 bytes of the question and of the answer, and those of the tools. */
  bytes: number;
  toolBytes: number;
}

export interface TurnStoreDeps {
  store: Store<'chat-turns'>;
  log: Log;
}

export type TurnStore = Awaited<ReturnType<typeof openTurnStore>>;

/**
 * Chat turns by family: their heads in memory, their texts on disk only, read when a client asks. Changes take effect
 * in memory at once; a promise resolves when they are durable. Over the limits, the turn that ended first is removed; a
 * running turn never is.
 */
export async function openTurnStore({ store, log }: TurnStoreDeps) {
  const entries = new Map<string, Entry>();
  /** Finished turns, earliest end first. */
  const ended = new Map<string, Entry>();
  /** In the order of their start. */
  const families = new Map<string, Map<string, Entry>>();
  const byClientId = new Map<string, Entry>();
  let total = 0;

  const clientKey = (family: string, clientTurnId: string) => `${family} ${clientTurnId}`;

  function index(entry: Entry): void {
    const { id, family, client_turn_id, ended_at, bytes } = entry.head;
    entries.set(id, entry);
    const own = families.get(family) ?? new Map<string, Entry>();
    families.set(family, own.set(id, entry));
    if (client_turn_id !== null) byClientId.set(clientKey(family, client_turn_id), entry);
    if (ended_at !== null) ended.set(id, entry);
    total += bytes;
  }

  function forget({ head: { id, family, client_turn_id, bytes } }: Entry): void {
    entries.delete(id);
    ended.delete(id);
    const own = families.get(family);
    own?.delete(id);
    if (own?.size === 0) families.delete(family);
    if (client_turn_id !== null) byClientId.delete(clientKey(family, client_turn_id));
    total -= bytes;
  }

  const written = (write: Promise<unknown>): void =>
    void write.catch((error) => log.warn(`chat turns could not be saved: ${describeError(error)}`));

  /** Removes turns and all of their records. */
  function remove(gone: readonly Entry[]): void {
    for (const entry of gone) {
      forget(entry);
      for (const key of keysOf(entry.head)) written(store.removeItem(key));
    }
  }

  /** Removes candidates in their order, but not `except`, until `isOver` is false. */
  function trim(candidates: Iterable<Entry>, isOver: () => boolean, except?: Entry): void {
    for (const entry of candidates) {
      if (!isOver()) return;
      if (entry !== except) remove([entry]);
    }
  }

  const writeAll = (writes: readonly Write[]): Promise<unknown> =>
    Promise.all(
      batched(store, () =>
        writes.map(([key, value]) => (value === null ? store.removeItem(key) : store.setItem(key, value))),
      ),
    );

  const isFull = () => total >= MAX_BYTES;

  const keys = await store.getKeys();
  const known = new Set<string>();
  for (const [key, value] of await entriesOf(store, 'turn:')) {
    const head = readAs(Stored)(value)?.turn;
    if (!head || `turn:${head.id}` !== key) continue;
    const entry: Entry = { head, text: 0, tools: [], counted: 0, bytes: head.bytes, toolBytes: 0 };
    for (const own of keysOf(head)) known.add(own);
    entries.set(head.id, entry);
  }
  const loaded = [...entries.values()].sort((a, b) => endOf(a) - endOf(b));
  entries.clear();
  for (const entry of [...loaded].sort((a, b) => a.head.started_at - b.head.started_at)) index(entry);
  ended.clear();
  for (const entry of loaded) if (entry.head.ended_at !== null) ended.set(entry.head.id, entry);
  for (const key of keys.filter((key) => key !== 'followers' && !known.has(key))) {
    if (key.startsWith('turn:')) log.warn('removed a stored chat turn that cannot be read');
    written(store.removeItem(key));
  }

  return {
    /** A turn by its id. */
    find: (id: string): ChatTurnHead | undefined => entries.get(id)?.head,

    /** The turn with this client turn id. */
    byClientId: (family: string, clientTurnId: string): ChatTurnHead | undefined =>
      byClientId.get(clientKey(family, clientTurnId))?.head,

    /** Turns of a family, in the order of their start. */
    ofFamily: (family: string): ChatTurnHead[] => [...(families.get(family)?.values() ?? [])].map(({ head }) => head),

    /** Every turn. */
    all: (): ChatTurnHead[] => [...entries.values()].map(({ head }) => head),

    /** True if there is no room for more text, not even by removing turns that have ended. */
    isFull: (): boolean => isFull() && ended.size === 0,

    /**
     * Adds a turn. Resolves when it is durable.
     * @throws RelayError `unavailable` when it cannot be stored, in which case it is forgotten.
     */
    async create(head: ChatTurnHead, question: string): Promise<void> {
      const bytes = utf8Length(question) + OVERHEAD;
      const own = families.get(head.family);
      if (own && own.size >= MAX_PER_FAMILY) {
        const over = [...own.values()].filter(({ head }) => head.ended_at !== null).sort((a, b) => endOf(a) - endOf(b));
        trim(over, () => own.size >= MAX_PER_FAMILY);
      }
      trim(ended.values(), () => total + bytes > MAX_BYTES);
      if (total + bytes > MAX_BYTES) throw new RelayError('unavailable', 'there is no room for another turn');
      const blocks = textBlocks(`question:${head.id}`, question);
      const entry: Entry = {
        head: { ...head, bytes, questions: blocks.length },
        text: 0,
        tools: [],
        counted: 0,
        bytes,
        toolBytes: 0,
      };
      index(entry);
      try {
        await writeAll([[`turn:${head.id}`, { turn: entry.head }], ...blocks]);
      } catch (error) {
        if (entries.get(head.id) === entry) forget(entry);
        throw notStored(error);
      }
    },

    /**
     * Writes a turn and the changed part of its answer; a `replaced` answer is written as a whole. Resolves when it is
     * durable, with false if the write failed, after which the next call writes that part again. Does nothing for a
     * removed turn.
     */
    async save(head: ChatTurnHead, answer?: Answer, replaced = false): Promise<boolean> {
      const entry = entries.get(head.id);
      if (!entry) return true;
      const before = entry.text;
      const writes: Write[] = [];
      let { texts, tools } = entry.head;
      if (answer) {
        const from = replaced ? 0 : entry.text;
        // The size of a replaced text is no longer known, so it counts until its turn is removed.
        entry.bytes += utf8Length(answer.text.slice(replaced ? 0 : entry.counted));
        entry.counted = answer.text.length;
        texts = Math.ceil(answer.text.length / TEXT_BLOCK);
        if (answer.text.length > from) writes.push(...textBlocks(`text:${head.id}`, answer.text, from));
        for (let at = texts; at < entry.head.texts; at++) writes.push([`text:${head.id}:${at}`, null]);
        tools = Math.ceil(answer.tools.length / TOOL_BLOCK);
        for (let at = 0; at < tools; at++) {
          const block = answer.tools.slice(at * TOOL_BLOCK, (at + 1) * TOOL_BLOCK);
          const isSame = block.every((tool, index) => entry.tools[at * TOOL_BLOCK + index] === tool);
          if (!isSame) writes.push([`tools:${head.id}:${at}`, { tools: block }]);
        }
        if (answer.tools !== entry.tools) entry.toolBytes = toolBytes(answer.tools);
        entry.text = answer.text.length;
        entry.tools = answer.tools;
      }
      const wasEnded = entry.head.ended_at;
      total -= entry.head.bytes;
      const { questions } = entry.head;
      entry.head = { ...head, questions, texts, tools, bytes: entry.bytes + entry.toolBytes };
      total += entry.head.bytes;
      if (head.ended_at !== wasEnded) ended.delete(head.id);
      if (head.ended_at !== null) ended.set(head.id, entry);
      trim(ended.values(), () => total > MAX_BYTES, entry);
      writes.push([`turn:${head.id}`, { turn: entry.head }]);
      try {
        await writeAll(writes);
      } catch (error) {
        entry.text = Math.min(entry.text, before);
        entry.tools = [];
        log.warn(`a chat turn could not be saved: ${describeError(error)}`);
        return false;
      }
      return true;
    },

    /** The texts of a turn as last stored; undefined if it was removed. */
    async read(id: string): Promise<TurnTexts | undefined> {
      const head = entries.get(id)?.head;
      if (!head) return undefined;
      const blocks = (kind: string, count: number, member: 'text' | 'tools') =>
        Promise.all(
          Array.from({ length: count }, async (_, at) => {
            const record: unknown = await store.getItem(`${kind}:${id}:${at}`);
            return isObject(record) ? record[member] : undefined;
          }),
        );
      const [question, text, tools] = await Promise.all([
        blocks('question', head.questions, 'text'),
        blocks('text', head.texts, 'text'),
        blocks('tools', head.tools, 'tools'),
      ]);
      if (!entries.has(id)) return undefined;
      return {
        question: question.join(''),
        text: text.join(''),
        tools: tools.flatMap((block) => (Array.isArray(block) ? (block as ChatTool[]) : [])),
      };
    },

    /** Removes the turns of a family. */
    removeFamily(family: string): void {
      remove([...(families.get(family)?.values() ?? [])]);
    },

    /** Removes turns that ended too long ago. `now` is epoch seconds. Returns the time of the next removal, if any. */
    sweep(now: number): number | undefined {
      for (const entry of [...ended.values()]) {
        const due = endOf(entry) + RETENTION;
        // Times are fractions, whose sums are not exact.
        if (due - now > 0.0005) return due;
        remove([entry]);
      }
      return undefined;
    },

    /** The sockets that followed their family's turns when the process went to sleep. */
    async followers(): Promise<ReadonlySet<string>> {
      return new Set(readAs(Followers)(await store.getItem('followers'))?.sockets);
    },

    saveFollowers(sockets: string[]): void {
      written(store.setItem('followers', { sockets }));
    },
  };
}

/** The blocks of a text, beginning with that of the character `from`. */
function textBlocks(key: string, text: string, from = 0): Write[] {
  const blocks: Write[] = [];
  for (let at = Math.floor(from / TEXT_BLOCK); at * TEXT_BLOCK < text.length; at++) {
    blocks.push([`${key}:${at}`, { text: text.slice(at * TEXT_BLOCK, (at + 1) * TEXT_BLOCK) }]);
  }
  return blocks;
}

const endOf = ({ head }: Entry): number => head.ended_at ?? head.started_at;

const toolBytes = (tools: readonly ChatTool[]): number =>
  tools.reduce((sum, { id, name, preview }) => sum + utf8Length(id) + utf8Length(name) + utf8Length(preview) + 64, 0);

/** Every key of a turn. */
function keysOf({ id, questions, texts, tools }: ChatTurnHead): string[] {
  const blocks = (kind: string, count: number) => Array.from({ length: count }, (_, at) => `${kind}:${id}:${at}`);
  return [`turn:${id}`, ...blocks('question', questions), ...blocks('text', texts), ...blocks('tools', tools)];
}

const finite = v.pipe(v.number(), v.finite());
const Stored: v.GenericSchema<unknown, { turn: ChatTurnHead }> = v.object({
  turn: v.object({
    ...v.entriesFromList(['id', 'family', 'preview'], v.string()),
    ...v.entriesFromList(['client_turn_id', 'session_id', 'profile'], v.nullable(v.string())),
    state: v.picklist(['running', 'done', 'cancelled', 'failed', 'interrupted']),
    ...v.entriesFromList(['started_at', 'seq', 'bytes'], finite),
    ...v.entriesFromList(['questions', 'texts', 'tools'], v.pipe(finite, v.maxValue(MAX_BLOCKS))),
    ended_at: v.nullable(finite),
    usage: v.optional(v.record(v.string(), v.unknown())),
    error: v.optional(v.string()),
    ...v.entriesFromList(['truncated', 'recovered', 'unasked'], v.optional(v.literal(true))),
  }),
});
const Followers = v.object({ sockets: listOf(v.string()) });
