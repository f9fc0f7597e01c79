import type { Config } from '../config.ts';
import { describeError, RelayError } from '../errors.ts';
import type { Upstream } from '../host/upstream.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { MiB } from '../kit/units.ts';
import type { Log } from '../log.ts';
import type { Connection } from '../socket/channel.ts';
import type { Payload } from '../socket/envelope.ts';
import { type AgentEvent, initialState, readEvent, type StreamState } from './events.ts';
import { legacy } from './legacy.ts';
import { createPauseSwitch } from './pause-switch.ts';
import { type SilenceWatch, watchSilence } from './silence.ts';
import { createSseReader } from './sse.ts';
import { typed } from './typed.ts';
import { createAgentApi } from './upstream.ts';

const HIGH_WATER_MARK = MiB;
const LOW_WATER_MARK = MiB / 4;
/** Concurrent requests of one socket. */
const LIMITS = { stream: 4, list: 16 };
/** Milliseconds for which upstream may keep its stream open after `done`. */
const LINGER_TIMEOUT = 30_000;

/** The part of a connection that chat uses. */
export type ChatClient = Pick<Connection, 'send' | 'sendError' | 'follow' | 'typedStream'>;

export interface ChatDeps {
  config: Pick<Config, 'webapiUrl' | 'apiServerKey'>;
  upstream: Upstream;
  clock: Clock;
  log: Log;
}

export interface Turn {
  message: string;
  /** Without one, a session is created first. */
  sessionId?: string;
  profile?: string;
}

/** A running request. */
interface Task {
  kind: keyof typeof LIMITS;
  id: string;
  controller: AbortController;
  /** Tells the client that it is cancelled. Set once there is a stream to end. */
  cancelled?(): void;
}

type Work = (task: Task) => Promise<void>;
type Reply = (type: string, payload: Payload) => void;

interface Emitter {
  emit(event: AgentEvent): void;
  /** True if a terminal event was sent. */
  isFinal(): boolean;
}

/** `chat.error` (contract 02 §1.4). */
export function sendChatError(client: Pick<ChatClient, 'send'>, id: string, message: string, error: string): void {
  client.send('chat', 'chat.error', { message, error }, id);
}

/** Tells a client that its grant has ended during a request (contract 02 §1.5). `more`: further members of `chat.error`. */
export function sendGrantEnded(client: Pick<ChatClient, 'send' | 'sendError'>, id: string, more: Payload = {}): void {
  const message = 'Chat grant expired for this device';
  const error = 'permission_denied';
  client.send('chat', 'chat.error', { message, error, ...more }, id);
  client.sendError(message, error, id, { channel: 'chat' });
}

/** Describes a turn for the log, without its text. */
export const describeTurn = ({ message, sessionId, profile }: Turn): string =>
  `${message.length} characters to ${sessionId ?? 'a new session'}${profile === undefined ? '' : ` of ${profile}`}`;

/** Chat between sockets and the agent's API server (contract 02 §5). Nothing rejects: errors are sent to the client. */
export function createChat(deps: ChatDeps) {
  const { clock, log } = deps;
  const api = createAgentApi(deps);
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
    void work(task)
      .catch((error) => {
        // The code that aborted the request notifies the client if needed.
        if (!signal.aborted) report(client, id, error);
      })
      .finally(() => {
        own.delete(task);
        if (own.size === 0 && tasks.get(client) === own) tasks.delete(client);
      });
  }

  function report(client: ChatClient, id: string, error: unknown): void {
    if (error instanceof RelayError) {
      // Only the part before the colon, because the rest may quote the API server.
      log.warn(`chat request failed: ${error.message.split(':')[0]}`);
      sendChatError(client, id, error.message, 'upstream_error');
    } else {
      log.error(`chat request failed unexpectedly: ${describeError(error)}`);
      sendChatError(client, id, 'internal error', 'internal_error');
    }
  }

  function cancelAll(client: ChatClient): Task[] {
    const own = [...(tasks.get(client) ?? [])];
    tasks.delete(client);
    for (const task of own) task.controller.abort();
    return own;
  }

  async function run(client: ChatClient, task: Task, turn: Turn): Promise<void> {
    const { signal } = task.controller;
    const { message, profile } = turn;
    let { sessionId } = turn;
    const reply: Reply = (type, payload) => {
      if (!signal.aborted) client.send('chat', type, payload, task.id);
    };
    task.cancelled = () => createEmitter(client, initialState(sessionId ?? ''), reply).emit({ kind: 'cancelled' });
    log.info(`chat: ${describeTurn(turn)}`);
    if (sessionId === undefined) {
      const session = await api.createSession(profile, signal);
      sessionId = session.id;
      log.debug(`chat: created session ${sessionId}`);
      reply('chat.session', { session_id: sessionId, title: session.title, model: session.model });
    }
    const emitter = createEmitter(client, initialState(sessionId), reply);
    task.cancelled = () => emitter.emit({ kind: 'cancelled' });
    const silence = watchSilence(clock, (seconds) => emitter.emit({ kind: 'waiting', seconds }));
    silence.start();
    try {
      const body = await api.stream({ sessionId, message, profile }, signal);
      await pump(client, body, emitter, silence, task.controller);
    } finally {
      silence.stop();
    }
    log.debug(`chat: the stream of session ${sessionId} ended`);
  }

  /** Sends the events of one stream in the dialect of the client. */
  function createEmitter(client: ChatClient, first: StreamState, reply: Reply): Emitter {
    const dialect = client.typedStream ? typed : legacy;
    let state = first;
    return {
      emit(event) {
        const step = dialect(state, event, clock.now());
        state = step.state;
        if (step.send) reply(step.send.type, step.send.payload);
      },
      isFinal: () => state.final,
    };
  }

  /** Forwards a stream no faster than the client reads it (contract 02 §1.7). */
  async function pump(
    client: ChatClient,
    body: AsyncIterable<Uint8Array>,
    { emit, isFinal }: Emitter,
    silence: SilenceWatch,
    controller: AbortController,
  ): Promise<void> {
    const { signal } = controller;
    let linger: Cancel | undefined;
    const finish = () => {
      emit({ kind: 'end' });
      controller.abort();
    };
    const reader = createSseReader((sse) => {
      const event = readEvent(sse);
      if (!event) return;
      silence.restart();
      emit(event);
      if (isLast(event)) linger ??= clock.after(LINGER_TIMEOUT, finish);
    });
    const { pause, resume, resumed } = createPauseSwitch();
    const unfollow = client.follow({
      high: HIGH_WATER_MARK,
      low: LOW_WATER_MARK,
      // While the client is behind, nothing reads from the agent, so its silence is not counted.
      pause() {
        pause();
        silence.stop();
      },
      resume() {
        resume();
        silence.start();
      },
    });
    signal.addEventListener('abort', resume);
    try {
      for await (const bytes of body) {
        reader.push(bytes);
        await resumed();
        if (signal.aborted) return;
      }
      reader.end();
      emit({ kind: 'end' });
    } catch (error) {
      // The client already has the whole turn, so a broken connection after it does not matter.
      if (!isFinal() || !(error instanceof RelayError)) throw error;
    } finally {
      linger?.();
      unfollow();
      signal.removeEventListener('abort', resume);
    }
  }

  return {
    /** Starts a turn. Sends `chat.session` if it creates a session, then the agent's stream. */
    send(client: ChatClient, id: string, turn: Turn): void {
      start(client, 'stream', id, (task) => run(client, task, turn));
    },

    /** Ends a turn at the client's request, with a final event that says so (contract 09 §1). Ignores unknown ids. */
    cancel(client: ChatClient, id: string): void {
      for (const task of tasks.get(client) ?? []) {
        if (task.kind !== 'stream' || task.id !== id) continue;
        task.cancelled?.();
        task.controller.abort();
      }
    },

    /** Sends `chat.sessions`. */
    listSessions(client: ChatClient, id: string, profile?: string): void {
      start(client, 'list', id, async ({ controller: { signal } }) => {
        const sessions = await api.listSessions(profile, signal);
        if (!signal.aborted) client.send('chat', 'chat.sessions', { sessions }, id);
      });
    },

    /** Cancels the requests of a closed socket. */
    drop: (client: ChatClient): void => void cancelAll(client),

    /** Cancels the requests of a socket that lost its grant, and notifies it (contract 02 §1.5). */
    revoke(client: ChatClient): void {
      for (const { id } of cancelAll(client)) sendGrantEnded(client, id);
    },

    /** Cancels all requests. */
    stop(): void {
      for (const client of [...tasks.keys()]) cancelAll(client);
    },

    /** Number of running turns of one client. */
    streamsOf: (client: ChatClient): number =>
      [...(tasks.get(client) ?? [])].filter(({ kind }) => kind === 'stream').length,

    /** Number of running requests. */
    running: (): number => [...tasks.values()].reduce((sum, own) => sum + own.size, 0),
  };
}

/** True if nothing relevant can follow. */
const isLast = (event: AgentEvent): boolean =>
  event.kind === 'mark' || (event.kind === 'event' && event.type === 'done');
