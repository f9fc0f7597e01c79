import { computed, type ReadonlySignal, type Signal, signal } from '@preact/signals';
import type { HistoryItem } from '../../../../lib/chat/history-items.ts';
import { isTime } from '../../../../lib/kit/clock.ts';
import { asObject } from '../../../../lib/kit/json.ts';
import { newUuid } from '../../../../lib/kit/uuid.ts';
import { type AnswerTimer, createAnalytics } from '../analytics.ts';
import { openChannel } from '../browser-storage.ts';
import type { App } from '../context.ts';
import { createQueue } from '../frames.ts';
import { requestOn } from '../request.ts';
import { applySnapshot, mergeTurns, rowOf, type TurnRow, withHistory } from './merge.ts';
import { advance, agentTurn, broken, personTurn, type Step, type Turn, textOf } from './turns.ts';

/** A conversation of the agent. */
export interface ChatSession {
  id: string;
  title: string;
  model: string;
  /** Epoch ms, if reported by the agent. */
  updatedAt: number | null;
}

/** Earlier messages, as far as they were requested (contract 10 §2). */
interface Past {
  items: readonly HistoryItem[];
  hasMore: boolean;
  isLoading: boolean;
}

/** Pictures on their way to the agent's machine. */
interface Sending {
  abort: AbortController;
  /** From 0 to 1, of all of them. */
  part: number;
}

export interface Conversation {
  /** Its name in this browser: the agent's id, and before that, `~` and the name of its first turn. */
  readonly key: Signal<string>;
  /** The agent's id, once it has made the session. */
  readonly id: Signal<string | null>;
  readonly title: Signal<string>;
  /** Messages of this browser, with those that the relay stores. Stored as they arrive. */
  readonly turns: Signal<readonly Turn[]>;
  readonly past: Signal<Past>;
  /** All known messages. */
  readonly all: ReadonlySignal<readonly Turn[]>;
  /** Text that is typed but not sent. */
  readonly draft: Signal<string>;
  /** Pictures that go with the draft. */
  readonly pictures: Signal<readonly File[]>;
  /** The message that is sent once its pictures have arrived. */
  readonly sending: Signal<Sending | null>;
}

/** Milliseconds for the list of sessions. */
const LIST_TIMEOUT = 30_000;
/** Milliseconds between two writes of an answer that arrives. */
const SAVE_DELAY = 1000;
/**
 * Milliseconds for which arriving parts of an answer are joined into one change, since each change goes through the whole
 * conversation.
 */
const STEP_DELAY = 50;
const MAX_DRAFTS = 50;
/** Milliseconds within which a question unknown to the relay is sent again; later, nobody waits for its answer. */
const MAX_RESEND = 10 * 60_000;
/** Milliseconds without news after which an answer that another tab receives counts as orphaned. */
const ORPHANED = 6000;
/** Storage of a tab's drafts until they are in the database, whose writes end with the page. */
const UNSAVED = 'svc drafts';
/** Rows of turns that are remembered for conversations that are not open. */
const MAX_ROWS = 300;

/** Titles of the agent's list that are remembered, and characters of each. */
const MAX_TITLES = 300;
const MAX_TITLE = 200;
const TITLES = 'chat titles';

const NEW = 'new';
const LOST = 'The connection broke. The agent has stopped; what it had said is here.';
const FORGOTTEN = 'The relay no longer knows this question. Ask again.';
const EMPTY: Past = { items: [], hasMore: false, isLoading: false };

/**
 * The conversations with the agent over channel `chat` (contract 02 §5, 10 §3). Answers continue while another screen is
 * shown, and, at a relay that stores turns, while no page is open.
 */
export function createChats(app: App) {
  const { session, pageStore, api } = app;
  const analytics = app.retained(createAnalytics);
  const port = session.port('chat');
  const channel = openChannel(`chats ${new URL(app.base).pathname}`);
  const storageKey = (key: string) => `chat ${key}`;
  const conversations = new Map<string, Conversation>();
  /** Answers that this page receives, by the name of their turn. */
  const running = new Map<string, { conversation: Conversation; timer?: AnswerTimer }>();
  /** Names of turns by the id of the message whose answer is their stream. Only for the present connection. */
  const streams = new Map<string, string>();
  /** The last row of each turn of this pairing. */
  const rows = new Map<string, TurnRow>();
  /** True if the relay stores turns; null until it has reported that on this connection. */
  const isKeeping = signal<boolean | null>(null);
  /** Titles of sessions by id, from the last read of the agent's list. */
  const titles = signal<Readonly<Record<string, string>>>({});
  void pageStore.read<Record<string, string>>(TITLES).then((stored) => {
    titles.value = { ...stored, ...titles.value };
  });
  let following = '';
  /** The last new conversation that was shown or prepared. */
  let begun: Conversation | undefined;
  /** The new conversation whose draft is the stored one, unless that is of another tab. */
  let drafting: Conversation | undefined;
  const unsaved = new Set<Conversation>();
  let saveTimer: ReturnType<typeof setTimeout> | undefined;
  let isSavingDrafts = false;
  const drafts = new Map<string, string>();
  const unsavedDrafts = openUnsaved(`${UNSAVED} ${new URL(app.base).pathname}`);
  let isClosed = false;

  function create(key: string): Conversation {
    const turns = signal<readonly Turn[]>([]);
    const past = signal(EMPTY);
    return {
      key: signal(key),
      id: signal(key === '' || key.startsWith('~') ? null : key),
      title: signal(''),
      turns,
      past,
      all: computed(() => withHistory(past.value.items, turns.value)),
      draft: signal(''),
      pictures: signal<readonly File[]>([]),
      sending: signal<Sending | null>(null),
    };
  }

  // The stored form.

  async function save(conversation: Conversation): Promise<void> {
    unsaved.delete(conversation);
    const key = conversation.key.value;
    if (key === '' || isClosed) return;
    const own = conversation.turns.value;
    await pageStore.change<readonly Turn[]>(storageKey(key), (stored = []) => mergeTurns(stored, own));
    if (!isClosed) channel.postMessage(key);
  }

  function saveSoon(conversation: Conversation): void {
    unsaved.add(conversation);
    saveTimer ??= setTimeout(saveAll, SAVE_DELAY);
  }

  function saveAll(): void {
    clearTimeout(saveTimer);
    saveTimer = undefined;
    for (const conversation of unsaved) void save(conversation);
  }

  /** Reads the stored form of a conversation, which another tab may have continued. */
  async function load(conversation: Conversation): Promise<void> {
    const stored = await pageStore.read<readonly Turn[]>(storageKey(conversation.key.value));
    if (!stored || isClosed) return;
    conversation.turns.value = mergeTurns(conversation.turns.value, stored);
  }

  channel.onmessage = ({ data }: MessageEvent<unknown>) => {
    if (data === NEW) drafting = undefined;
    const conversation = typeof data === 'string' ? conversations.get(data) : undefined;
    if (conversation) void load(conversation).then(() => catchUp(conversation));
  };

  /** Records a draft, and writes it at once, since a page may end at any time. */
  function setDraft(key: string, text: string): void {
    drafts.set(key, text);
    unsavedDrafts.set(key, text);
    if (!isSavingDrafts) void saveDrafts();
  }

  /** Records typed text, so that it survives the page. */
  function type(conversation: Conversation, text: string): void {
    const { value: key } = conversation.key;
    conversation.draft.value = text;
    setDraft(key || NEW, text);
    if (key !== '' || drafting === conversation || isClosed) return;
    drafting = conversation;
    channel.postMessage(NEW);
  }

  /** The conversation has another key than `before`, under which a later page does not look for its draft. */
  function moveDraft({ key, draft }: Conversation, before: string): void {
    if (draft.value === '') return;
    setDraft(before, '');
    setDraft(key.value, draft.value);
  }

  async function readDraft(key: string): Promise<string> {
    const stored = await pageStore.read<Record<string, string>>('chat drafts');
    return unsavedDrafts.get(key) ?? stored?.[key] ?? '';
  }

  async function saveDrafts(): Promise<void> {
    isSavingDrafts = true;
    while (drafts.size > 0 && !isClosed) {
      const changed = Object.fromEntries(drafts);
      drafts.clear();
      await pageStore.change<Record<string, string>>('chat drafts', (stored = {}) => {
        const all = Object.entries({ ...stored, ...changed }).filter(([, text]) => text !== '');
        return Object.fromEntries(all.slice(-MAX_DRAFTS));
      });
      // While the database takes nothing, only the tab's own storage outlives the page.
      if (!isClosed && !pageStore.isHeld('chat drafts')) unsavedDrafts.replace(Object.fromEntries(drafts));
    }
    isSavingDrafts = false;
  }

  for (const [key, text] of unsavedDrafts.left) setDraft(key, text);

  async function saveTitles(sessions: readonly ChatSession[]): Promise<void> {
    if (isClosed) return;
    const titled = sessions.filter(({ id, title }) => title !== id).slice(0, MAX_TITLES);
    titles.value = Object.fromEntries(titled.map(({ id, title }) => [id, title.slice(0, MAX_TITLE)]));
    await pageStore.change(TITLES, () => titles.value);
  }

  addEventListener('pagehide', saveAll);
  document.addEventListener('visibilitychange', saveAll);

  // The relay's view.

  const answerOf = (conversation: Conversation, request: string): Turn | undefined =>
    conversation.turns.value.find((turn) => turn.request === request && turn.from === 'agent');

  function change(conversation: Conversation, request: string, next: (turn: Turn) => Turn): void {
    conversation.turns.value = conversation.turns.value.map((turn) =>
      turn.request === request && turn.from === 'agent' ? next(turn) : turn,
    );
    changed(conversation, request);
  }

  function changed(conversation: Conversation, request: string): void {
    const turn = answerOf(conversation, request);
    if (turn) running.get(request)?.timer?.follow(turn);
    if (turn?.state === 'streaming') {
      saveSoon(conversation);
      return;
    }
    running.delete(request);
    for (const [id, other] of streams) if (other === request) streams.delete(id);
    void save(conversation);
  }

  const steps = createQueue<{ request: string } & Step>(STEP_DELAY, (all) => {
    for (const request of new Set(all.map((step) => step.request))) {
      const conversation = running.get(request)?.conversation;
      const own = all.filter((step) => step.request === request);
      if (conversation) change(conversation, request, (turn) => own.reduce(advance, turn));
    }
  });

  const stopMessages = port.onMessage(({ type, id, payload }) => {
    if (type === 'chat.turns' && id === following) return followed(Array.isArray(payload.turns) ? payload.turns : []);
    // An older relay does not know the message.
    if (type === 'chat.error' && id === following) return followed(null);
    const request = streams.get(id);
    if (type === 'chat.turn') {
      // The answer to a question that was sent twice: asks for its present state.
      streams.delete(id);
      return received([payload]);
    }
    const conversation = request === undefined ? undefined : running.get(request)?.conversation;
    if (request === undefined || !conversation) return;
    if (type === 'chat.session' && typeof payload.session_id === 'string') {
      named(conversation, payload.session_id, typeof payload.title === 'string' ? payload.title : '');
    } else if (type === 'chat.snapshot') {
      steps.flush();
      const at = rows.get(request)?.at ?? Date.now();
      conversation.turns.value = applySnapshot(conversation.turns.value, request, payload, at);
      changed(conversation, request);
    } else steps.add({ request, type, payload });
  });

  /** The agent has created the session of a conversation. */
  function named(conversation: Conversation, id: string, title = ''): void {
    if (title !== '') conversation.title.value = title;
    if (conversation.id.value !== null) return;
    const before = conversation.key.value;
    conversation.id.value = id;
    conversation.key.value = id;
    conversations.set(id, conversation);
    moveDraft(conversation, before);
    void save(conversation).then(() => pageStore.remove(storageKey(before)));
  }

  /** The relay's turns of this pairing; null from a relay that stores none. */
  function followed(turns: readonly unknown[] | null): void {
    isKeeping.value = turns !== null;
    received(turns ?? []);
  }

  function note(row: TurnRow | undefined): void {
    if (!row) return;
    rows.delete(row.request);
    rows.set(row.request, row);
    const [oldest] = rows.keys();
    if (rows.size > MAX_ROWS && oldest !== undefined) rows.delete(oldest);
  }

  /** Turns of this pairing have started or changed, on any device. */
  function received(turns: readonly unknown[]): void {
    for (const turn of turns) note(rowOf(turn));
    for (const conversation of new Set(conversations.values())) catchUp(conversation);
  }

  /** Requests the parts of a conversation's turns that are missing, from this and other devices. */
  function catchUp(conversation: Conversation): void {
    if (isKeeping.peek() === null || !session.isOnline.peek()) return;
    for (const row of rows.values()) {
      const turn = answerOf(conversation, row.request);
      const isOwn = turn !== undefined || (row.sessionId !== null && row.sessionId === conversation.id.value);
      if (!isOwn) continue;
      if (row.sessionId !== null) named(conversation, row.sessionId);
      const isMissed =
        !turn || (turn.seq ?? 0) < row.seq || (turn.state === 'streaming') !== (row.state === 'streaming');
      if (isMissed || row.state === 'streaming') resume(row, conversation, turn);
    }
    for (const turn of conversation.turns.value) {
      if (turn.state === 'streaming' && !rows.has(turn.request)) ask(conversation, turn);
    }
  }

  /** Follows a turn, unless this connection does already. */
  function resume({ turnId, request }: TurnRow, conversation: Conversation, turn?: Turn): void {
    if ([...streams.values()].includes(request)) return;
    const id = newUuid();
    if (!port.send('chat.resume', { turn_id: turnId, ...(turn?.seq && { after: turn.seq }) }, id)) return;
    streams.set(id, request);
    running.set(request, { ...running.get(request), conversation });
  }

  /** The relay does not list this question: it may not have arrived, or the relay stores no turns. */
  function ask(conversation: Conversation, turn: Turn): void {
    if ([...streams.values()].includes(turn.request)) return;
    const question = conversation.turns.value.find(
      ({ request, from }) => request === turn.request && from === 'person',
    );
    const isFresh = Date.now() - turn.at < MAX_RESEND && turn.turnId === undefined && turn.text === '';
    if (isKeeping.peek() && isFresh && question) {
      post(conversation, turn.request, question.text);
      return;
    }
    if (isKeeping.peek()) {
      change(conversation, turn.request, (answer) => broken(answer, FORGOTTEN));
      return;
    }
    // Another tab may receive it, and store it once a second.
    const { length } = turn.text;
    setTimeout(() => {
      const now = answerOf(conversation, turn.request);
      const isOrphan = now?.state === 'streaming' && now.text.length === length && !running.has(turn.request);
      if (isOrphan && !isClosed) change(conversation, turn.request, (answer) => broken(answer, LOST));
    }, ORPHANED);
  }

  function post(conversation: Conversation, request: string, text: string): boolean {
    const { value: id } = conversation.id;
    const payload = { message: text, keep: true, client_turn_id: request, ...(id !== null && { session_id: id }) };
    if (!port.send('chat.send', payload, request)) return false;
    streams.set(request, request);
    running.set(request, { ...running.get(request), conversation });
    return true;
  }

  const stopOnline = port.onOnline(() => {
    following = newUuid();
    port.send('chat.follow', {}, following);
    return () => {
      steps.flush();
      const isKept = isKeeping.peek() === true;
      isKeeping.value = null;
      streams.clear();
      if (isKept) return;
      for (const [request, { conversation }] of [...running]) {
        change(conversation, request, (turn) => broken(turn, LOST));
      }
    };
  });

  /** Reads a page of earlier messages: the newest page, or the one before the known messages. */
  async function readPast(conversation: Conversation, isOlder: boolean): Promise<void> {
    const { id, past } = conversation;
    const { items, hasMore, isLoading } = past.value;
    const before = isOlder ? items[0]?.id : undefined;
    // A relay that stores no turns has no history either.
    if (!isKeeping.peek() || id.value === null || isLoading || (isOlder && before === undefined)) return;
    past.value = { ...past.value, isLoading: true };
    const query = new URLSearchParams({ session_id: id.value, limit: '50', ...(before !== undefined && { before }) });
    try {
      const page = await api.call<{ items: HistoryItem[]; has_more: boolean }>(`chat/history?${query}`);
      const at = items.findIndex(({ id }) => id === page.items[0]?.id);
      // After a reconnect, somebody may be reading what comes before the newest page.
      const older = items.slice(0, Math.max(0, at));
      past.value = {
        items: [...older, ...page.items, ...(isOlder ? items : [])],
        hasMore: at > 0 ? hasMore : page.has_more,
        isLoading: false,
      };
    } catch {
      // The session is unknown, the relay is older, or it does not answer: the stored messages are shown.
      past.value = { items, hasMore, isLoading: false };
    }
  }

  return {
    /** The agent's sessions, newest first. @throws Error with a sentence for people. */
    async list(signal: AbortSignal): Promise<ChatSession[]> {
      const silence = 'The agent does not answer.';
      const { type, payload } = await requestOn(port, 'chat.sessions.list', { timeout: LIST_TIMEOUT, silence, signal });
      if (type !== 'chat.sessions') throw new Error(textOf(payload.message) || silence);
      const sessions = sessionsOf(payload.sessions);
      void saveTitles(sessions);
      return sessions;
    },

    /** A conversation by its key, or a new one. */
    open(key: string | null): Conversation {
      const known = key === null ? undefined : conversations.get(key);
      if (known) return known;
      const conversation = create(key ?? '');
      if (key === null) return conversation;
      conversations.set(key, conversation);
      // The page was reloaded while the agent created the session; the relay knows its id by now.
      const row = key.startsWith('~') ? rows.get(key.slice(1)) : undefined;
      void load(conversation).then(() => {
        if (row?.sessionId && conversation.turns.value.length === 0) named(conversation, row.sessionId);
        catchUp(conversation);
      });
      void readDraft(key).then((draft) => {
        if (conversation.draft.value === '') conversation.draft.value = draft;
        if (conversation.key.value !== key) moveDraft(conversation, key);
      });
      return conversation;
    },

    /** A conversation that is open under this key, or was before the agent named it. */
    find: (key: string): Conversation | undefined => conversations.get(key),

    /** The display name of a conversation; empty without one. */
    nameOf: ({ id, title, all }: Conversation): string =>
      titles.value[id.value ?? ''] ||
      title.value ||
      (all.value
        .find(({ from }) => from === 'person')
        ?.text.trim()
        .split('\n', 1)[0]
        ?.slice(0, 80) ??
        ''),

    /** Prepares a draft, after the one that is stored, and pictures for the screen of a new conversation. */
    async prepare(text: string, pictures: readonly File[] = []): Promise<void> {
      const draft = await readDraft(NEW);
      begun = create('');
      begun.pictures.value = pictures;
      type(begun, [draft, text].filter(Boolean).join('\n'));
    },

    /** A new conversation with the stored draft, or the last one while it has pictures, which are in memory only. */
    begin(): Conversation {
      if (begun?.key.value !== '' || begun.pictures.value.length === 0) begun = create('');
      const conversation = begun;
      void readDraft(NEW).then((draft) => {
        if (draft !== '' && conversation.key.value === '' && conversation.draft.value === '') type(conversation, draft);
      });
      return conversation;
    },

    type,

    /** The title of a session in the agent's list, if that was read. */
    titleOf: (id: string): string => titles.value[id] ?? '',

    readPast,

    /** True if the relay stores turns; null while unknown. */
    isKeeping: isKeeping as ReadonlySignal<boolean | null>,

    /** The search text of the list, restored when going back from a result. */
    query: signal(''),

    /** Sends a message. Returns false without a connection, in which case nothing is sent or lost. */
    send(conversation: Conversation, text: string): boolean {
      const request = newUuid();
      if (!post(conversation, request, text)) return false;
      running.set(request, { conversation, timer: analytics.startAnswer() });
      if (conversation.key.value === '') {
        conversation.key.value = `~${request}`;
        if (drafting === conversation) setDraft(NEW, '');
        conversations.set(conversation.key.value, conversation);
      }
      const at = Date.now();
      const turns = [personTurn(request, text, at), agentTurn(request, at)];
      conversation.turns.value = mergeTurns(conversation.turns.value, turns);
      void save(conversation);
      return true;
    },

    /**
     * Asks the agent to stop (contract 09 §1, 10 §1), after which the stream ends by itself. Returns false without a
     * connection, in which case the agent goes on.
     */
    stop(conversation: Conversation): boolean {
      return conversation.turns.value.every(
        ({ state, request, turnId }) =>
          state !== 'streaming' ||
          port.send('chat.cancel', turnId === undefined ? { request_id: request } : { turn_id: turnId }),
      );
    },

    close(): void {
      isClosed = true;
      // Leaving the port marks running answers as broken, which must not be stored.
      running.clear();
      steps.close();
      clearTimeout(saveTimer);
      unsavedDrafts.replace({});
      removeEventListener('pagehide', saveAll);
      document.removeEventListener('visibilitychange', saveAll);
      channel.close();
      stopMessages();
      stopOnline();
    },
  };
}

/** Drafts on their way to the database, in the storage of this tab, which is written synchronously. */
function openUnsaved(place: string) {
  let all: Record<string, string> = {};
  try {
    all = (asObject(JSON.parse(sessionStorage.getItem(place) ?? '{}')) ?? {}) as Record<string, string>;
  } catch {
    // A browser that blocks storage.
  }
  function write(): void {
    try {
      if (Object.keys(all).length === 0) sessionStorage.removeItem(place);
      else sessionStorage.setItem(place, JSON.stringify(all));
    } catch {
      // Blocked or full; the database will have it soon.
    }
  }
  return {
    /** Changes that the last page of this tab did not write. */
    left: Object.entries(all),
    get: (key: string): string | undefined => all[key],
    set(key: string, text: string): void {
      all[key] = text;
      write();
    },
    replace(left: Record<string, string>): void {
      all = left;
      write();
    },
  };
}

/** Reads the agent's rows, whose form differs between agents. */
function sessionsOf(value: unknown): ChatSession[] {
  const rows = Array.isArray(value) ? value.map(asObject) : [];
  const sessions = rows.flatMap((row) => {
    const id = row?.id ?? row?.session_id;
    if (typeof id !== 'string' || id === '') return [];
    const text = (name: string) => (typeof row?.[name] === 'string' ? (row[name] as string) : '');
    const updatedAt = timeOf(row?.updated_at ?? row?.last_active ?? row?.created_at ?? row?.started_at);
    return [{ id, title: text('title') || text('preview') || id, model: text('model'), updatedAt }];
  });
  return sessions.sort((a, b) => (b.updatedAt ?? 0) - (a.updatedAt ?? 0));
}

/** Epoch seconds or milliseconds, or a date as text. */
function timeOf(value: unknown): number | null {
  const time = typeof value === 'string' ? Date.parse(value) : value;
  if (!isTime(time) || time <= 0) return null;
  return typeof value === 'number' && time < 1e11 ? time * 1000 : time;
}
