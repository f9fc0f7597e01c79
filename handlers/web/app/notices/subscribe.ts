import { fromBase64url } from '../../../../lib/kit/bytes.ts';
import { systemClock } from '../../../../lib/kit/clock.ts';
import { withTimeout } from '../../../../lib/kit/timeouts.ts';
import type { Api } from '../../shared/api.ts';

const SUBSCRIBE_TIMEOUT = 20_000;

export interface SubscribeDeps {
  api: Api;
  pushManager: PushManager;
  /** True if notifications are to contain title and text. */
  content: boolean;
}

/** Subscribes to web push at the relay, with the subscription that this browser has, or a new one (contract 09 §6). */
export async function subscribe({ api, pushManager, content }: SubscribeDeps): Promise<void> {
  const { key } = await api.call<{ key: string }>('push/key');
  let known = await pushManager.getSubscription();
  // Made for another relay, or for this one before it lost its state.
  if (known && !isFor(known, key)) {
    await known.unsubscribe();
    known = null;
  }
  const applicationServerKey = fromBase64url(key) as Uint8Array<ArrayBuffer>;
  const options = { userVisibleOnly: true, applicationServerKey };
  const subscription = known ?? (await inTime(pushManager.subscribe(options)));
  await api.call('push/subscribe', { method: 'POST', body: { ...subscription.toJSON(), content } });
}

/** Browsers without a push service either refuse or never answer. */
const inTime = (subscribing: Promise<PushSubscription>): Promise<PushSubscription> =>
  withTimeout({ clock: systemClock, timeout: SUBSCRIBE_TIMEOUT }, subscribing, () => {
    throw new Error("This browser's push service does not answer. Try again later, or another browser.");
  });

function isFor({ options }: PushSubscription, key: string): boolean {
  const own = new Uint8Array(options.applicationServerKey ?? new ArrayBuffer(0));
  const wanted = fromBase64url(key);
  return wanted !== null && own.length === wanted.length && own.every((byte, at) => byte === wanted[at]);
}
