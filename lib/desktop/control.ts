import type { DesktopControlRecord } from '../../storage/schema.ts';
import type { Link } from '../dispatch/link.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import type { Payload } from '../socket/envelope.ts';
import type { Device } from './registry.ts';

/** A control session's idle time in milliseconds, and the greatest number of sessions (contract 07 §2.4). */
const IDLE = 900_000;
const MAX_SESSIONS = 256;

/** The agent run that calls a tool. */
export interface Requester {
  /** Family of the paired session that calls. */
  family: string;
  /** Its device, as shown to the target. */
  deviceId: string;
  chatSession?: string;
  runId: string;
  profile?: string;
}

interface ControlSession extends DesktopControlRecord {
  readonly key: string;
  readonly link: Link;
  cancelIdle: Cancel;
}

export interface ControlDeps {
  clock: Clock;
  /** Tells a desktop that a session is over: payload of `desktop.control_session_end`. */
  ended(link: Link, payload: Payload): void;
  /** The sessions of a target have changed. */
  changed(link: Link): void;
}

export type ControlSessions = ReturnType<typeof createControlSessions>;

/** By family: a device id is not secret, and another session that claims it must not inherit its approvals. */
const keyOf = ({ family, chatSession, profile }: Requester, link: Link): string =>
  JSON.stringify([family, chatSession, profile, link.id]);

/**
 * Binds a desktop to one run of an agent, so that an owner's approval of one run does not extend to the next (contract
 * 07 §2.4). One session per requester (session family), chat, profile and target; another run replaces it.
 */
export function createControlSessions({ clock, ended, changed }: ControlDeps) {
  const sessions = new Map<string, ControlSession>();

  function forget(session: ControlSession): void {
    session.cancelIdle();
    sessions.delete(session.key);
  }

  function end(session: ControlSession, reason: string): void {
    forget(session);
    const { id, targetId, link } = session;
    ended(link, { version: 1, id, target_device_id: targetId, reason });
    changed(link);
  }

  function add(link: Link, record: DesktopControlRecord): ControlSession {
    const session: ControlSession = { ...record, key: keyOf(record, link), link, cancelIdle: () => {} };
    sessions.set(session.key, session);
    arm(session);
    return session;
  }

  function arm(session: ControlSession): void {
    session.cancelIdle();
    const left = Math.max(0, session.usedAt + IDLE - clock.now());
    session.cancelIdle = clock.after(left, () => end(session, 'control session idle timeout'));
  }

  function endLeastRecentlyUsed(): void {
    const [first, ...rest] = sessions.values();
    if (!first || sessions.size < MAX_SESSIONS) return;
    end(
      rest.reduce((oldest, other) => (other.usedAt < oldest.usedAt ? other : oldest), first),
      'control session capacity eviction',
    );
  }

  return {
    /** Returns the `control_session` to send with a command. Begins one if needed. */
    use({ link, id: targetId }: Device, requester: Requester, requestId: string): Payload {
      let session = sessions.get(keyOf(requester, link));
      if (session && session.runId !== requester.runId) {
        end(session, 'requester run changed');
        session = undefined;
      }
      if (session) {
        // Moved to the end, so that the first of several sessions used in the same millisecond is the oldest.
        sessions.delete(session.key);
        sessions.set(session.key, session);
        session.usedAt = clock.now();
        arm(session);
      } else {
        endLeastRecentlyUsed();
        session = add(link, { ...requester, id: `control-${crypto.randomUUID()}`, targetId, usedAt: clock.now() });
      }
      changed(link);
      return {
        version: 1,
        id: session.id,
        request_id: requestId,
        requester_device_id: session.deviceId,
        target_device_id: targetId,
        chat_session_id: session.chatSession,
        run_id: session.runId,
        profile: session.profile,
      };
    },

    /** Ends the sessions that `isOver` accepts. */
    endWhere(isOver: (session: Pick<ControlSession, 'family' | 'link'>) => boolean, reason: string): void {
      for (const session of [...sessions.values()]) if (isOver(session)) end(session, reason);
    },

    /** The target is gone: removes its sessions without notifying it. */
    drop(link: Link): void {
      for (const session of [...sessions.values()]) if (session.link === link) forget(session);
    },

    /** A target's sessions in stored form. */
    records: (link: Link): DesktopControlRecord[] =>
      [...sessions.values()]
        .filter((session) => session.link === link)
        .map(({ key: _key, link: _link, cancelIdle: _cancel, ...record }) => record),

    /** Restores a target's sessions as they were before the process slept. */
    restore(link: Link, records: readonly DesktopControlRecord[]): void {
      for (const record of records) add(link, record);
    },

    stop(): void {
      for (const session of [...sessions.values()]) forget(session);
    },
  };
}
