import { RelayError } from '../../errors.ts';
import type { CallRelay } from '../../host/dial.ts';
import { utf8ToBytes } from '../../kit/bytes.ts';
import { type Cancel, type Clock, seconds } from '../../kit/clock.ts';
import { parseObject } from '../../kit/json.ts';
import { decodeUtf8 } from '../../kit/text.ts';
import { type FreezeState, readFreeze } from '../../operations/freeze-state.ts';
import { callRoute, refuseKey } from './endpoints.ts';
import type { LinkChannel } from './link.ts';
import { routeTo } from './reach.ts';
import type { PairingStore } from './settings.ts';

const MAX_ANSWER_BYTES = 64 * 1024;
/** Milliseconds after `auth.ok` in which a frozen relay reports that it is still frozen. */
const GREETING = 1_000;

export interface FreezeDeps {
  callRelay: CallRelay;
  store: PairingStore;
  clock: Clock;
  /** A freeze has begun or ended, or another one is in effect. */
  onChange(freeze: FreezeState | null): void;
}

export type FreezeSwitch = ReturnType<typeof createFreezeSwitch>;

/** The relay's freeze: its state as reported by `system/frozen`, and calls that begin and end it (contract 09 §3). */
export function createFreezeSwitch({ callRelay, store, clock, onChange }: FreezeDeps) {
  let freeze: FreezeState | null = null;
  let cancelEnd: Cancel = () => {};

  function set(next: FreezeState | null): void {
    const isNews = next?.since !== freeze?.since || next?.by !== freeze?.by;
    freeze = next;
    if (isNews) onChange(freeze);
  }

  /** @throws RelayError with the relay's reason if it refuses. */
  async function call(method: 'POST' | 'DELETE'): Promise<void> {
    const pairing = store.pairing();
    const target = callRoute(pairing);
    if (!pairing || !target) throw new RelayError('unavailable', 'this phone is not paired');
    const { endpoint, bearer } = target;
    const { status, bytes } = await callRelay({
      method,
      path: '/relay/freeze',
      headers: { authorization: bearer, 'content-type': 'application/json' },
      body: method === 'POST' ? utf8ToBytes('{}') : undefined,
      limit: MAX_ANSWER_BYTES,
      socketUrl: endpoint.url,
      route: routeTo(endpoint, pairing, seconds(clock)),
      refuse: (spki) => refuseKey(pairing.tofu_pins, endpoint, spki),
    });
    const answer = parseObject(decodeUtf8(bytes));
    if (status !== 200) {
      const reason = typeof answer?.error === 'string' ? answer.error : `the relay answered ${status}`;
      throw new RelayError('bad-gateway', reason);
    }
    set(readFreeze(answer));
  }

  const channel: LinkChannel = {
    online() {
      cancelEnd();
      cancelEnd = clock.after(GREETING, () => set(null));
      return cancelEnd;
    },
    message({ type, payload }) {
      if (type !== 'frozen') return;
      cancelEnd();
      set(readFreeze(payload));
    },
  };

  return {
    channel,
    /** The freeze in effect, as last reported; null if the relay is not frozen. */
    state: (): FreezeState | null => freeze,
    freeze: () => call('POST'),
    /** Needs the `bridge` grant. */
    end: () => call('DELETE'),
  };
}
