import { RelayError } from '../errors.ts';
import type { Clock } from '../kit/clock.ts';
import { isObject, type JsonObject } from '../kit/json.ts';
import { visibleLine } from '../kit/text.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Freeze, Gate } from '../operations/gate.ts';
import type { Op } from './frames.ts';
import type { Side } from './side.ts';

const KEY = 'freeze';
const THAW = 'thaw';
/** Milliseconds for the other side to end its freeze. */
const THAW_TIMEOUT = 5_000;
const MAX_TEXT = 200;

export interface SharedFreezeDeps extends Side {
  gate: Gate;
  clock: Clock;
}

/**
 * The freeze of both sides (contract 12 §2): each side reports its own to the other, and is frozen while either is. Thawing
 * here also thaws there, which needs the link.
 */
export function createSharedFreeze({ side, gate, outbox, clock, log, isOn, isLinked }: SharedFreezeDeps) {
  const isHome = side === 'home';
  const otherName = isHome ? 'the edge' : 'home';
  /** Called when the other side is no longer frozen. */
  const waiting = new Set<() => void>();

  /** Reports changes of this side's freeze to the other; with `again`, regardless of what it knows. */
  function compare(again = false): void {
    if (!isOn()) return;
    const own = gate.own() ?? null;
    const offered = outbox.body(KEY)?.freeze ?? null;
    if (!again && JSON.stringify(own) === JSON.stringify(offered)) return;
    outbox.offer(KEY, 'freeze', { freeze: own });
  }

  gate.join({
    changed: () => compare(),
    async end({ since, by }, endedBy) {
      if (!isLinked()) {
        throw new RelayError(
          'unavailable',
          `${otherName} is frozen too, and cannot be reached: end it there with svc unfreeze${isHome ? ' --relay URL' : ''}, ` +
            'and it ends here once they are linked again',
        );
      }
      let onAnswer = () => {};
      const thawed = new Promise<boolean>((resolve) => {
        onAnswer = () => resolve(true);
        waiting.add(onAnswer);
      });
      outbox.offer(THAW, 'thaw', { since, by, ended_by: endedBy });
      const isThawed = await withTimeout({ clock, timeout: THAW_TIMEOUT }, thawed, () => false);
      waiting.delete(onAnswer);
      if (!isThawed) throw new RelayError('unavailable', `${otherName} is still frozen: try again`);
    },
  });

  return {
    compare,

    /** Applies an op; undefined for one of another kind. */
    apply({ kind, body }: Op): Promise<unknown> | undefined {
      if (kind === 'freeze') {
        const freeze = readFreeze(body.freeze);
        if (freeze === null) return Promise.resolve(log.warn('the other side gave a freeze that cannot be read'));
        return gate.applyRemote(freeze).then(() => {
          if (!freeze) for (const onAnswer of [...waiting]) onAnswer();
        });
      }
      if (kind !== 'thaw') return undefined;
      const { since, by, ended_by: endedBy } = body;
      if (typeof since !== 'number' || typeof by !== 'string') return Promise.resolve();
      return gate.endedElsewhere({ since, by }, `${textOf(endedBy)} at ${otherName}`);
    },

    /** There is no other side any more. */
    leave: (): Promise<void> => gate.applyRemote(undefined),
  };
}

const textOf = (value: unknown): string => (typeof value === 'string' ? visibleLine(value).slice(0, MAX_TEXT) : '');

/** The freeze of the other side, undefined if it is not frozen; null if malformed. */
function readFreeze(value: unknown): Freeze | undefined | null {
  if (value === null) return undefined;
  if (!isObject(value)) return null;
  const { since, by, reason }: JsonObject = value;
  if (typeof since !== 'number' || !Number.isFinite(since) || typeof by !== 'string') return null;
  return { frozen: true, since, by: textOf(by), reason: typeof reason === 'string' ? textOf(reason) : null };
}
