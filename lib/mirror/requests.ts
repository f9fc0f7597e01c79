import { RelayError } from '../errors.ts';
import type { Clock } from '../kit/clock.ts';
import { type Deferred, deferred } from '../kit/deferred.ts';
import type { JsonObject } from '../kit/json.ts';
import { withTimeout } from '../kit/timeouts.ts';
import { encodeFrame, type Frame } from './frames.ts';

/** Milliseconds to wait for an answer of the other side, unless the caller sets others. */
const TIMEOUT = 10_000;
const MAX_OPEN = 64;

export type Requests = ReturnType<typeof createRequests>;

/** Calls over the link that expect an answer (contract 12 §2). `send` returns false without a link. */
export function createRequests({ clock, send }: { clock: Clock; send(text: string): boolean }) {
  const open = new Map<string, Deferred<JsonObject>>();
  let last = 0;

  return {
    /**
     * Calls the other side, and resolves with its answer.
     * @throws RelayError `unavailable` without a link or an answer, `conflict` with the reason of a refusal.
     */
    async ask(method: string, body: JsonObject, timeout = TIMEOUT): Promise<JsonObject> {
      const unreachable = () => {
        throw new RelayError('unavailable', 'the other side of the mirror cannot be reached now: try again later');
      };
      if (open.size >= MAX_OPEN) return unreachable();
      const id = `ask-${++last}`;
      const answer = deferred<JsonObject>();
      open.set(id, answer);
      try {
        if (!send(encodeFrame({ type: 'call', id, method, body }))) return unreachable();
        return await withTimeout({ clock, timeout }, answer.promise, unreachable);
      } finally {
        open.delete(id);
      }
    },

    answered({ id, body, error }: Frame & { type: 'result' }): void {
      if (error === undefined) open.get(id)?.resolve(body ?? {});
      else open.get(id)?.reject(new RelayError('conflict', error.slice(0, 300)));
    },

    /** The link has ended: open calls get no answer. */
    unlinked(): void {
      for (const answer of open.values()) {
        answer.reject(new RelayError('unavailable', 'the link ended before the other side of the mirror answered'));
      }
    },
  };
}
