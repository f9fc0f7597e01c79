import type { Store } from '../../storage/schema.ts';
import { RelayError } from '../errors.ts';
import type { Clock } from '../kit/clock.ts';
import { createEvent, type HangUp } from '../kit/event.ts';
import type { Log } from '../log.ts';
import { type Actor, type ActorRecord, describeActor, recordOf } from '../operations/actor.ts';
import type { Gate, Lease } from '../operations/gate.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { encodeEnvelope, type Payload } from '../socket/envelope.ts';
import { openActivity } from './activity.ts';
import { createCommands, type Outcome, OWNER_TIMEOUT } from './commands.ts';
import type { Link } from './link.ts';
import { truncated } from './recorder.ts';

const MAX_ERROR = 500;
/** Actors whose refusals during one freeze are remembered, so that each is logged once. */
const MAX_REFUSED = 64;

/** The members that bridge and desktop record for every command (contract 03 §6, 07 §2.3, 09 §9). */
export interface CommandRecord<Decision extends string = string> {
  request_id: string;
  /** Epoch milliseconds. */
  sent_at: number;
  response_status: number | null;
  result_summary: string | null;
  error: string | null;
  decision: Decision | 'pending' | 'timeout' | 'error' | 'frozen';
  /** Absent in records of older versions. */
  actor?: ActorRecord;
}

/**
 * The record of a command that begins at `now` (epoch milliseconds), with the room's own members. Uses `Object.assign`,
 * because Node 20 creates a hidden class for every object that gets a member after a spread: 1 KB of garbage that only a
 * major collection frees (2026-11).
 */
export const newRecord = <Own extends object>(now: number, own: Own) => {
  const record = {
    request_id: crypto.randomUUID(),
    sent_at: now,
    response_status: null,
    result_summary: null,
    error: null,
    decision: 'pending' as const,
  } satisfies CommandRecord;
  return Object.assign(record, own);
};

/**
 * The rules that differ between bridge and desktop. `Target` is the data besides the record that determines an outcome.
 */
export interface Rules<R extends CommandRecord, Target, Response, Reply> {
  channel: 'bridge' | 'desktop';
  /** The error for one command too many on a socket. */
  full(): RelayError;
  /** Writes a response into the record, with its full error; returns the caller's reply. */
  answered(record: R, response: Response, target: Target): Reply | RelayError;
  timeout(record: R, target: Target, isOwnerAsked: boolean): RelayError;
  /** The error sentence for a command that could not be sent. */
  unsent(cause: string): string;
  /** The error for a command that can get no answer any more. */
  lost(error: string): RelayError;
  /** The log line for a command and its outcome. */
  describe(record: R): string;
  /** A further log line at debug level. */
  details?(record: R): string;
  /** True if the command only reads, so that it is logged at debug level. */
  isRead(record: R): boolean;
}

export interface DispatcherDeps {
  activity: Store<'bridge-activity'> | Store<'desktop-activity'>;
  gate: Gate;
  clock: Clock;
  log: Log;
}

/** The common parts of bridge and desktop tools. */
export interface RoomDeps extends DispatcherDeps {
  sessions: Sessions;
}

export interface Dispatch<R, Target> {
  /** The dispatcher fills in its actor. */
  record: R;
  actor: Actor;
  target: Target;
  /** The socket to send it to. */
  link: Link;
  frame: string;
  /** Milliseconds to wait for the response. */
  timeout: number;
  /** Aborts when the caller disconnects. */
  signal?: HangUp;
  ignoresFreeze?: boolean;
}

/**
 * Sends commands to devices and records them, for both bridge and desktop tools (contract 03 §1.4, 07 §2.3). A freeze
 * ends commands in flight, notifies the device, and refuses new commands (contract 09 §3).
 */
export async function openDispatcher<R extends CommandRecord, Target, Response, Reply>(
  { activity: store, gate, clock, log }: DispatcherDeps,
  rules: Rules<R, Target, Response, Reply>,
) {
  const { channel } = rules;
  const changes = createEvent<[record: R]>();
  const commands = createCommands<Link, Response>(clock, rules.full);
  const activity = await openActivity<R>({ store, clock, log, name: `the ${channel} activity` });
  /** Commands whose device has said that it asks its owner. */
  const asked = new WeakSet<R>();
  /** Actors refused since the freeze began. */
  const refused = new Set<string>();
  gate.onChange(() => refused.clear());

  /** Writes the outcome of a command into the record; returns the caller's reply or rejection. */
  function conclude(record: R, outcome: Outcome<Response>, target: Target): Reply | RelayError {
    const failed = (error: string) => {
      record.decision = 'error';
      record.error = truncated(error, MAX_ERROR);
      return rules.lost(error);
    };
    switch (outcome.kind) {
      case 'answered': {
        const reply = rules.answered(record, outcome.response, target);
        if (record.error !== null) record.error = truncated(record.error, MAX_ERROR);
        return reply;
      }
      case 'timeout':
        record.decision = 'timeout';
        return rules.timeout(record, target, asked.has(record));
      case 'frozen':
        record.decision = 'frozen';
        record.error = truncated(outcome.why.message, MAX_ERROR);
        return outcome.why;
      case 'unsent':
        return failed(rules.unsent(outcome.error));
      case 'failed':
        return failed(outcome.error);
      case 'abandoned':
        return failed('caller disconnected');
    }
  }

  /** Reports a finished command to everybody who follows the activity. */
  function ended(record: R, isQuiet = rules.isRead(record)): void {
    changes.emit(record);
    const { actor, sent_at: sentAt } = record;
    const who = actor ? ` for ${describeActor(actor)}` : '';
    const line = `${rules.describe(record)} in ${clock.now() - sentAt} ms${who}`;
    if (isQuiet) log.debug(line);
    else log.info(line);
    if (rules.details) log.debug(rules.details(record));
  }

  /**
   * True if an actor was already refused during this freeze: an agent that retries must not push other lines out of the
   * log.
   */
  function isRepeated(actor: ActorRecord): boolean {
    const who = describeActor(actor);
    if (refused.has(who) || refused.size >= MAX_REFUSED) return true;
    refused.add(who);
    return false;
  }

  /** Ends a command because of a freeze. A device that does not know the message ignores it. */
  function cancel(id: string, link: Link, why: RelayError): void {
    if (!commands.freeze(id, why) || !link.isOpen) return;
    link.sendFrame(
      encodeEnvelope(channel, `${channel}.cancel`, { request_id: id, reason: 'frozen' }, crypto.randomUUID()),
    );
  }

  return {
    onChange: changes.on,
    pendingCount: commands.count,
    /** Number of commands in flight on one socket. */
    countOf: commands.countOf,
    /** @throws the error of `full` when too many commands are in flight on this socket. */
    requireRoom: commands.requireRoom,
    failAllOf: commands.failAllOf,
    /** At most `limit` records, newest first. */
    list: activity.list,

    /**
     * Refuses a command while the relay is frozen, and adds `record` to the activity.
     * @throws RelayError `locked`
     */
    requireThawed(actor: Actor, record: () => R): void {
      try {
        gate.requireThawed();
      } catch (error) {
        const own = record();
        own.actor = recordOf(actor);
        conclude(own, { kind: 'frozen', why: error as RelayError }, undefined as Target);
        activity.add(own, { socket: '', timeout: 0 });
        ended(own, isRepeated(own.actor));
        throw error;
      }
    },

    /**
     * Sends a command; resolves with the reply for its caller.
     * @throws RelayError of the room's rules.
     */
    send({ record, actor, target, link, frame, timeout, signal, ignoresFreeze }: Dispatch<R, Target>): Promise<Reply> {
      const { request_id: id } = record;
      record.actor = recordOf(actor);
      // Captures live as long as the command, so they must not include the frame, which may be many MiB.
      let settled!: (outcome: Outcome<Response>) => void;
      const reply = new Promise<Reply>((resolve, reject) => {
        settled = (outcome) => {
          lease?.end();
          const reply = conclude(record, outcome, target);
          save();
          ended(record);
          if (reply instanceof RelayError) reject(reply);
          else resolve(reply);
        };
      });
      const lease = ignoresFreeze ? undefined : gate.enter((why) => cancel(id, link, why));
      const { save, extend } = activity.add(record, { socket: link.id, timeout });
      changes.emit(record);
      const ownerAsked = () => {
        asked.add(record);
        return extend(OWNER_TIMEOUT);
      };
      commands.open({ id, owner: link, frame, timeout, signal, ownerAsked, settled });
      return reply;
    },

    /**
     * Handles a response. Returns false unless it comes from the command's own socket and the command is still pending.
     */
    answered(link: Link, { request_id: id }: Payload, read: () => Response): boolean {
      return typeof id === 'string' && commands.answer(id, link, read);
    },

    /**
     * `command.waiting` `{request_id, for:"owner"}`: the device asks its owner before it acts, so the command gets 150
     * s from its start. Confirmed with `timeout_ms`, from which the device knows that the relay waits.
     */
    waiting(link: Link, { request_id: id, for: whom }: Payload): void {
      if (typeof id !== 'string' || whom !== 'owner' || !commands.wait(id, link)) return;
      const confirmed = { request_id: id, for: whom, timeout_ms: OWNER_TIMEOUT };
      link.sendFrame(encodeEnvelope(channel, 'command.waiting', confirmed, crypto.randomUUID()));
    },

    /**
     * Resumes the commands in flight on a socket that survived a sleep (edge). Commands that a freeze ended right
     * before it, too late to be stored, end now.
     */
    restore(link: Link, targetOf: (record: R) => Target): void {
      for (const { record, timeLeft, save, extend } of activity.takeInterrupted(link.id)) {
        const { request_id: id } = record;
        let lease: Lease | undefined;
        commands.open({
          id,
          owner: link,
          frame: undefined,
          timeout: timeLeft,
          ownerAsked() {
            asked.add(record);
            return extend(OWNER_TIMEOUT);
          },
          settled(outcome) {
            lease?.end();
            conclude(record, outcome, targetOf(record));
            save();
            ended(record);
          },
        });
        try {
          lease = gate.enter((why) => cancel(id, link, why));
        } catch (error) {
          cancel(id, link, error as RelayError);
        }
      }
    },

    /** Every socket that survived the sleep is restored. Commands to other sockets get no answer any more. */
    restored(error: (record: R) => string, targetOf: (record: R) => Target): void {
      for (const { record, save } of activity.takeInterrupted()) {
        conclude(record, { kind: 'failed', error: error(record) }, targetOf(record));
        save();
      }
    },

    /** Fails pending commands. */
    stop: () => commands.failAll('Relay is shutting down'),
  };
}
