import type { ChatTurnHead } from '../../storage/schema.ts';
import { describeError, RelayError } from '../errors.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { sleep } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import { sendChatError, type Turn } from './chat.ts';
import { type AgentEvent, initialState, readEvent, type StreamState } from './events.ts';
import { legacy } from './legacy.ts';
import { watchSilence } from './silence.ts';
import { createSseReader } from './sse.ts';
import { createTurnViews, type Output, type TurnClient, type TurnViews } from './turn-sockets.ts';
import type { TurnStore } from './turn-store.ts';
import { type Answer, advanceAnswer, type Ending, emptyAnswer, MAX_TEXT, previewOf } from './turns.ts';
import { typed } from './typed.ts';
import type { AgentApi } from './upstream.ts';

/** Open streams at most, including those of finished turns. */
const MAX_STREAMS = 64;
/** Milliseconds that a turn may take. */
const MAX_DURATION = 4 * 3_600_000;
/** Milliseconds between two writes of a running turn, and between two checks of its family's grant. */
const TICK = 1_000;
/**
 * A timer this long is an alarm at the edge. An alarm is an event, without which an object that has only timers is
 * evicted.
 */
const ALARM = 60_000;
/**
 * Further attempts to store the end of a turn, one each tick, before it is sent although it is not stored: a device is
 * not left without the end, and gets it before it would be notified.
 */
const END_ATTEMPTS = 3;
/** Milliseconds for which upstream may keep its stream open after the end of a turn. */
const LINGER = 30_000;

export interface TurnRunnerDeps {
  api: Pick<AgentApi, 'createSession' | 'stream'>;
  store: TurnStore;
  clock: Clock;
  log: Log;
  /** True if the family's turns may go on. */
  mayRun(family: string): boolean;
  /** The family's turns may no longer go on: this one has to be cancelled. */
  denied(stream: TurnStream): void;
  /** Returns a unique time, epoch seconds. */
  stamp(): number;
  /** The agent has a session for the turn, and is about to get the question. */
  started(head: ChatTurnHead): void;
  /** The end of a turn is being stored. Writes made before this returns are stored with it. */
  ending(head: ChatTurnHead, question: string, answer: Answer): void;
  /** The end is stored and was sent to the clients that view the turn. */
  ended(head: ChatTurnHead): void;
  /** Sends a client the present state of a turn. */
  sendSnapshot(stream: TurnStream, client: TurnClient, id: string): void;
  /** The same for a turn whose stream is closed. */
  sendStored(turnId: string, client: TurnClient, id: string): void;
  /** The end of a turn was sent to a client. */
  sentEnd(head: ChatTurnHead, client: TurnClient): void;
}

/** A turn whose stream is open. */
export interface TurnStream {
  /** The head as shown to clients: `running` until its end is stored. */
  head: ChatTurnHead;
  question: string;
  answer: Answer;
  readonly views: TurnViews;
  /** Set at the end of the turn; settles when that is stored and sent. */
  saved?: Promise<void>;
}

/** A stream with the private state of the runner. */
interface Running extends TurnStream {
  readonly controller: AbortController;
  /** Monotonic milliseconds. */
  readonly startedAt: number;
  typed: StreamState;
  legacy: StreamState;
  /** True if something has changed since the last write. */
  isDirty: boolean;
  isSaving: boolean;
  /** Events to send once the end has been stored. */
  held?: Output[];
  cancelLinger?: Cancel;
}

/** Runs turns without their sockets (contract 10 §1). Nothing rejects: errors become the end of a turn. */
export function createTurnRunner(deps: TurnRunnerDeps) {
  const { api, store, clock, log } = deps;
  /** Running turns, and finished turns whose stream is still open. */
  const streams = new Map<string, Running>();
  let cancelTick: Cancel | undefined;
  let cancelAlarm: Cancel | undefined;
  const stopping = new AbortController();
  const isStopping = (): boolean => stopping.signal.aborted;

  const isRunning = ({ head }: TurnStream): boolean => head.state === 'running';

  /** Starts the periodic work for open streams, which also keeps an object awake. */
  function keepTicking(): void {
    if (isStopping()) return;
    cancelTick ??= clock.after(TICK, tick);
    cancelAlarm ??= clock.after(ALARM, () => {
      cancelAlarm = undefined;
      if (streams.size > 0) keepTicking();
    });
  }

  function tick(): void {
    cancelTick = undefined;
    for (const stream of [...streams.values()]) {
      if (!stream.saved && !deps.mayRun(stream.head.family)) deps.denied(stream);
      if (!stream.saved && clock.monotonic() - stream.startedAt >= MAX_DURATION) {
        fail(stream, 'The turn took more than four hours', 'upstream_error');
        stream.controller.abort();
      }
      if (stream.isDirty && !stream.isSaving && !stream.held) void write(stream);
    }
    if (streams.size > 0) keepTicking();
    else {
      cancelAlarm?.();
      cancelAlarm = undefined;
    }
  }

  /** Writes the present state of a turn. */
  async function write(stream: Running): Promise<void> {
    stream.isDirty = false;
    stream.isSaving = true;
    const head = { ...stream.head, preview: previewOf(stream.answer.text) };
    if (!(await store.save(head, stream.answer))) stream.isDirty = true;
    stream.isSaving = false;
  }

  /** Writes a turn whose stream is closed, repeated until that succeeds, then releases its texts. */
  async function writeLast(stream: Running): Promise<void> {
    if (stream.isDirty) await write(stream);
    if (!stream.isDirty) Object.assign(stream, { answer: emptyAnswer(), question: '' });
    else if (!isStopping()) clock.after(TICK, () => void writeLast(stream));
  }

  /** Adds an event of the agent or the relay to a turn, and sends it to the clients that view it. */
  function emit(stream: Running, event: AgentEvent): void {
    const now = clock.now();
    const forTyped = typed(stream.typed, event, now);
    const forLegacy = legacy(stream.legacy, event, now);
    stream.typed = forTyped.state;
    stream.legacy = forLegacy.state;
    if (!forTyped.send) return;
    const { text } = stream.answer;
    const { answer, ending } = advanceAnswer(stream.answer, event);
    const isTooLong = answer.text.length > text.length && store.isFull();
    stream.answer = isTooLong ? { ...answer, text, truncated: true } : answer;
    put(stream, { seq: forTyped.state.seq, typed: forTyped.send, legacy: forLegacy.send }, ending);
  }

  /** Ends a turn with an error of the relay. */
  function fail(stream: Running, message: string, error: string): void {
    if (stream.saved) return;
    const seq = stream.head.seq + 1;
    stream.typed = { ...stream.typed, seq, final: true };
    stream.legacy = { ...stream.legacy, final: true };
    const send = { type: 'chat.error', payload: { message, error } };
    put(stream, { seq, typed: send, legacy: send }, { state: 'failed', error: message });
  }

  function put(stream: Running, output: Output, ending: Ending | undefined): void {
    const { usage, truncated } = stream.answer;
    stream.head = { ...stream.head, seq: output.seq, ...(usage && { usage }), ...(truncated && { truncated }) };
    stream.isDirty = true;
    if (stream.held) stream.held.push(output);
    else if (ending && !stream.saved) {
      stream.held = [output];
      stream.saved = end(stream, ending);
    } else stream.views.deliver(output);
  }

  /** Stores the end of a turn, then sends it. */
  async function end(stream: Running, ending: Ending): Promise<void> {
    const over = { ...ending, ended_at: deps.stamp(), preview: previewOf(stream.answer.text) };
    stream.isDirty = false;
    const save = () => store.save({ ...stream.head, ...over }, stream.answer);
    const saving = save();
    deps.ending({ ...stream.head, ...over }, stream.question, stream.answer);
    let isStored = await saving;
    for (let attempt = 0; !isStored && attempt < END_ATTEMPTS && !isStopping(); attempt++) {
      await sleep({ clock, timeout: TICK, signal: stopping.signal });
      isStored = await save();
    }
    if (!isStored) stream.isDirty = true;
    // Events during the write have raised its `seq`.
    stream.head = { ...stream.head, ...over };
    const held = stream.held ?? [];
    stream.held = undefined;
    log.debug(`chat: turn ${stream.head.id} is ${stream.head.state}`);
    for (const output of held) stream.views.deliver(output);
    for (const client of stream.views.shown()) deps.sentEnd(stream.head, client);
    deps.ended(stream.head);
  }

  async function run(stream: Running, { message, profile }: Turn): Promise<void> {
    const { signal } = stream.controller;
    try {
      await store.create(stream.head, stream.question);
    } catch (error) {
      refuse(stream, error);
      return;
    }
    try {
      if (signal.aborted) return;
      const sessionId = stream.head.session_id ?? (await createSession(stream, profile));
      if (signal.aborted) return;
      deps.started(stream.head);
      await pump(stream, { sessionId, message, profile });
    } catch (error) {
      if (!signal.aborted) report(stream, error);
    } finally {
      await close(stream);
    }
  }

  /** The turn could not be stored: nothing was sent upstream, and no record is left. */
  function refuse(stream: Running, error: unknown): void {
    log.warn(`a chat turn was refused: ${describeError((error as Error).cause ?? error)}`);
    streams.delete(stream.head.id);
    const message = error instanceof RelayError ? error.message : 'internal error';
    for (const [client, id] of stream.views.all()) sendChatError(client, id, message, 'unavailable');
    stream.views.dropAll();
  }

  async function createSession(stream: Running, profile: string | undefined): Promise<string> {
    const { signal } = stream.controller;
    const { id, title, model } = await api.createSession(profile, signal);
    signal.throwIfAborted();
    stream.typed = { ...stream.typed, sessionId: id };
    stream.legacy = { ...stream.legacy, sessionId: id };
    stream.head = { ...stream.head, session_id: id };
    // After a crash, recovery asks the agent's history with this record.
    await write(stream);
    stream.views.send('chat.session', { session_id: id, title, model });
    return id;
  }

  /** Reads a stream as fast as the agent sends it. */
  async function pump(stream: Running, turn: { sessionId: string; message: string; profile?: string }): Promise<void> {
    const { signal } = stream.controller;
    const silence = watchSilence(clock, (waited) => emit(stream, { kind: 'waiting', seconds: waited }));
    silence.start();
    const reader = createSseReader((sse) => {
      const event = readEvent(sse);
      if (!event || signal.aborted) return;
      silence.restart();
      emit(stream, event);
      if (stream.saved) stream.cancelLinger ??= clock.after(LINGER, () => stream.controller.abort());
    });
    try {
      for await (const bytes of await api.stream(turn, signal)) {
        reader.push(bytes);
        // While the end is being stored, nothing more is read.
        await stream.saved;
        if (signal.aborted) return;
      }
      reader.end();
      emit(stream, { kind: 'end' });
    } finally {
      silence.stop();
      stream.cancelLinger?.();
    }
  }

  /** A broken connection after the end of a turn does not matter. */
  function report(stream: Running, error: unknown): void {
    if (stream.saved) return;
    if (error instanceof RelayError) {
      // Only the part before the colon, because the rest may quote the API server.
      log.warn(`a chat turn failed: ${error.message.split(':')[0]}`);
      fail(stream, error.message, 'upstream_error');
    } else {
      log.error(`a chat turn failed unexpectedly: ${describeError(error)}`);
      fail(stream, 'internal error', 'internal_error');
    }
  }

  /** Handles the end of a stream. */
  async function close(stream: Running): Promise<void> {
    if (isStopping()) return;
    await stream.saved;
    streams.delete(stream.head.id);
    stream.views.close();
    await writeLast(stream);
  }

  /** Ends a turn at its owner's request, or when the owner loses the session or grant. */
  function cancel(stream: Running): void {
    if (stream.saved) return;
    emit(stream, { kind: 'cancelled' });
    stream.controller.abort();
  }

  /** Streams of finished turns must not pile up. */
  function limitStreams(): void {
    for (const stream of streams.values()) {
      if (streams.size < MAX_STREAMS) return;
      if (!isRunning(stream)) stream.controller.abort();
    }
  }

  return {
    /** Starts a turn with a new head. The client gets its events. */
    start(client: TurnClient, id: string, head: ChatTurnHead, turn: Turn): void {
      limitStreams();
      const first = initialState(head.session_id ?? '');
      const isOpen = () => streams.get(head.id) === stream;
      const views = createTurnViews({
        turnId: head.id,
        mayShow: () => stream.held === undefined,
        sendSnapshot: (client, id) => {
          if (isOpen()) deps.sendSnapshot(stream, client, id);
          else deps.sendStored(head.id, client, id);
        },
      });
      const stream: Running = {
        head,
        question: turn.message.slice(0, MAX_TEXT),
        answer: emptyAnswer(),
        views,
        controller: new AbortController(),
        startedAt: clock.monotonic(),
        typed: first,
        legacy: first,
        isDirty: false,
        isSaving: false,
      };
      streams.set(head.id, stream);
      views.add(client, id);
      keepTicking();
      void run(stream, turn);
    },

    find: (turnId: string): TurnStream | undefined => streams.get(turnId),

    all: (): TurnStream[] => [...streams.values()],

    /** Running turns, of one family or of all. */
    running: (family?: string): TurnStream[] =>
      [...streams.values()].filter(
        (stream) => isRunning(stream) && (family === undefined || stream.head.family === family),
      ),

    /** Ends a turn with a final event that says so. Ignores finished turns. */
    cancel(turnId: string): void {
      const stream = streams.get(turnId);
      if (stream) cancel(stream);
    },

    /** Ends all streams. Running turns become `interrupted` and are stored. */
    async stop(interrupt: (head: ChatTurnHead) => ChatTurnHead): Promise<void> {
      stopping.abort();
      cancelTick?.();
      cancelAlarm?.();
      const open = [...streams.values()];
      streams.clear();
      for (const { views, controller } of open) {
        views.dropAll();
        controller.abort();
      }
      await Promise.all(
        open.map(async (stream) => {
          await stream.saved;
          const head = isRunning(stream) ? interrupt(stream.head) : stream.head;
          await store.save({ ...head, preview: previewOf(stream.answer.text) }, stream.answer);
        }),
      );
    },
  };
}
