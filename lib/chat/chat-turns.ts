import type { ChatTurnHead, Store } from '../../storage/schema.ts';
import type { Config } from '../config.ts';
import { describeError } from '../errors.ts';
import type { Upstream } from '../host/upstream.ts';
import { type Cancel, type Clock, seconds } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import { onFamilyEnd } from '../sessions/family-end.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Payload } from '../socket/envelope.ts';
import type { AskedQuestion } from './agent-history.ts';
import { describeTurn, sendChatError, sendGrantEnded, type Turn } from './chat.ts';
import { createTurnRunner, type TurnStream } from './turn-runner.ts';
import { createTurnFollowers, type TurnClient } from './turn-sockets.ts';
import { openTurnStore, type TurnTexts } from './turn-store.ts';
import { type Answer, MAX_TEXT, newHead, previewOf, rowOf, snapshotOf } from './turns.ts';
import { createAgentApi } from './upstream.ts';

/** The grant that turns need. */
const GRANT = 'chat';
const MAX_RUNNING = { family: 8, relay: 32 };
/** Turns in one `chat.turns`. */
const MAX_LISTED = 100;
/**
 * More than the events of the second that a crash can lose, so that no client takes an older `seq` for the current one.
 */
const LOST_EVENTS = 2 ** 20;
/**
 * Seconds after which a question has reached the agent or never will: its session and its request have their own
 * timeouts.
 */
const MAX_ARRIVAL = 60;
/** Minimum and maximum milliseconds between two checks for expired turns. */
const EXPIRY = { min: 60_000, max: 86_400_000 };

/** A finished turn, of which the devices of its family may have to be notified. */
export interface EndedTurn {
  turnId: string;
  family: string;
  sessionId: string | null;
  state: ChatTurnHead['state'];
  question: string;
  text: string;
}

/** Notifies devices of a finished turn that no client has received in time. */
export interface TurnCalls {
  /** A turn has ended. */
  ended(turn: EndedTurn): void;
  /** A client has received the end of the turn. */
  seen(turnId: string): void;
  /** True if a device was notified, or will be. */
  isWaiting(turnId: string): boolean;
}

export interface ChatTurnsDeps {
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
  recover?(turn: AskedQuestion): Promise<{ text: string } | undefined>;
}

/**
 * Chat turns that belong to a pairing and outlive its sockets (contract 10 §1). A turn is stored before its question
 * goes to the agent, once a second while it runs, and before its end goes to clients. Nothing here rejects, unless a turn
 * cannot be read: errors are sent to the client.
 */
export async function openChatTurns(deps: ChatTurnsDeps) {
  const { sessions, clock, log, calls } = deps;
  const store = await openTurnStore({ store: deps.store, log });
  const followers = createTurnFollowers({
    slept: deps.sleeps ? await store.followers() : new Set(),
    save: deps.sleeps ? store.saveFollowers : undefined,
  });
  let lastStamp = store.all().reduce((last, head) => Math.max(last, changedAt(head) * 1000), 0);
  let cancelExpiry: Cancel | undefined;
  let isStopping = false;

  /** Returns a unique time, epoch seconds, since `chat.follow` distinguishes changes by `since`. */
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

  // Turns that ran when the last process ended are over.
  for (const head of store.all()) {
    if (!sessions.byFamily(head.family)) store.removeFamily(head.family);
    else if (head.state === 'running') void store.save(interrupted(head, head.seq + LOST_EVENTS));
  }

  const runner = createTurnRunner({
    api: createAgentApi(deps),
    store,
    clock,
    log,
    mayRun: mayChat,
    denied: deny,
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

  onFamilyEnd(sessions, (family) => {
    cancelFamily(family);
    store.removeFamily(family);
  });
  sessions.onReduce(({ family }) => {
    if (!mayChat(family)) denyFamily(family);
  });

  /**
   * Cancels a turn whose family has lost its grant, and notifies the sockets that view it (contract 02 §1.5). Those of an
   * ended session are closed instead.
   */
  function deny({ head, views }: TurnStream): void {
    for (const [client, id] of sessions.byFamily(head.family) ? views.all() : []) {
      views.drop(client);
      sendGrantEnded(client, id, { turn_id: head.id });
    }
    runner.cancel(head.id);
  }

  function denyFamily(family: string): void {
    for (const stream of runner.running(family)) deny(stream);
  }

  function drop(client: TurnClient): void {
    for (const { views } of runner.all()) views.drop(client);
    followers.remove(client);
  }

  function cancelFamily(family: string): void {
    for (const { head } of runner.running(family)) runner.cancel(head.id);
  }

  /** A turn as shown in lists, from its stream while that is open. */
  function row(head: ChatTurnHead): Payload {
    const stream = runner.find(head.id);
    return rowOf(stream ? { ...stream.head, preview: previewOf(stream.answer.text) } : head);
  }

  function announce(head: ChatTurnHead): void {
    followers.announce(head.family, row(head));
  }

  /**
   * Notifies devices of an answer that no client receives. A cancelled turn needs no notice, because its owner
   * cancelled it.
   */
  function callDevices(head: ChatTurnHead, question: string, text: string): void {
    const { id: turnId, family, session_id: sessionId, state } = head;
    if (state !== 'cancelled') calls?.ended({ turnId, family, sessionId, state, question, text });
  }

  /** Cancels the notice of a finished turn once a client has it, which its answer to a ping proves. */
  function confirm({ id }: ChatTurnHead, client: TurnClient): void {
    if (calls?.isWaiting(id)) client.probe(() => calls.seen(id));
  }

  function sendSnapshot(head: ChatTurnHead, said: TurnTexts, client: TurnClient, id: string): void {
    client.send('chat', 'chat.snapshot', snapshotOf(head, said), id);
    confirm(head, client);
  }

  /** Sends a finished turn from the store. */
  async function sendStored(turnId: string, client: TurnClient, id: string): Promise<void> {
    const said = await store.read(turnId);
    const head = store.find(turnId);
    if (!client.isOpen || !mayChat(client.session.family)) return;
    if (said && head) sendSnapshot(head, said, client, id);
    else sendChatError(client, id, 'Unknown turn', 'not_found');
  }

  /** Removes expired turns now, and schedules the next removal. */
  function armExpiry(): void {
    const now = seconds(clock);
    const next = store.sweep(now);
    cancelExpiry?.();
    cancelExpiry = undefined;
    if (next === undefined || isStopping) return;
    cancelExpiry = clock.after(Math.min(Math.max((next - now) * 1000, EXPIRY.min), EXPIRY.max), armExpiry);
  }

  /** Asks the agent's history once for the answers to turns that the last process left behind. */
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
    // The turn may have been removed during the await.
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
    // Without an event, the question may never have reached the agent.
    let askedBefore = text === '' && tools.length === 0 ? startedAt + MAX_ARRIVAL : undefined;
    for (const { id, started_at: next } of store.all()) {
      const isLater = next > startedAt && next < (askedBefore ?? Number.POSITIVE_INFINITY);
      if (!isLater || store.find(id)?.session_id !== sessionId) continue;
      const later = await store.read(id);
      if (later?.question.trim() === question.trim()) askedBefore = next;
    }
    return deps.recover?.({
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
     * Starts a turn, or answers with the existing one of that client turn id. Sends `chat.session` if it creates a
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

    /** Sends the newest turns of the family that have changed since `since` (epoch seconds), then every change. */
    follow(client: TurnClient, id: string, since = Number.NEGATIVE_INFINITY): void {
      const own = store.ofFamily(client.session.family).map((head) => runner.find(head.id)?.head ?? head);
      const turns = own.filter((head) => changedAt(head) > since).slice(-MAX_LISTED);
      client.send('chat', 'chat.turns', { turns: turns.map(row) }, id);
      followers.add(client);
    },

    /** Sends the present state of a turn, unless the client has all of it, then its events while it runs. */
    async resume(client: TurnClient, id: string, turnId: string, after?: number): Promise<void> {
      const stream = runner.find(turnId);
      const known = stream?.head ?? store.find(turnId);
      if (known?.family !== client.session.family) return sendChatError(client, id, 'Unknown turn', 'not_found');
      if (stream) {
        stream.views.add(client, id);
        // While the end is being stored, the client gets the turn afterwards.
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

    /** A socket is restored after a sleep of the process (edge). */
    restore(client: TurnClient): void {
      if (mayChat(client.session.family)) followers.restore(client);
    },

    /** Forgets a socket; its turns go on. */
    drop,

    /** The socket's family has lost its grant. */
    revoke(client: TurnClient): void {
      denyFamily(client.session.family);
      drop(client);
    },

    /** Number of running turns whose events this socket gets. */
    viewsOf: (client: TurnClient): number =>
      runner.running().filter(({ views }) => views.idOf(client) !== undefined).length,

    /** Number of running turns. */
    running: (): number => runner.running().length,

    /** The turns of a family in one conversation or in all, with their texts, oldest first (contract 10 §2). */
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

    /** At the edge, once a woken object has restored its sockets. */
    async restored(): Promise<void> {
      followers.restored();
      await begin();
    },

    /** Removes expired turns (edge). */
    sweep: armExpiry,

    /** Interrupts running turns and stores them. */
    async stop(): Promise<void> {
      isStopping = true;
      cancelExpiry?.();
      await runner.stop((head) => interrupted(head, head.seq + 1));
    },
  };
}

const changedAt = ({ started_at, ended_at }: ChatTurnHead): number => ended_at ?? started_at;
