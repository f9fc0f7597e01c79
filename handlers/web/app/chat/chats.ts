import { type Signal, signal } from '@preact/signals';
import { asObject } from '../../../../lib/kit/json.ts';
import { newUuid } from '../../../../lib/kit/uuid.ts';
import { type AnswerTimer, createAnalytics } from '../analytics.ts';
import type { App } from '../context.ts';
import { createFrameQueue } from '../frames.ts';
import { advance, agentTurn, broken, personTurn, type Step, type Turn } from './turns.ts';

/** A conversation of the agent. */
export interface ChatSession {
  id: string;
  title: string;
  model: string;
  /** Epoch ms, where the agent says so. */
  updatedAt: number | null;
}

/** A conversation as this browser has seen it: the relay gives no history of it. */
export interface Conversation {
  readonly turns: Signal<readonly Turn[]>;
  /** The agent's id, once it has made the session. */
  readonly id: Signal<string | null>;
  readonly title: Signal<string>;
  /** Text that is typed but not sent. */
  readonly draft: Signal<string>;
  /** Pictures that go with the draft. */
  readonly pictures: Signal<readonly File[]>;
}

/** Turns that are kept of a conversation. */
const MAX_TURNS = 200;
/** Milliseconds for the list of sessions. */
const LIST_TIMEOUT = 30_000;

export type Chats = ReturnType<typeof createChats>;

/** The conversations with the agent over channel `chat` (contract 02 §5). Streams go on while another screen is shown. */
export function createChats(app: App) {
  const { session, keep } = app;
  const analytics = app.kept(createAnalytics);
  const port = session.port('chat');
  const keyOf = (id: string) => `chat ${id}`;
  const conversations = new Map<string, Conversation>();
  /** Conversations with an answer under way, by request. */
  const running = new Map<string, { conversation: Conversation; timer: AnswerTimer }>();
  let prepared: Conversation | undefined;
  const waiting = new Map<string, (answer: { sessions?: ChatSession[]; error?: string }) => void>();

  function create(id: string | null): Conversation {
    return {
      turns: signal<readonly Turn[]>([]),
      id: signal(id),
      title: signal(''),
      draft: signal(''),
      pictures: signal<readonly File[]>([]),
    };
  }

  function change(conversation: Conversation, request: string, next: (turn: Turn) => Turn): void {
    conversation.turns.value = conversation.turns.value.map((turn) =>
      turn.request === request && turn.from === 'agent' ? next(turn) : turn,
    );
    const turn = conversation.turns.value.findLast((one) => one.request === request);
    if (turn) running.get(request)?.timer.follow(turn);
    if (turn?.state === 'streaming') return;
    running.delete(request);
    void store(conversation);
  }

  async function store({ id, turns }: Conversation): Promise<void> {
    if (id.value !== null) await keep.change(keyOf(id.value), () => turns.value.slice(-MAX_TURNS));
  }

  /** Messages that came since the last frame: drawing each of them would cost more than the frame has. */
  const steps = createFrameQueue<{ request: string } & Step>((all) => {
    for (const request of new Set(all.map((step) => step.request))) {
      const conversation = running.get(request)?.conversation;
      const own = all.filter((step) => step.request === request);
      if (conversation) change(conversation, request, (turn) => own.reduce(advance, turn));
    }
  });

  const stopMessages = port.onMessage(({ type, id, payload }) => {
    const listed = waiting.get(id);
    if (listed && type === 'chat.sessions') return listed({ sessions: sessionsOf(payload.sessions) });
    if (listed && type === 'chat.error') return listed({ error: String(payload.message ?? '') });
    const conversation = running.get(id)?.conversation;
    if (!conversation) return;
    if (type === 'chat.session' && typeof payload.session_id === 'string') {
      conversation.id.value = payload.session_id;
      conversation.title.value = typeof payload.title === 'string' ? payload.title : '';
      conversations.set(payload.session_id, conversation);
    } else steps.add({ request: id, type, payload });
  });
  const stopOnline = port.onOnline(() => () => {
    steps.flush();
    for (const [request, { conversation }] of [...running]) {
      change(conversation, request, (turn) =>
        broken(turn, 'The connection broke. The agent has stopped; what it had said is here.'),
      );
    }
  });

  return {
    /** The agent's sessions, newest first. @throws Error with a sentence for people. */
    async list(signal: AbortSignal): Promise<ChatSession[]> {
      const id = newUuid();
      const answered = new Promise<{ sessions?: ChatSession[]; error?: string }>((resolve) => waiting.set(id, resolve));
      const late = new Promise<{ error: string }>((resolve) => {
        const timer = setTimeout(() => resolve({ error: 'The agent does not answer.' }), LIST_TIMEOUT);
        signal.addEventListener('abort', () => {
          clearTimeout(timer);
          resolve({ error: '' });
        });
      });
      try {
        if (!port.send('chat.sessions.list', {}, id)) throw new Error('The relay does not answer.');
        const answer: { sessions?: ChatSession[]; error?: string } = await Promise.race([answered, late]);
        if (!answer.sessions) throw new Error(answer.error || 'The agent does not answer.');
        return answer.sessions;
      } finally {
        waiting.delete(id);
      }
    },

    /** A conversation by the agent's id, or a new one. */
    open(id: string | null): Conversation {
      const known = id === null ? undefined : conversations.get(id);
      if (known) return known;
      const conversation = create(id);
      if (id === null) return conversation;
      conversations.set(id, conversation);
      void keep.read<Turn[]>(keyOf(id)).then((stored) => {
        if (stored && conversation.turns.value.length === 0) conversation.turns.value = stored;
      });
      return conversation;
    },

    /** Begins a new conversation with a draft and pictures, which the screen of a new one then shows. */
    prepare(text: string, pictures: readonly File[] = []): void {
      prepared = create(null);
      prepared.draft.value = text;
      prepared.pictures.value = pictures;
    },

    /** A new conversation: the one that was prepared, if there is one. */
    begin(): Conversation {
      const conversation = prepared ?? create(null);
      prepared = undefined;
      return conversation;
    },

    /** Sends what a person says. False while there is no connection: nothing is sent then, and nothing is lost. */
    send(conversation: Conversation, text: string): boolean {
      const request = newUuid();
      const payload = { message: text, ...(conversation.id.value !== null && { session_id: conversation.id.value }) };
      if (!port.send('chat.send', payload, request)) return false;
      running.set(request, { conversation, timer: analytics.startAnswer() });
      const at = Date.now();
      conversation.turns.value = [
        ...conversation.turns.value,
        personTurn(request, text, at),
        agentTurn(request, at),
      ].slice(-MAX_TURNS);
      return true;
    },

    /** Asks the agent to stop (contract 09 §1). The stream ends by itself then. */
    stop(conversation: Conversation): void {
      for (const turn of conversation.turns.value) {
        if (turn.state === 'streaming') port.send('chat.cancel', { request_id: turn.request });
      }
    },

    close(): void {
      // Leaving the port marks what is under way as broken, which must not be kept.
      running.clear();
      steps.close();
      stopMessages();
      stopOnline();
    },
  };
}

/** Reads the agent's rows, of which each agent has its own form. */
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
  if (typeof value === 'number' && value > 0) return value < 1e11 ? value * 1000 : value;
  const parsed = typeof value === 'string' ? Date.parse(value) : Number.NaN;
  return Number.isNaN(parsed) ? null : parsed;
}
