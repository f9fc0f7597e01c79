import type { Config } from '../config.ts';
import { describeError, RelayError } from '../errors.ts';
import type { Upstream } from '../host/upstream.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import type { Connection } from '../socket/channel.ts';
import type { Payload } from '../socket/envelope.ts';
import { type AgentEvent, readEvent, startOf } from './events.ts';
import { createGate } from './gate.ts';
import { legacy } from './legacy.ts';
import { createSseReader } from './sse.ts';
import { typed } from './typed.ts';
import { createAgentApi } from './upstream.ts';

const MiB = 1024 * 1024;
const HIGH = MiB;
const LOW = MiB / 4;
const LIMITS = { stream: 4, list: 16 };
/** How long an upstream that has said `done` may keep its stream open. */
const LINGER = 30_000;

/** The part of a connection that chat uses. */
export type ChatClient = Pick<Connection, 'send' | 'sendError' | 'follow' | 'typedStream'>;

export interface ChatParts {
  config: Pick<Config, 'webapiUrl' | 'apiServerKey'>;
  upstream: Upstream;
  clock: Clock;
  log: Log;
}

export interface Turn {
  message: string;
  /** Without one a session is created first. */
  sessionId?: string;
  profile?: string;
}

/** Chat of every socket with the agent's API server (contract 02 §5). Nothing here rejects: clients are told. */
export interface Chat {
  /** Starts one turn. It answers with `chat.session` where one is created, and then with what the agent streams. */
  send(client: ChatClient, id: string, turn: Turn): void;
  /** Answers with `chat.sessions`. */
  listSessions(client: ChatClient, id: string, profile?: string): void;
  /** The socket is gone: ends what runs for it, without a word. */
  drop(client: ChatClient): void;
  /** The grant is gone: ends what runs for it and says so (contract 02 §1.5). */
  revoke(client: ChatClient, text: string): void;
  /** Ends everything. */
  stop(): void;
  /** How many calls run. */
  running(): number;
}

interface Task {
  kind: keyof typeof LIMITS;
  id: string;
  controller: AbortController;
}

type Work = (controller: AbortController) => Promise<void>;
type Reply = (type: string, payload: Payload) => void;

/** `chat.error` (contract 02 §1.4). */
export function sendChatError(client: Pick<ChatClient, 'send'>, id: string, message: string, error: string): void {
  client.send('chat', 'chat.error', { message, error }, id);
}

const lengthOf = ({ message, sessionId, profile }: Turn): string =>
  `${message.length} characters to ${sessionId ?? 'a new session'}${profile === undefined ? '' : ` of ${profile}`}`;

export function createChat({ config, upstream, clock, log }: ChatParts): Chat {
  const api = createAgentApi({ config, upstream, clock, log });
  const tasks = new Map<ChatClient, Set<Task>>();

  function start(client: ChatClient, kind: Task['kind'], id: string, work: Work): void {
    const own = tasks.get(client) ?? new Set();
    if ([...own].filter((task) => task.kind === kind).length >= LIMITS[kind]) {
      sendChatError(client, id, `Too many chat requests at once (at most ${LIMITS[kind]})`, 'session_limit');
      return;
    }
    const task: Task = { kind, id, controller: new AbortController() };
    tasks.set(client, own.add(task));
    const { signal } = task.controller;
    void work(task.controller)
      .catch((error) => {
        // Whoever aborted it has said what there was to say.
        if (!signal.aborted) report(client, id, error);
      })
      .finally(() => {
        own.delete(task);
        if (own.size === 0 && tasks.get(client) === own) tasks.delete(client);
      });
  }

  function report(client: ChatClient, id: string, error: unknown): void {
    if (error instanceof RelayError) {
      // Only the part before the colon: what follows may be the API server's own words.
      log.warn(`chat request failed: ${error.message.split(':')[0]}`);
      sendChatError(client, id, error.message, 'upstream_error');
    } else {
      log.error(`chat request failed unexpectedly: ${describeError(error)}`);
      sendChatError(client, id, 'internal error', 'internal_error');
    }
  }

  function abort(client: ChatClient): Task[] {
    const own = [...(tasks.get(client) ?? [])];
    tasks.delete(client);
    for (const task of own) task.controller.abort();
    return own;
  }

  async function run(client: ChatClient, id: string, turn: Turn, controller: AbortController): Promise<void> {
    const { signal } = controller;
    const { message, profile } = turn;
    let { sessionId } = turn;
    const reply: Reply = (type, payload) => {
      if (!signal.aborted) client.send('chat', type, payload, id);
    };
    log.info(`chat: ${lengthOf(turn)}`);
    if (sessionId === undefined) {
      const session = await api.createSession(profile, signal);
      sessionId = session.id;
      log.debug(`chat: created session ${sessionId}`);
      reply('chat.session', { session_id: sessionId, title: session.title, model: session.model });
    }
    await pump(client, await api.stream({ sessionId, message, profile }, signal), { sessionId, reply, controller });
    log.debug(`chat: the stream of session ${sessionId} ended`);
  }

  /** Passes a stream on, no faster than the client takes it (contract 02 §1.7). */
  async function pump(
    client: ChatClient,
    body: AsyncIterable<Uint8Array>,
    { sessionId, reply, controller }: { sessionId: string; reply: Reply; controller: AbortController },
  ): Promise<void> {
    const { signal } = controller;
    const dialect = client.typedStream ? typed : legacy;
    let state = startOf(sessionId);
    let linger: Cancel | undefined;
    const emit = (event: AgentEvent) => {
      const step = dialect(state, event, clock.now());
      state = step.state;
      if (step.send) reply(step.send.type, step.send.payload);
    };
    const leave = () => {
      emit({ kind: 'end' });
      controller.abort();
    };
    const reader = createSseReader((sse) => {
      const event = readEvent(sse);
      if (!event) return;
      emit(event);
      if (isLast(event)) linger ??= clock.after(LINGER, leave);
    });
    const gate = createGate();
    const unfollow = client.follow({ high: HIGH, low: LOW, pause: gate.close, resume: gate.open });
    signal.addEventListener('abort', gate.open);
    try {
      for await (const bytes of body) {
        reader.push(bytes);
        await gate.passed();
        if (signal.aborted) return;
      }
      reader.end();
      emit({ kind: 'end' });
    } catch (error) {
      // The turn was complete: that the connection then broke is no news for the client.
      if (!state.final || !(error instanceof RelayError)) throw error;
    } finally {
      linger?.();
      unfollow();
      signal.removeEventListener('abort', gate.open);
    }
  }

  return {
    send(client, id, turn) {
      start(client, 'stream', id, (controller) => run(client, id, turn, controller));
    },

    listSessions(client, id, profile) {
      start(client, 'list', id, async ({ signal }) => {
        const sessions = await api.listSessions(profile, signal);
        if (!signal.aborted) client.send('chat', 'chat.sessions', { sessions }, id);
      });
    },

    drop: (client) => void abort(client),

    revoke(client, text) {
      for (const { id } of abort(client)) {
        sendChatError(client, id, text, 'permission_denied');
        client.sendError(text, 'permission_denied', id, { channel: 'chat' });
      }
    },

    stop() {
      for (const client of [...tasks.keys()]) abort(client);
    },

    running: () => [...tasks.values()].reduce((sum, own) => sum + own.size, 0),
  };
}

/** Whether nothing of use can follow. */
const isLast = (event: AgentEvent): boolean =>
  event.kind === 'mark' || (event.kind === 'event' && event.type === 'done');
