import type { Storage } from 'unstorage';
import * as v from 'valibot';
import type { ThreadRecord } from '../../storage/schema.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import { loadAll, readAs } from '../kit/entries.ts';
import { sha256 } from '../kit/sha256.ts';
import { byCodePoint } from '../kit/text.ts';
import { createWriteBehind } from '../kit/write-behind.ts';
import type { Log } from '../log.ts';

/** A conversation with the phone, as listed by `GET /phone/threads`. */
export type PhoneThread = {
  /** The agent's session, or `''` for a chat that only the relay knows. */
  session_id: string;
  chat_id: string;
  title: string | null;
};

/** A chat seen in a message or a reply. */
export interface SeenChat {
  /** Null and blank count as `phone`. */
  chatId: string | null;
  /** Null keeps the known title. */
  title: string | null;
  messageId: string | null;
  /** Epoch milliseconds. */
  at: number;
}

interface ThreadsDeps {
  host?: Host;
  store: Storage<ThreadRecord>;
  log: Log;
}

const CAPACITY = 100;
const MAX_PROFILES = 100;
const HOME_CHAT = 'phone';
const MAX_ROWS = 1000;

/**
 * Older databases have no titles: a name unknown to the inner query is that of the outer one, which is NULL. A single query,
 * because every query may have to wait for a locked database.
 */
const SQL = `
SELECT CAST(s.id AS TEXT) AS session_id, CAST(s.chat_id AS TEXT) AS chat_id,
  (SELECT title FROM sessions AS known WHERE known.id = s.id LIMIT 1) AS title
FROM (SELECT NULL AS title) AS missing, sessions AS s
WHERE s.source = 'phone' AND s.id IS NOT NULL AND s.chat_id IS NOT NULL AND s.chat_id <> '' LIMIT ${MAX_ROWS}`;

/** The conversations with the phone (contract 04 §5.7). Without a host, only those that passed through the relay. */
export async function openPhoneThreads({ host, store, log }: ThreadsDeps) {
  const persistence = createWriteBehind({ store, log, name: 'the list of chats' });
  /** Keyed by chat id, the most recently used last. */
  const chats = new Map<string, ThreadRecord>();
  const loaded = await loadAll({ store, log, read: readAs(Stored) });
  for (const [, chat] of loaded.sort(([, a], [, b]) => a.seq - b.seq)) chats.set(chat.chat_id, chat);
  let seq = Math.max(0, ...loaded.map(([, chat]) => chat.seq));

  function use(chat: Omit<ThreadRecord, 'seq'>): void {
    chats.delete(chat.chat_id);
    chats.set(chat.chat_id, { ...chat, seq: ++seq });
    save(chat.chat_id);
    if (chats.size <= CAPACITY) return;
    const oldest = chats.keys().next().value as string;
    chats.delete(oldest);
    save(oldest);
  }

  /** The key is a hash, since a chat id may be any text. */
  function save(chatId: string): void {
    persistence.save(sha256(chatId), () => chats.get(chatId) ?? null);
  }

  return {
    /** Marks a chat as the most recently used. Needs no `this`. */
    seen({ chatId, title, messageId, at }: SeenChat): void {
      const id = chatId?.trim() ? chatId : HOME_CHAT;
      use({ chat_id: id, title: title ?? chats.get(id)?.title ?? null, message_id: messageId, at });
    },

    /** Like `seen`, with a title: null removes it, undefined keeps it. */
    put({ chatId, title, at }: { chatId: string; title?: string | null; at: number }): PhoneThread {
      const known = chats.get(chatId);
      const shown = title === undefined ? (known?.title ?? null) : title;
      use({ chat_id: chatId, title: shown, message_id: known?.message_id ?? null, at });
      return { session_id: '', chat_id: chatId, title: shown };
    },

    /** The agent's sessions with the phone, then chats that only the relay knows. Never fails; a bad database yields no rows. */
    async list(): Promise<PhoneThread[]> {
      const threads = host ? await readSessions(host) : [];
      const listed = new Set(threads.map((thread) => thread.chat_id));
      for (const [chatId, { title }] of chats) {
        if (!listed.has(chatId)) threads.push({ session_id: '', chat_id: chatId, title });
      }
      return threads;
    },
  };
}

const Stored: v.GenericSchema<unknown, ThreadRecord> = v.object({
  chat_id: v.string(),
  ...v.entriesFromList(['title', 'message_id'], v.fallback(v.nullable(v.string()), null)),
  ...v.entriesFromList(['at', 'seq'], v.number()),
});

/** Sessions from the root's database, then from the profiles' by name, without duplicates. */
async function readSessions(host: Host): Promise<PhoneThread[]> {
  const { databases } = host;
  const results = await Promise.all(
    (await homes(host)).map((home) => databases.read({ path: `${home}/state.db`, sql: SQL, params: [] })),
  );
  const threads = new Map<string, PhoneThread>();
  for (const { session_id: id, chat_id: chatId, title } of results.flatMap(({ rows }) => rows ?? [])) {
    if (typeof id !== 'string' || typeof chatId !== 'string' || threads.has(id)) continue;
    threads.set(id, { session_id: id, chat_id: chatId, title: typeof title === 'string' ? title : null });
  }
  return [...threads.values()];
}

async function homes({ agentHome, files }: Host): Promise<string[]> {
  const entries = (await unlessUnreadable(files.list(`${agentHome}/profiles`)).catch(() => null)) ?? [];
  const names = entries
    .filter(({ name, kind }) => !name.startsWith('.') && (kind === 'directory' || kind === 'link'))
    .map(({ name }) => name)
    .sort(byCodePoint)
    .slice(0, MAX_PROFILES);
  return [agentHome, ...names.map((name) => `${agentHome}/profiles/${name}`)];
}
