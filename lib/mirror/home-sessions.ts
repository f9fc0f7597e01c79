import { RelayError } from '../errors.ts';
import type { Clock } from '../kit/clock.ts';
import { createEvent } from '../kit/event.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { HomePeer } from './home-peer.ts';
import type { Mailbox, Mailboxes } from './mailboxes.ts';
import type { Seals } from './sealed.ts';
import { bodyOf } from './session-body.ts';
import type { Side } from './side.ts';

/** Milliseconds for which a revocation waits for the edge. */
const CONFIRM_TIMEOUT = 1_000;
/** Milliseconds that a device which requests its mailbox waits for the edge. */
const RENEW_TIMEOUT = 10_000;
const SESSION = 'session:';

export interface HomeSessionsDeps extends Pick<Side, 'outbox' | 'isLinked'> {
  sessions: Sessions;
  peer: Pick<HomePeer, 'record' | 'url'>;
  mailboxes: Mailboxes;
  seals: Pick<Seals, 'families' | 'forget'>;
  clock: Clock;
}

/** Credentials on their way to a device. `onDelivered` is called once the device has shown that they arrived. */
interface Given {
  mailbox: Mailbox;
  onDelivered(): void;
}

/**
 * Keeps the edge informed of every session of home, and of the end of each, with the credentials that its device has for the
 * edge (contract 12 §2, §3).
 */
export function createHomeSessions(deps: HomeSessionsDeps) {
  const { sessions, peer, mailboxes, seals, outbox, clock, isLinked } = deps;
  const ready = createEvent<[Session]>();
  /** Families whose session the edge has yet to get, because the backlog was full. */
  const behind = new Set<string>();

  /** Offers the changes of a family that the edge does not know yet. */
  function compare(family: string): void {
    const edge = peer.record();
    if (edge?.url === undefined) return;
    const key = SESSION + family;
    const before = outbox.body(key);
    const living = sessions.byFamily(family);
    if (living) {
      const body = bodyOf(living, mailboxes.body(edge, family));
      if (before && JSON.stringify(before) === JSON.stringify(body)) return;
      if (!outbox.offer(key, 'session', body, { isOfferedAgain: true })) return void behind.add(family);
      if (!mailboxes.isTaken(family)) void outbox.settled(key).then(() => confirmed(family));
    } else {
      mailboxes.forget(family);
      seals.forget(family);
      if (before && before.ended !== true) outbox.offer(key, 'end', { family, ended: true });
    }
  }

  /** The edge has confirmed a session, so its device may get the missing credentials. */
  function confirmed(family: string): void {
    const living = sessions.byFamily(family);
    if (living && mailboxOf(living)) ready.emit(living);
  }

  /** Credentials that the edge has confirmed and the device has not received. */
  function mailboxOf({ family }: Session): { mailbox: Mailbox; chain: number } | undefined {
    const edge = peer.record();
    const key = SESSION + family;
    if (!edge || mailboxes.isTaken(family) || outbox.isWaiting(key)) return undefined;
    const found = mailboxes.credentials(edge, family);
    return outbox.body(key)?.chain === found?.chain ? found : undefined;
  }

  function mailbox(of: Session): Given | undefined {
    const found = mailboxOf(of);
    if (found) mailboxes.give(of.family);
    return found && { mailbox: found.mailbox, onDelivered: () => mailboxes.take(of.family, found.chain) };
  }

  /** Offers everything that the edge does not know: after a start, and when the edge has another state. */
  function compareAll(): void {
    for (const { family } of sessions.list()) compare(family);
    for (const family of mailboxes.families()) if (!sessions.byFamily(family)) mailboxes.forget(family);
    for (const family of seals.families()) if (!sessions.byFamily(family)) seals.forget(family);
    for (const key of outbox.keys()) if (key.startsWith(SESSION)) compare(key.slice(SESSION.length));
  }

  sessions.onWrite(compare);

  return {
    compareAll,

    /** The edge has another state. */
    resync(): void {
      mailboxes.restart();
      compareAll();
      outbox.offer('sync', 'sync', { families: sessions.list().map(({ family }) => family) });
    },

    /** Offers the changes that were refused while the backlog was full. */
    catchUp(): void {
      for (const family of behind) {
        behind.delete(family);
        compare(family);
        if (behind.has(family)) return;
      }
    },

    /** There is no edge any more. */
    leave(): void {
      for (const family of mailboxes.families()) mailboxes.forget(family);
      behind.clear();
    },

    /** Calls back when the edge takes credentials that a device has not got yet: see `mailbox`. */
    onMailbox: ready.on,

    /** The credentials for the edge to send to a device that has yet to receive them, confirmed by the edge. */
    mailbox,

    /**
     * Credentials for a device that has none, or has lost them: those that were never sent or are brand new, else a new
     * chain, which ends the last one.
     * @throws RelayError `unsupported` without an edge, `unavailable` while the edge does not confirm them.
     */
    async renewMailbox(of: Session): Promise<Given> {
      if (peer.url() === undefined) throw new RelayError('unsupported', 'this relay has no mailbox at the edge');
      mailboxes.renew(of.family);
      compare(of.family);
      const settled = outbox.settled(SESSION + of.family).then(() => true);
      await withTimeout({ clock, timeout: RENEW_TIMEOUT }, settled, () => false);
      const given = mailbox(of);
      if (!given) throw new RelayError('unavailable', 'the mailbox at the edge cannot be reached now');
      return given;
    },

    /** Whether a change of a session is in effect at the edge, for which it waits a second; undefined without an edge. */
    async confirmed(family: string): Promise<'confirmed' | 'pending' | undefined> {
      if (peer.url() === undefined) return undefined;
      compare(family);
      const key = SESSION + family;
      if (!outbox.isWaiting(key) && !behind.has(family)) return 'confirmed';
      if (!isLinked() || behind.has(family)) return 'pending';
      const settled = outbox.settled(key).then((): 'confirmed' => 'confirmed');
      return withTimeout({ clock, timeout: CONFIRM_TIMEOUT }, settled, (): 'pending' => 'pending');
    },
  };
}
