import type { ChatTurnHead, Store } from '../../storage/schema.ts';
import type { Config } from '../config.ts';
import { describeError } from '../errors.ts';
import type { Upstream } from '../host/upstream.ts';
import { type Cancel, type Clock, seconds } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Payload } from '../socket/envelope.ts';
import { describeTurn, sendChatError, type Turn } from './chat.ts';
import { createTurnRunner } from './turn-runner.ts';
import { createTurnFollowers, type TurnClient } from './turn-sockets.ts';
import { openTurnStore, type TurnTexts } from './turn-store.ts';
import { type Answer, MAX_TEXT, newHead, previewOf, rowOf, snapshotOf } from './turns.ts';
import { createAgentApi } from './upstream.ts';

/** The grant without which a family has no turns. */
const GRANT = 'chat';
const MAX_RUNNING = { family: 8, relay: 32 };
/** Turns in one `chat.turns`. */
const MAX_LISTED = 100;
/** More than any number of events in the second that a crash loses: no client may take an older `seq` for the current one. */
const LOST_EVENTS = 2 ** 20;
/** Seconds within which a question reaches the agent, or never does: its session and its request have their own limits. */
const MAX_ARRIVAL = 60;
/** Milliseconds between two looks for turns that are too old: at least, and at most. */
const EXPIRY = { min: 60_000, max: 86_400_000 };

/** A turn whose end devices of its family may have to be called to. */
export interface EndedTurn {
  turnId: string;
  family: string;
  sessionId: string | null;
  state: ChatTurnHead['state'];
  question: string;
  text: string;
}

/** Calls devices to the end of a turn that nobody gets in time. */
export interface TurnCalls {
  /** A turn has ended. */
  ended(turn: EndedTurn): void;
  /** Somebody has got its end. */
  seen(turnId: string): void;
  /** True if a device is called, or will be. */
  isWaiting(turnId: string): boolean;
}

/** A turn that the relay's end has interrupted. Times are epoch seconds. */
export interface InterruptedTurn {
  sessionId: string;
  profile: string | null;
  question: string;
  startedAt: number;
  /** A message with the same words at this time or later is another question. */
  askedBefore?: number;
}

export interface ChatTurnsParts {
  config: Pick<Config, 'webapiUrl' | 'apiServerKey'>;
  upstream: Upstream;
  store: Store<'chat-turns'>;
  sessions: Pick<Sessions, 'byFamily' | 'onEnd' | 'onReduce'>;
  clock: Clock;
  log: Log;
  calls?: TurnCalls;
  /** True if sockets may outlive this process's memory (edge). */
  sleeps: boolean;
  /** Asks the agent's history for the answer to an interrupted turn. */
  recover?(turn: InterruptedTurn): Promise<{ text: string } | undefined>;
}

export type ChatTurns = Awaited<ReturnType<typeof openChatTurns>>;

/**
 * Chat turns that belong to a pairing and outlive its sockets (contract 10 §1). A turn is stored before its question
 * goes to the agent, once a second while it runs, and before its end goes to clients. Nothing here rejects, unless a turn
 * cannot be read: errors are sent to the client.
 */
export async function openChatTurns(parts: ChatTurnsParts) {
  const { sessions, clock, log, calls } = parts;
  const store = await openTurnStore({ store: parts.store, log });
  const followers = createTurnFollowers({
    slept: parts.sleeps ? await store.followers() : new Set(),
    save: parts.sleeps ? store.saveFollowers : undefined,
  });
  let lastStamp = store.all().reduce((last, head) => Math.max(last, changedAt(head) * 1000), 0);
  let cancelExpiry: Cancel | undefined;
  let isStopping = false;

  /** A time that no other change has, epoch seconds: `since` of `chat.follow` tells changes apart by it. */
  function stamp(): number {
    const now = clock.now();
    const isNear = lastStamp >= now && lastStamp - now < 1000;
    lastStamp = isNear ? lastStamp + 1 : now;
    return lastStamp / 1000;
  }

  function mayChat(family: string): boolean {
    const session = sessions.byFamily(family);
    return session !== undefined && isGranted(session.grants, GRANT, seconds(clock));
  }

  const interrupted = (head: ChatTurnHead, seq: number): ChatTurnHead => ({
    ...head,
    state: 'interrupted',
    ended_at: stamp(),
    seq,
    unasked: true,
  });

  // Turns that ran when the last process ended do not run any more.
  for (const head of store.all()) {
    if (!sessions.byFamily(head.family)) store.removeFamily(head.family);
    else if (head.state === 'running') void store.save(interrupted(head, head.seq + LOST_EVENTS));
  }

  const runner = createTurnRunner({
    api: createAgentApi(parts),
    store,
    clock,
    log,
    mayRun: mayChat,
    stamp,
    started: announce,
    ending: (head, question, { text }) => callDevices(head, question, text),
    ended(head) {
      armExpiry();
      announce(head);
    },
    sendSnapshot: ({ head, question, answer }, client, id) => sendSnapshot(head, { question, ...answer }, client, id),
    sendStored: (turnId, client, id) =>
      void sendStored(turnId, client, id).catch((error) => {
        log.warn(`a chat turn could not be read: ${describeError(error)}`);
        sendChatError(client, id, 'internal error', 'internal_error');
      }),
    sentEnd: confirm,
  });

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

  function cancelFamily(family: string): void {
    for (const { head } of runner.running(family)) runner.cancel(head.id);
  }

  /** A turn as lists show it: as its stream has it while that is open. */
  function row(head: ChatTurnHead): Payload {
    const stream = runner.find(head.id);
    return rowOf(stream ? { ...stream.head, preview: previewOf(stream.answer.text) } : head);
  }

  function announce(head: ChatTurnHead): void {
    followers.announce(head.family, row(head));
  }

  /** Has devices called to an answer that nobody gets. Its owner knows of a turn that was cancelled. */
  function callDevices(head: ChatTurnHead, question: string, text: string): void {
    const { id: turnId, family, session_id: sessionId, state } = head;
    if (state !== 'cancelled') calls?.ended({ turnId, family, sessionId, state, question, text });
  }

  /** Calls nobody to the end of a turn once a client has got it, which its answer to a ping proves. */
  function confirm({ id }: ChatTurnHead, client: TurnClient): void {
    if (calls?.isWaiting(id)) client.probe(() => calls.seen(id));
  }

  function sendSnapshot(head: ChatTurnHead, said: TurnTexts, client: TurnClient, id: string): void {
    client.send('chat', 'chat.snapshot', snapshotOf(head, said), id);
    confirm(head, client);
  }

  /** Sends a turn that has ended as it is stored. */
  async function sendStored(turnId: string, client: TurnClient, id: string): Promise<void> {
    const said = await store.read(turnId);
    const head = store.find(turnId);
    if (!client.isOpen || !mayChat(client.session.family)) return;
    if (said && head) sendSnapshot(head, said, client, id);
    else sendChatError(client, id, 'Unknown turn', 'not_found');
  }

  /** Removes turns that are too old, now and when the next ones are. */
  function armExpiry(): void {
    const now = seconds(clock);
    const next = store.sweep(now);
    cancelExpiry?.();
    cancelExpiry = undefined;
    if (next === undefined || isStopping) return;
    cancelExpiry = clock.after(Math.min(Math.max((next - now) * 1000, EXPIRY.min), EXPIRY.max), armExpiry);
  }

  /** Asks the agent's history once for what came of the turns that the last process left. */
  async function recoverAll(): Promise<void> {
    for (const head of store.all()) {
      if (isStopping) return;
      if (head.unasked) await recover(head);
    }
  }

  async function recover({ unasked: _, ...head }: ChatTurnHead): Promise<void> {
    const said = await store.read(head.id);
    if (!said) return;
    const found = await askHistory(head, said).catch((error) => {
      log.warn(`the agent's history could not be asked: ${describeError(error)}`);
      return undefined;
    });
    // It may have been removed meanwhile.
    if (isStopping || !store.find(head.id)) return;
    if (found) {
      const text = found.text.slice(0, MAX_TEXT);
      const answer: Answer = { text, tools: said.tools, truncated: text.length < found.text.length };
      const done: ChatTurnHead = {
        ...head,
        state: 'done',
        ended_at: stamp(),
        seq: head.seq + 1,
        preview: previewOf(text),
        recovered: true,
        ...(answer.truncated && { truncated: true }),
      };
      const saving = store.save(done, answer, true);
      callDevices(done, said.question, text);
      await saving;
      announce(done);
    } else {
      const saving = store.save(head);
      callDevices(head, said.question, said.text);
      await saving;
    }
  }

  async function askHistory(head: ChatTurnHead, { question, text, tools }: TurnTexts) {
    const { session_id: sessionId, profile, started_at: startedAt } = head;
    if (sessionId === null) return undefined;
    // Without an event of its own, the question may never have reached the agent.
    let askedBefore = text === '' && tools.length === 0 ? startedAt + MAX_ARRIVAL : undefined;
    for (const { id, started_at: next } of store.all()) {
      const isLater = next > startedAt && next < (askedBefore ?? Number.POSITIVE_INFINITY);
      if (!isLater || store.find(id)?.session_id !== sessionId) continue;
      const later = await store.read(id);
      if (later?.question.trim() === question.trim()) askedBefore = next;
    }
    return parts.recover?.({
      sessionId,
      profile,
      question,
      startedAt,
      ...(askedBefore !== undefined && { askedBefore }),
    });
  }

  async function begin(): Promise<void> {
    armExpiry();
    await recoverAll().catch((error) => log.warn(`chat turns could not be recovered: ${describeError(error)}`));
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
        client.send('chat', 'chat.turn', row(known), id);
        runner.find(known.id)?.views.add(client, id);
        return;
      }
      const { length: own } = runner.running(family);
      if (own >= MAX_RUNNING.family || runner.running().length >= MAX_RUNNING.relay || isStopping) {
        sendChatError(client, id, 'too many running turns', 'session_limit');
        return;
      }
      const head = newHead(family, turn, clientTurnId, stamp());
      log.info(`chat: ${describeTurn(turn)}, turn ${head.id}`);
      runner.start(client, id, head, turn);
    },

    /** Sends the newest turns of the family that have changed since (epoch seconds), then each that changes. */
    follow(client: TurnClient, id: string, since = Number.NEGATIVE_INFINITY): void {
      const own = store.ofFamily(client.session.family).map((head) => runner.find(head.id)?.head ?? head);
      const turns = own.filter((head) => changedAt(head) > since).slice(-MAX_LISTED);
      client.send('chat', 'chat.turns', { turns: turns.map(row) }, id);
      followers.add(client);
    },

    /** Sends a turn as it stands, unless the client has it all, then its events while it runs. */
    async resume(client: TurnClient, id: string, turnId: string, after?: number): Promise<void> {
      const stream = runner.find(turnId);
      const known = stream?.head ?? store.find(turnId);
      if (known?.family !== client.session.family) return sendChatError(client, id, 'Unknown turn', 'not_found');
      if (stream) {
        stream.views.add(client, id);
        // While the end is being stored, the client gets the turn after that.
        if (after !== stream.head.seq) stream.views.show(client);
        else confirm(stream.head, client);
      } else if (after === known.seq) confirm(known, client);
      else await sendStored(turnId, client, id);
    },

    /** Cancels a turn of the client's family. Ignores others. */
    cancel(client: TurnClient, turnId: string): void {
      if (runner.find(turnId)?.head.family === client.session.family) runner.cancel(turnId);
    },

    /** Cancels the turn whose events answer this request on this socket (contract 09 §1). Ignores other requests. */
    cancelRequest(client: TurnClient, requestId: string): void {
      for (const { head, views } of runner.all()) if (views.idOf(client) === requestId) runner.cancel(head.id);
    },

    /** A socket is back after a sleep of the process (edge). */
    restore(client: TurnClient): void {
      if (mayChat(client.session.family)) followers.restore(client);
    },

    /** Forgets a socket; its turns go on. */
    drop(client: TurnClient): void {
      for (const { views } of runner.all()) views.drop(client);
      followers.remove(client);
    },

    /** Cancels the turns of a family that has lost its grant, and tells the socket (contract 02 §1.5). */
    revoke(client: TurnClient, text: string): void {
      for (const { head, views } of runner.all()) {
        const id = views.idOf(client);
        if (id === undefined) continue;
        views.drop(client);
        if (head.state !== 'running') continue;
        const error = 'permission_denied';
        client.send('chat', 'chat.error', { message: text, error, turn_id: head.id }, id);
        client.sendError(text, error, id, { channel: 'chat' });
      }
      followers.remove(client);
      cancelFamily(client.session.family);
    },

    /** Turns that run and whose events this socket gets. */
    viewsOf: (client: TurnClient): number =>
      runner.running().filter(({ views }) => views.idOf(client) !== undefined).length,

    /** Number of running turns. */
    running: (): number => runner.running().length,

    /** The turns of a family in a conversation, else in all, with what was said, the oldest first (contract 10 §2). */
    async conversation(family: string, sessionId?: string): Promise<(ChatTurnHead & { said: TurnTexts })[]> {
      const turns: (ChatTurnHead & { said: TurnTexts })[] = [];
      for (const { id, session_id } of store.ofFamily(family)) {
        if (sessionId !== undefined && session_id !== sessionId) continue;
        const stream = runner.find(id);
        const said = stream ? { question: stream.question, ...stream.answer } : await store.read(id);
        const head = stream?.head ?? store.find(id);
        if (said && head) turns.push({ ...head, said });
      }
      return turns;
    },

    start: begin,

    /** At the edge, once a woken object has its sockets back. */
    async restored(): Promise<void> {
      followers.restored();
      await begin();
    },

    /** Removes what is too old (edge). */
    sweep: armExpiry,

    /** Interrupts what runs, and writes it. */
    async stop(): Promise<void> {
      isStopping = true;
      cancelExpiry?.();
      await runner.stop((head) => interrupted(head, head.seq + 1));
    },
  };
}

const changedAt = ({ started_at, ended_at }: ChatTurnHead): number => ended_at ?? started_at;
