import type { ChatTurnHead, Store } from '../../storage/schema.ts';
import type { Config } from '../config.ts';
import { describeError, RelayError } from '../errors.ts';
import type { Upstream } from '../host/upstream.ts';
import { type Cancel, type Clock, seconds } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Connection } from '../socket/channel.ts';
import type { Payload } from '../socket/envelope.ts';
import { describeTurn, sendChatError, type Turn } from './chat.ts';
import { type AgentEvent, initialState, readEvent, type StreamState } from './events.ts';
import { legacy } from './legacy.ts';
import { watchSilence } from './silence.ts';
import { createSseReader } from './sse.ts';
import { openTurnStore } from './turn-store.ts';
import { type Answer, advanceAnswer, type Ending, emptyAnswer, MAX_TEXT, previewOf } from './turns.ts';
import { typed } from './typed.ts';
import { createAgentApi } from './upstream.ts';

/** The grant without which a family has no turns. */
const GRANT = 'chat';
const MAX_PER_FAMILY = 8;
const MAX_PER_RELAY = 32;
/** Milliseconds that a turn may take. */
const MAX_DURATION = 4 * 3_600_000;
/** Milliseconds between two writes of a turn that runs, and between two checks of its family's grant. */
const TICK = 1_000;
/** A timer this long is an alarm at the edge: an event, without which an object with nothing but timers is evicted. */
const ALARM = 60_000;
/** How long upstream may keep its stream open after the end of a turn, milliseconds. */
const LINGER = 30_000;
/** Unsent bytes of a socket above which it gets no events, and below which it gets a snapshot in place of those. */
const HIGH_WATER_MARK = 1024 * 1024;
const LOW_WATER_MARK = HIGH_WATER_MARK / 4;
/** Turns in one `chat.turns`. */
const MAX_LISTED = 100;
/** More than any number of events in the second that a crash loses: clients must not take an older `seq` for the current one. */
const LOST_EVENTS = 2 ** 20;
/** Timers of Node and alarms of the edge take at most this, milliseconds. */
const DAY = 86_400_000;

/** The part of a connection that turns use. */
export type TurnClient = Pick<
  Connection,
  'id' | 'session' | 'isOpen' | 'send' | 'sendError' | 'follow' | 'typedStream' | 'probe'
>;

/** A turn whose end devices of its family may have to be called to. */
export interface EndedTurn {
  turnId: string;
  family: string;
  sessionId: string | null;
  state: ChatTurnHead['state'];
  question: string;
  text: string;
}

/** A turn that the relay's end has interrupted. `startedAt` is epoch seconds. */
export interface InterruptedTurn {
  sessionId: string;
  profile: string | null;
  question: string;
  startedAt: number;
}

export interface ChatTurnsParts {
  config: Pick<Config, 'webapiUrl' | 'apiServerKey'>;
  upstream: Upstream;
  store: Store<'chat-turns'>;
  sessions: Pick<Sessions, 'byFamily' | 'onEnd' | 'onReduce'>;
  clock: Clock;
  log: Log;
  /** Whether sockets may outlive this process's memory (edge). */
  sleeps: boolean;
  /** Calls devices to the end of a turn that nobody gets in time. */
  calls?: {
    ended(turn: EndedTurn): void;
    /** Somebody has got the end. */
    seen(turnId: string): void;
    /** Whether a device is called, or will be. */
    isWaiting(turnId: string): boolean;
  };
  /** Asks the agent's history for the answer to an interrupted turn. */
  recover?(turn: InterruptedTurn): Promise<{ text: string } | undefined>;
}

/** What clients get for one event of a turn, by the form in which they take the stream. */
interface Output {
  seq: number;
  typed?: { type: string; payload: Payload };
  legacy?: { type: string; payload: Payload };
}

/** A socket that follows a turn. */
interface View {
  /** Of the request that its events answer. */
  id: string;
  /** It reads too slowly, and has missed events. */
  isBehind: boolean;
  hasMissed: boolean;
  unfollow(): void;
}

/** A turn whose stream is open. */
interface Stream {
  head: ChatTurnHead;
  readonly question: string;
  readonly controller: AbortController;
  readonly views: Map<TurnClient, View>;
  readonly startedAt: number;
  answer: Answer;
  typed: StreamState;
  legacy: StreamState;
  /** Something has changed since it was written. */
  isDirty: boolean;
  isSaving: boolean;
  ending?: Ending;
  /** What is sent once the end has been stored. */
  held?: Output[];
  saved?: Promise<void>;
  cancelLinger?: Cancel;
}

export type ChatTurns = Awaited<ReturnType<typeof openChatTurns>>;

/**
 * Chat turns that belong to a pairing and outlive its sockets (contract 10 §1). A turn is stored before its question
 * goes to the agent, once a second while it runs, and before its end goes to clients. Nothing here rejects: errors are
 * sent to the client.
 */
export async function openChatTurns(parts: ChatTurnsParts) {
  const { sessions, clock, log } = parts;
  const api = createAgentApi(parts);
  const store = await openTurnStore({ store: parts.store, log });
  /** By turn: those that run, and those that have ended and whose stream is still open. */
  const streams = new Map<string, Stream>();
  /** Sockets that are told of the turns of their family. */
  const followers = new Map<string, Set<TurnClient>>();
  const sleptFollowers = parts.sleeps ? await store.followers() : new Set<string>();
  let lastStamp = Math.max(0, ...store.all().map(({ started_at, ended_at }) => (ended_at ?? started_at) * 1000));
  let cancelTick: Cancel | undefined;
  let cancelAlarm: Cancel | undefined;
  let cancelExpiry: Cancel | undefined;
  let isStopping = false;

  // What ran when the last process ended does not run any more.
  for (const head of store.all()) {
    if (!sessions.byFamily(head.family)) store.removeFamily(head.family);
    else if (head.state === 'running') void saveSafely({ ...interrupted(head), seq: head.seq + LOST_EVENTS });
  }

  sessions.onEnd(({ family }) => {
    // A refresh ends a session too, and puts another of the same family in its place at once.
    queueMicrotask(() => {
      if (sessions.byFamily(family)) return;
      cancelFamily(family);
      store.removeFamily(family);
    });
  });
  sessions.onReduce(({ family }) => {
    if (!mayChat(family)) cancelFamily(family);
  });

  /** A time that no other change has, epoch seconds: `since` of `chat.follow` tells changes apart by it. */
  function stamp(): number {
    const now = clock.now();
    lastStamp = lastStamp >= now && lastStamp - now < TICK ? lastStamp + 1 : now;
    return lastStamp / 1000;
  }

  function interrupted(head: ChatTurnHead): ChatTurnHead {
    return { ...head, state: 'interrupted', ended_at: stamp(), unasked: true };
  }

  function mayChat(family: string): boolean {
    const session = sessions.byFamily(family);
    return session !== undefined && isGranted(session.grants, GRANT, seconds(clock));
  }

  async function saveSafely(head: ChatTurnHead, answer?: Answer, replaced = false): Promise<boolean> {
    try {
      await store.save(head, answer, replaced);
      return true;
    } catch (error) {
      log.warn(`a chat turn could not be saved: ${describeError((error as Error).cause ?? error)}`);
      return false;
    }
  }

  const runningOf = (family?: string): Stream[] =>
    [...streams.values()].filter(
      ({ head }) => head.state === 'running' && (family === undefined || head.family === family),
    );

  /** Sends a turn to those that follow its family. */
  function announce(head: ChatTurnHead): void {
    for (const client of followers.get(head.family) ?? []) client.send('chat', 'chat.turn', rowOf(head));
  }

  function rowOf(head: ChatTurnHead): Payload {
    const stream = streams.get(head.id);
    return {
      turn_id: head.id,
      client_turn_id: head.client_turn_id,
      session_id: head.session_id,
      profile: head.profile,
      state: head.state,
      started_at: head.started_at,
      ...(head.ended_at !== null && { ended_at: head.ended_at }),
      seq: stream?.head.seq ?? head.seq,
      preview: stream ? previewOf(stream.answer.text) : head.preview,
      ...(head.recovered && { recovered: true }),
      ...(head.truncated && { truncated: true }),
    };
  }

  function snapshotOf(head: ChatTurnHead, said: { question: string; text: string; tools: Answer['tools'] }): Payload {
    return {
      turn_id: head.id,
      session_id: head.session_id,
      state: head.state,
      question: said.question,
      text: said.text,
      tools: said.tools,
      ...(head.usage && { usage: head.usage }),
      ...(head.error !== undefined && { error: head.error }),
      seq: head.seq,
      ...(head.recovered && { recovered: true }),
      ...(head.truncated && { truncated: true }),
    };
  }

  /** Begins the periodic work for turns that run, which also keeps an object awake. */
  function keepTicking(): void {
    cancelTick ??= clock.after(TICK, tick);
    cancelAlarm ??= clock.after(ALARM, () => {
      cancelAlarm = undefined;
      if (streams.size > 0) keepTicking();
    });
  }

  function tick(): void {
    cancelTick = undefined;
    for (const stream of [...streams.values()]) {
      if (stream.head.state === 'running' && !stream.ending) {
        if (!mayChat(stream.head.family)) cancel(stream);
        else if (clock.monotonic() - stream.startedAt >= MAX_DURATION) {
          fail(stream, 'The turn took more than four hours', 'upstream_error');
          stream.controller.abort();
        }
      }
      if (stream.isDirty && !stream.isSaving && !stream.held) void write(stream);
    }
    if (streams.size > 0) keepTicking();
    else {
      cancelAlarm?.();
      cancelAlarm = undefined;
    }
  }

  /** Writes a turn as it is. */
  async function write(stream: Stream): Promise<void> {
    stream.isDirty = false;
    stream.isSaving = true;
    const head = { ...stream.head, preview: previewOf(stream.answer.text) };
    if (!(await saveSafely(head, stream.answer))) stream.isDirty = true;
    stream.isSaving = false;
    // Nothing else would write it again once its stream is closed.
    const isClosed = streams.get(stream.head.id) !== stream;
    if (stream.isDirty && isClosed && !isStopping) clock.after(TICK, () => void write(stream));
  }

  /** Adds an event of the agent, or of the relay, to a turn, and sends it to those that follow it. */
  function emit(stream: Stream, event: AgentEvent): void {
    const now = clock.now();
    const forTyped = typed(stream.typed, event, now);
    const forLegacy = legacy(stream.legacy, event, now);
    stream.typed = forTyped.state;
    stream.legacy = forLegacy.state;
    if (!forTyped.send) return;
    const before = stream.answer;
    const { answer, ending } = advanceAnswer(before, event);
    const hasGrown = answer.text.length > before.text.length;
    stream.answer = hasGrown && store.isFull() ? { ...answer, text: before.text, truncated: true } : answer;
    put(stream, { seq: forTyped.state.seq, typed: forTyped.send, legacy: forLegacy.send }, ending);
  }

  /** Ends a turn with an error of the relay. */
  function fail(stream: Stream, message: string, error: string): void {
    if (stream.ending) return;
    const seq = stream.head.seq + 1;
    stream.typed = { ...stream.typed, seq, final: true };
    stream.legacy = { ...stream.legacy, final: true };
    const send = { type: 'chat.error', payload: { message, error } };
    put(stream, { seq, typed: send, legacy: send }, { state: 'failed', error: message });
  }

  function put(stream: Stream, output: Output, ending: Ending | undefined): void {
    const { answer } = stream;
    stream.head = {
      ...stream.head,
      seq: output.seq,
      ...(answer.usage && { usage: answer.usage }),
      ...(answer.truncated && { truncated: true }),
    };
    stream.isDirty = true;
    if (stream.held) stream.held.push(output);
    else if (ending && !stream.ending) {
      stream.held = [output];
      stream.saved = end(stream, ending);
    } else deliver(stream, output);
  }

  /** Stores the end of a turn, then sends it (contract 10 §1). */
  async function end(stream: Stream, ending: Ending): Promise<void> {
    stream.ending = ending;
    const over: Partial<ChatTurnHead> = {
      ...ending,
      ended_at: stamp(),
      preview: previewOf(stream.answer.text),
    };
    stream.isDirty = false;
    if (!(await saveSafely({ ...stream.head, ...over }, stream.answer))) stream.isDirty = true;
    stream.head = { ...stream.head, ...over };
    const held = stream.held ?? [];
    stream.held = undefined;
    log.debug(`chat: turn ${stream.head.id} is ${stream.head.state}`);
    armExpiry();
    callDevices(stream.head, stream.question, stream.answer.text);
    for (const output of held) deliver(stream, output);
    for (const [client, view] of stream.views) {
      if (view.isBehind) continue;
      if (view.hasMissed) catchUp(stream, client, view);
      else confirm(stream.head, client);
    }
    announce(stream.head);
  }

  /** Has devices called to an answer that nobody gets. Its owner knows of a turn that was cancelled. */
  function callDevices(head: ChatTurnHead, question: string, text: string): void {
    const { id: turnId, family, session_id: sessionId, state } = head;
    if (state !== 'cancelled') parts.calls?.ended({ turnId, family, sessionId, state, question, text });
  }

  /** Calls nobody to the end of a turn once a client has got it, which its answer to a ping proves. */
  function confirm({ id }: ChatTurnHead, client: TurnClient): void {
    if (parts.calls?.isWaiting(id)) client.probe(() => parts.calls?.seen(id));
  }

  function deliver(stream: Stream, { seq, ...forms }: Output): void {
    for (const [client, view] of stream.views) {
      const send = client.typedStream ? forms.typed : forms.legacy;
      if (!send) continue;
      if (view.isBehind || view.hasMissed) view.hasMissed = true;
      else client.send('chat', send.type, { ...send.payload, seq, turn_id: stream.head.id }, view.id);
    }
  }

  /** Sends a socket the turn as it stands, in place of what it has missed. */
  function catchUp(stream: Stream, client: TurnClient, view: View): void {
    // What has ended is shown once that is stored.
    if (stream.held) return;
    view.hasMissed = false;
    sendSnapshot(stream.head, { question: stream.question, ...stream.answer }, client, view.id);
  }

  function sendSnapshot(
    head: ChatTurnHead,
    said: Parameters<typeof snapshotOf>[1],
    client: TurnClient,
    id: string,
  ): void {
    client.send('chat', 'chat.snapshot', snapshotOf(head, said), id);
    confirm(head, client);
  }

  /** Sends the events of a turn to a socket from now on, under the id of its latest request. */
  function view(stream: Stream, client: TurnClient, id: string): View {
    const known = stream.views.get(client);
    if (known) return Object.assign(known, { id });
    const added: View = { id, isBehind: false, hasMissed: false, unfollow: () => {} };
    stream.views.set(client, added);
    added.unfollow = client.follow({
      high: HIGH_WATER_MARK,
      low: LOW_WATER_MARK,
      pause() {
        added.isBehind = true;
      },
      resume() {
        added.isBehind = false;
        if (!added.hasMissed) return;
        if (streams.get(stream.head.id) === stream) catchUp(stream, client, added);
        else {
          added.hasMissed = false;
          void sendStored(client, added.id, stream.head.id);
        }
      },
    });
    return added;
  }

  /** Sends a turn that has ended as it is stored. Returns false when there is no such turn any more. */
  async function sendStored(client: TurnClient, id: string, turnId: string): Promise<boolean> {
    const said = await store.read(turnId);
    const head = store.find(turnId);
    if (said && head && client.isOpen && mayChat(head.family)) sendSnapshot(head, said, client, id);
    return said !== undefined;
  }

  function dropView(stream: Stream, client: TurnClient): void {
    stream.views.get(client)?.unfollow();
    stream.views.delete(client);
  }

  async function run(stream: Stream, { message, profile }: Turn): Promise<void> {
    const { signal } = stream.controller;
    try {
      await store.create(stream.head, stream.question);
    } catch (error) {
      refuse(stream, error);
      return;
    }
    try {
      if (signal.aborted) return;
      let sessionId = stream.head.session_id;
      if (sessionId === null) {
        const session = await api.createSession(profile, signal);
        if (signal.aborted) return;
        sessionId = session.id;
        stream.typed = { ...stream.typed, sessionId };
        stream.legacy = { ...stream.legacy, sessionId };
        stream.head = { ...stream.head, session_id: sessionId };
        // The agent's history is asked by it after a crash.
        void write(stream);
        const { title, model } = session;
        for (const [client, { id }] of stream.views) {
          client.send('chat', 'chat.session', { session_id: sessionId, title, model, turn_id: stream.head.id }, id);
        }
      }
      announce(stream.head);
      await pump(stream, { sessionId, message, profile });
    } catch (error) {
      if (!signal.aborted && !stream.ending) report(stream, error);
    } finally {
      await close(stream);
    }
  }

  /** A turn could not be stored: nothing was sent upstream, and nothing is kept of it. */
  function refuse(stream: Stream, error: unknown): void {
    const message = error instanceof RelayError ? error.message : 'internal error';
    log.warn(`a chat turn was refused: ${describeError((error as Error).cause ?? error)}`);
    streams.delete(stream.head.id);
    for (const [client, { id }] of stream.views) {
      sendChatError(client, id, message, 'unavailable');
      dropView(stream, client);
    }
  }

  /** Reads a stream as fast as the agent sends it: clients that do not keep up get a snapshot later. */
  async function pump(stream: Stream, turn: { sessionId: string; message: string; profile?: string }): Promise<void> {
    const { signal } = stream.controller;
    const silence = watchSilence(clock, (waited) => emit(stream, { kind: 'waiting', seconds: waited }));
    silence.start();
    const reader = createSseReader((sse) => {
      const event = readEvent(sse);
      if (!event || signal.aborted) return;
      silence.heard();
      emit(stream, event);
      if (stream.ending) stream.cancelLinger ??= clock.after(LINGER, () => stream.controller.abort());
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

  function report(stream: Stream, error: unknown): void {
    if (error instanceof RelayError) {
      // Only the part before the colon, because the rest may quote the API server.
      log.warn(`a chat turn failed: ${error.message.split(':')[0]}`);
      fail(stream, error.message, 'upstream_error');
    } else {
      log.error(`a chat turn failed unexpectedly: ${describeError(error)}`);
      fail(stream, 'internal error', 'internal_error');
    }
  }

  /** Nothing more comes of a stream. */
  async function close(stream: Stream): Promise<void> {
    if (isStopping) return;
    await stream.saved;
    if (stream.isDirty) await write(stream);
    // One that is behind gets the turn as it is stored once it has read the rest.
    for (const [client, { hasMissed }] of [...stream.views]) if (!hasMissed) dropView(stream, client);
    streams.delete(stream.head.id);
    if (!stream.isDirty) Object.assign(stream, { answer: emptyAnswer(), question: '' });
    else clock.after(TICK, () => void write(stream));
  }

  /** Ends a turn at its owner's request, or with the owner's session or grant. */
  function cancel(stream: Stream): void {
    if (stream.ending) return;
    emit(stream, { kind: 'cancelled' });
    stream.controller.abort();
  }

  function cancelFamily(family: string): void {
    for (const stream of runningOf(family)) cancel(stream);
  }

  /** Makes room for a stream: those of turns that have ended must not pile up. */
  function limitLingering(): void {
    for (const stream of streams.values()) {
      if (streams.size < 2 * MAX_PER_RELAY) return;
      if (stream.head.state !== 'running') stream.controller.abort();
    }
  }

  /** Removes turns when they are a week old. */
  function armExpiry(): void {
    const now = seconds(clock);
    const next = store.sweep(now);
    cancelExpiry?.();
    cancelExpiry = undefined;
    if (next === undefined || isStopping) return;
    cancelExpiry = clock.after(Math.min(Math.max((next - now) * 1000, ALARM), DAY), armExpiry);
  }

  /** Asks the agent's history once for what came of interrupted turns. */
  async function recoverAll(): Promise<void> {
    for (const head of store.all()) {
      if (head.state !== 'interrupted') continue;
      if (isStopping) return;
      if (head.unasked) await recoverOne(head);
    }
  }

  async function askHistory({ session_id: sessionId, profile, started_at: startedAt }: ChatTurnHead, question: string) {
    return sessionId === null ? undefined : parts.recover?.({ sessionId, profile, question, startedAt });
  }

  async function recoverOne(head: ChatTurnHead): Promise<void> {
    const said = await store.read(head.id);
    if (!said) return;
    const found = await askHistory(head, said.question).catch((error) => {
      log.warn(`the agent's history could not be asked: ${describeError(error)}`);
      return undefined;
    });
    const { unasked: _, ...asked } = head;
    if (found) {
      const text = found.text.slice(0, MAX_TEXT);
      const truncated = text.length < found.text.length && { truncated: true as const };
      const answer = { text, tools: said.tools, truncated: false };
      const done = { ...asked, state: 'done' as const, recovered: true as const, ended_at: stamp(), seq: head.seq + 1 };
      await finish({ ...done, preview: previewOf(text), ...truncated }, said.question, text, answer);
    } else await finish(asked, said.question, said.text);
  }

  async function finish(head: ChatTurnHead, question: string, text: string, answer?: Answer): Promise<void> {
    await saveSafely(head, answer, answer !== undefined);
    callDevices(head, question, text);
    if (answer) announce(head);
  }

  async function begin(): Promise<void> {
    armExpiry();
    await recoverAll();
  }

  function followersChanged(): void {
    if (!parts.sleeps) return;
    store.saveFollowers([...followers.values()].flatMap((own) => [...own].map(({ id }) => id)));
  }

  function addFollower(client: TurnClient): void {
    const { family } = client.session;
    followers.set(family, (followers.get(family) ?? new Set()).add(client));
  }

  function removeFollower(client: TurnClient): boolean {
    const { family } = client.session;
    const own = followers.get(family);
    const isFollower = own?.delete(client) ?? false;
    if (own?.size === 0) followers.delete(family);
    return isFollower;
  }

  return {
    /**
     * Starts a turn, or answers with the one that the client has named so before. Sends `chat.session` if it creates a
     * session, then the agent's stream.
     */
    send(client: TurnClient, id: string, turn: Turn, clientTurnId?: string): void {
      const { family } = client.session;
      const known = clientTurnId === undefined ? undefined : store.byClientId(family, clientTurnId);
      if (known) {
        const stream = streams.get(known.id);
        client.send('chat', 'chat.turn', rowOf(stream?.head ?? known), id);
        if (stream) view(stream, client, id);
        return;
      }
      if (runningOf(family).length >= MAX_PER_FAMILY || runningOf().length >= MAX_PER_RELAY || isStopping) {
        sendChatError(client, id, 'too many running turns', 'session_limit');
        return;
      }
      limitLingering();
      const sessionId = turn.sessionId ?? null;
      const head: ChatTurnHead = {
        id: crypto.randomUUID(),
        family,
        client_turn_id: clientTurnId ?? null,
        session_id: sessionId,
        profile: turn.profile ?? null,
        state: 'running',
        started_at: stamp(),
        ended_at: null,
        seq: 0,
        preview: '',
        bytes: 0,
        texts: 0,
        tools: 0,
      };
      const stream: Stream = {
        head,
        question: turn.message.slice(0, MAX_TEXT),
        controller: new AbortController(),
        views: new Map(),
        startedAt: clock.monotonic(),
        answer: emptyAnswer(),
        typed: initialState(sessionId ?? ''),
        legacy: initialState(sessionId ?? ''),
        isDirty: false,
        isSaving: false,
      };
      log.info(`chat: ${describeTurn(turn)}, turn ${head.id}`);
      streams.set(head.id, stream);
      view(stream, client, id);
      keepTicking();
      void run(stream, turn);
    },

    /** Sends the newest turns of the family that have changed since (epoch seconds), then each that changes. */
    follow(client: TurnClient, id: string, since = Number.NEGATIVE_INFINITY): void {
      const { family } = client.session;
      const changed = store
        .ofFamily(family)
        .map((head) => streams.get(head.id)?.head ?? head)
        .filter(({ started_at, ended_at }) => (ended_at ?? started_at) > since);
      client.send('chat', 'chat.turns', { turns: changed.slice(-MAX_LISTED).map(rowOf) }, id);
      addFollower(client);
      followersChanged();
    },

    /** Sends a turn as it stands, unless the client has it all, then its events while it runs. */
    async resume(client: TurnClient, id: string, turnId: string, after?: number): Promise<void> {
      await streams.get(turnId)?.saved;
      const stream = streams.get(turnId);
      const head = stream?.head ?? store.find(turnId);
      if (!head || head.family !== client.session.family) {
        sendChatError(client, id, 'Unknown turn', 'not_found');
        return;
      }
      const hasAll = after === head.seq;
      if (stream) {
        const own = view(stream, client, id);
        if (!hasAll) catchUp(stream, client, own);
        else if (stream.ending) confirm(head, client);
        return;
      }
      if (hasAll) confirm(head, client);
      else if (!(await sendStored(client, id, turnId))) sendChatError(client, id, 'Unknown turn', 'not_found');
    },

    /** Cancels a turn of the client's family. Ignores others. */
    cancel(client: TurnClient, turnId: string): void {
      const stream = streams.get(turnId);
      if (stream?.head.family === client.session.family) cancel(stream);
    },

    /** Cancels the turn whose events answer this request on this socket (contract 09 §1). Ignores other requests. */
    cancelRequest(client: TurnClient, requestId: string): void {
      for (const stream of streams.values()) if (stream.views.get(client)?.id === requestId) cancel(stream);
    },

    /** A socket is back after a sleep of the process (edge). */
    restore(client: TurnClient): void {
      if (sleptFollowers.has(client.id) && mayChat(client.session.family)) addFollower(client);
    },

    /** Forgets a socket; its turns go on. */
    drop(client: TurnClient): void {
      for (const stream of streams.values()) dropView(stream, client);
      if (removeFollower(client)) followersChanged();
    },

    /** Cancels the turns of a family that has lost its grant, and tells the socket (contract 02 §1.5). */
    revoke(client: TurnClient, text: string): void {
      for (const stream of streams.values()) {
        const own = stream.views.get(client);
        if (!own) continue;
        dropView(stream, client);
        if (stream.ending && !stream.held) continue;
        client.send(
          'chat',
          'chat.error',
          { message: text, error: 'permission_denied', turn_id: stream.head.id },
          own.id,
        );
        client.sendError(text, 'permission_denied', own.id, { channel: 'chat' });
      }
      if (removeFollower(client)) followersChanged();
      cancelFamily(client.session.family);
    },

    /** Turns that this socket follows and that run. */
    viewsOf: (client: TurnClient): number =>
      [...streams.values()].filter(({ head, views }) => head.state === 'running' && views.has(client)).length,

    /** How many turns run. */
    running: (): number => runningOf().length,

    /** What was said in a family's turns of a conversation, the oldest first (contract 10 §2). */
    async conversation(family: string, sessionId: string) {
      const heads = store.ofFamily(family).filter(({ session_id }) => session_id === sessionId);
      const turns = heads.map(async (head) => {
        const stream = streams.get(head.id);
        const said = stream ? { question: stream.question, ...stream.answer } : await store.read(head.id);
        return said && { ...(stream?.head ?? head), question: said.question, text: said.text, calls: said.tools };
      });
      return (await Promise.all(turns)).filter((turn) => turn !== undefined);
    },

    /** Whether a family has a turn of a conversation. */
    knows: (family: string, sessionId: string): boolean =>
      store.ofFamily(family).some(({ session_id }) => session_id === sessionId),

    start: begin,

    /** At the edge, once a woken object has its sockets back. */
    async restored(): Promise<void> {
      followersChanged();
      await begin();
    },

    /** Removes what is too old (edge). */
    sweep: armExpiry,

    /** Interrupts what runs, and writes it. */
    async stop(): Promise<void> {
      isStopping = true;
      for (const cancelTimer of [cancelTick, cancelAlarm, cancelExpiry]) cancelTimer?.();
      const running = [...streams.values()];
      streams.clear();
      await Promise.all(
        running.map(async (stream) => {
          for (const client of [...stream.views.keys()]) dropView(stream, client);
          stream.controller.abort();
          await stream.saved;
          const head =
            stream.head.state === 'running' ? { ...interrupted(stream.head), seq: stream.head.seq + 1 } : stream.head;
          await saveSafely({ ...head, preview: previewOf(stream.answer.text) }, stream.answer);
        }),
      );
    },
  };
}
