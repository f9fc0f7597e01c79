import { computed, type ReadonlySignal, signal } from '@preact/signals';
import type { Endpoint } from '../../../lib/companion/link/endpoints.ts';
import {
  createLink,
  type Link,
  type LinkChannel,
  type LinkDeps,
  type SendOnChannel,
} from '../../../lib/companion/link/link.ts';
import type { PairingOffer } from '../../../lib/companion/link/pairing-url.ts';
import type { SealedItem, Sealing } from '../../../lib/companion/link/sealing.ts';
import type { Pairing } from '../../../lib/companion/link/settings.ts';
import { isAboutClock, type LinkState } from '../../../lib/companion/link/state.ts';
import { type Cancel, every, systemClock } from '../../../lib/kit/clock.ts';
import { type FreezeState, readFreeze } from '../../../lib/operations/freeze-state.ts';
import { isGranted } from '../../../lib/sessions/grants.ts';
import { ALIVE, type Message, type Payload } from '../../../lib/socket/envelope.ts';
import { createBrowserDial } from './dial.ts';
import { storeFirstSocket } from './first-socket.ts';
import { isTouch } from './keyboard.ts';
import type { LinkCode } from './launch.ts';
import { noLog } from './no-log.ts';
import type { BrowserPairingStore } from './pairing-store.ts';
import { type ProfileRow, readProfiles } from './profiles/rows.ts';
import { createProver, type ProofTarget, type Prover } from './proof.ts';
import { httpBase } from './stored-pairing.ts';
import { until } from './until.ts';

/** Channels of the socket that a screen may use (contract 02). */
const CHANNELS = ['chat', 'terminal', 'tui', 'proactive', 'notifications', 'pairing', 'system'] as const;
export type ChannelName = (typeof CHANNELS)[number];
/** Channels that the mailbox refuses (contract 12 §2). */
const HOME_ONLY: ReadonlySet<ChannelName> = new Set(['chat', 'terminal', 'tui']);

/** Milliseconds between the echoes that prove the connection, and after which a due one counts as lost. */
const ECHO_EVERY = 15_000;
const ECHO_TIMEOUT = 10_000;
/** The same right after the page was shown again, since phones silently cut sockets of hidden pages. */
const FIRST_ECHO_TIMEOUT = 4_000;
/** Milliseconds without a proof after which a connection never counts as good (contract 09 §2). */
export const PROOF_LIFE = 45_000;
/**
 * Milliseconds for an echo after the browser has reported that it is offline, which may not concern a relay on this machine.
 */
const DOUBT_TIMEOUT = 1_000;
/** Maximum silence of a live connection. After a longer one, the connection counts as lost since its beginning. */
const MAX_SILENCE = 10_000;
/** A tap or a key does not cut a wait shorter than this. */
const SHORT_WAIT = 1_000;
/** Milliseconds for new credentials after a 401. */
const RENEW_TIMEOUT = 10_000;

/** The last echo of the relay. */
export interface Proof {
  /** Epoch ms. */
  at: number;
  /** Round trip, ms. */
  roundTrip: number;
}

/** One channel of the socket. Outlives connections. */
export interface Port {
  /** Returns false, and sends nothing, without a connection. */
  send: (type: string, payload: Payload, id?: string) => boolean;
  onMessage(listener: (message: Message) => void): Cancel;
  /**
   * Called after every `auth.ok`, and at once while connected. The returned function is called when the connection
   * ends.
   */
  onOnline(listener: () => Cancel | void): Cancel;
}

/** Outcome of an attempt to pair. */
export type PairResult =
  | { kind: 'paired' }
  /** The relay does not accept the code. */
  | { kind: 'refused'; reason: string }
  /** Too many failed attempts from here. */
  | { kind: 'limited'; seconds: number }
  /** Too many wrong codes came from anywhere, so a code without its secret is refused. */
  | { kind: 'restricted'; seconds: number }
  | { kind: 'unreachable'; reason: string };

export interface SessionDeps {
  store: BrowserPairingStore;
  /** Address of the relay, with a trailing slash. */
  base: string;
  /** Description of this browser, requested for every connection. */
  deviceName(): string;
}

export type Session = ReturnType<typeof createSession>;

/** The connection of this browser to its relay: maintained, proved by echoes, and established again when it breaks. */
export function createSession({ store, base, deviceName }: SessionDeps) {
  const state = signal<LinkState>({ name: 'unpaired' });
  const proof = signal<Proof | null>(null);
  /** Time since when there is no connection, epoch ms; null before the first one, and while there is one. */
  const lostAt = signal<number | null>(null);
  /** True after a failed attempt or a lost connection, until the next connection. */
  const isAway = signal(false);
  /** True after a temporary refusal because the clock of the relay's machine may be wrong. */
  const isClockWrong = signal(false);
  /** Time of the next attempt, epoch ms; meaningful only in the state `waiting`. */
  const retryAt = signal(0);
  /** True if the browser has reported that it is offline, and the relay has not been heard since. */
  const isDoubted = signal(false);
  let receivedAt = 0;
  /** The last message of the relay for people, such as an expired grant. */
  const notice = signal('');
  /** The relay's freeze, as last reported. */
  const freeze = signal<FreezeState | null>(null);
  const profiles = signal<readonly ProfileRow[]>([]);
  const ports = new Map(CHANNELS.map((name) => [name, createPort()]));
  const endpoint: Endpoint = { role: 'web', url: socketUrl(base), priority: 0 };
  const device = { platform: 'web', surface: 'web', formFactor: formFactor(), typedStream: true };
  const prover = createProver(base);
  /** The other side of a mirror, created with the first connection there. */
  let other: { base: string; prover: Prover } | undefined;
  /** The target of calls, with a trailing slash: home, or the mailbox while the link is there (contract 12 §3). */
  const target = computed(() => (state.value.name === 'online' ? httpBase(state.value.endpoint.url) : base));
  const isAtMailbox = computed(() => state.value.name === 'online' && !!state.value.endpoint.mailbox);
  /** Sealing of the newest link; undefined over plain http, where a page has no Web Crypto. */
  let sealing: Sealing | undefined;
  let link = makeLink();
  let limitedFor = 0;

  /**
   * A session that a backup also contains stays unbound, since its other browser has no key. So does one that was signed
   * out.
   */
  async function prove(
    credential: string,
    { isPairing, isMailbox, nonce }: Parameters<NonNullable<LinkDeps['prove']>>[1],
  ): Promise<string | undefined> {
    const pairing = store.current.value;
    if (!isPairing && (!pairing || pairing.shared)) return undefined;
    const isBinding = isPairing || !pairing?.bound;
    // Home binds the session, and its mailbox follows.
    if (isMailbox && isBinding) return undefined;
    const key = isBinding ? await store.keyToBind() : await store.key();
    return key ? prover.proveSocket(credential, key, nonce) : undefined;
  }

  /** Makes proofs with the nonces of the relay that is the present target. */
  function proverOfTarget(): Prover {
    const at = target.peek();
    if (at === base) return prover;
    if (other?.base !== at) other = { base: at, prover: createProver(at) };
    return other.prover;
  }

  /** Never sends the token of one side to the other. */
  const token = (): string | null => {
    const pairing = store.current.value;
    const mailbox = pairing?.mailbox;
    return (mailbox && httpBase(mailbox.url) === target.peek() ? mailbox : pairing)?.session_token ?? null;
  };

  function makeLink(offer?: PairingOffer): Link {
    const made: Link = createLink({
      dial: createBrowserDial((seconds) => {
        limitedFor = seconds;
      }),
      store,
      clock: systemClock,
      log: noLog,
      device: { ...device, name: deviceName() },
      offer,
      prove,
      sealing: isSecureContext ? loadSealing : undefined,
      withRoutes: async (...[pairing, given]) => (await import('./page-addresses.ts')).withRoutes(base, pairing, given),
      withMailbox: async (...given) => (await import('./page-addresses.ts')).withMailbox(...given),
      takeHome: async (...given) => (await import('./page-addresses.ts')).takeHome(...given),
      callRelay: async ({ path, signal, socketUrl }) => {
        const init = { signal, cache: 'no-store', credentials: 'omit' } as const;
        const response = await fetch(httpBase(socketUrl) + path.slice(1), init);
        return { status: response.status, headers: {}, bytes: new Uint8Array(await response.arrayBuffer()) };
      },
      channels: Object.fromEntries(
        [...ports].map(([name, { channel }]) => [name, HOME_ONLY.has(name) ? atHome(channel) : channel]),
      ),
      // A link that is being stopped is ignored.
      onState: (next) => link === made && report(next),
      onNotice(text, code = '') {
        // The page itself shows these.
        if (!code.startsWith('home_')) notice.value = text;
      },
      isAttended: () => document.visibilityState === 'visible',
    });
    return made;
  }

  async function loadSealing(): Promise<Sealing> {
    sealing = (await import('./sealing.ts')).openSealing(base, { store, log: noLog });
    return sealing;
  }

  /** At the mailbox, a channel of home behaves as without a connection. */
  function atHome(channel: LinkChannel): LinkChannel {
    return { ...channel, online: (send) => (isAtMailbox.peek() ? () => {} : channel.online(send)) };
  }

  function report(next: LinkState): void {
    const before = state.peek().name;
    if (next.name === 'online') {
      receivedAt = Date.now();
      lostAt.value = null;
      isDoubted.value = false;
    } else if (before === 'online') lost();
    if (next.name === 'waiting') {
      retryAt.value = Date.now() + next.wait;
      isAway.value = true;
      isClockWrong.value = isAboutClock(next.reason);
    } else if (next.name !== 'connecting' && next.name !== 'authenticating') {
      isAway.value = false;
      isClockWrong.value = false;
    }
    state.value = next;
    if (next.name === 'online') profiles.value = readProfiles(next.relay.profiles);
    if (next.name === 'unpaired') {
      profiles.value = [];
      freeze.value = null;
    }
    // Another tab has renewed the credentials that the relay has refused here.
    if (next.name === 'unpaired' && store.current.value) queueMicrotask(() => link.start());
  }

  function lost(): void {
    const now = Date.now();
    lostAt.value = now - receivedAt > MAX_SILENCE || isDoubted.peek() ? receivedAt : now;
    isDoubted.value = false;
    isAway.value = true;
  }

  /** Starts with a new link, and drops the old connection in any state. */
  function reconnect(): void {
    replaceLink();
    if (state.peek().name === 'online') lost();
    link.start();
  }

  function replaceLink(offer?: PairingOffer): void {
    const old = link;
    link = makeLink(offer);
    void old.stop();
  }

  const system = ports.get('system') as Port;
  ports.get('pairing')?.onMessage(({ type, payload }) => {
    if (type === 'profiles.updated') profiles.value = readProfiles(payload.profiles);
  });
  // During a freeze, the relay reports it after every `auth.ok`.
  system.onOnline(() => {
    freeze.value = null;
  });
  system.onMessage(({ type, payload }) => {
    if (type === 'frozen') freeze.value = readFreeze(payload);
  });
  for (const port of ports.values()) {
    port.onMessage(() => {
      receivedAt = Date.now();
      isDoubted.value = false;
    });
  }
  const wake = watchEchoes(system, proof, reconnect);

  function resume(): void {
    if (state.value.name === 'waiting') link.start();
    else if (state.value.name === 'online') wake();
  }
  /** The browser may notice a lost network before any echo is missed. */
  function doubt(): void {
    if (state.value.name !== 'online') return;
    isDoubted.value = true;
    wake(DOUBT_TIMEOUT);
  }
  /** A person is waiting: any key or tap cuts a wait short, unless the relay has requested it. */
  function retryNow(): void {
    const now = state.value;
    if (now.name === 'waiting' && !now.rateLimited && retryAt.value - Date.now() > SHORT_WAIT) link.start();
  }
  const found = store.current.peek();
  store.current.subscribe((pairing) => {
    storeFirstSocket(base, pairing);
    // Another tab has paired this browser. A pairing found at the start waits for `start`.
    if (pairing && pairing !== found && state.peek().name === 'unpaired') queueMicrotask(() => link.start());
  });
  addEventListener('online', resume);
  addEventListener('offline', doubt);
  addEventListener('pointerdown', retryNow);
  addEventListener('keydown', retryNow);
  document.addEventListener('visibilitychange', () => {
    if (document.visibilityState === 'visible') resume();
  });

  /** Resolves when the link has settled, online or not. */
  const settled = (): Promise<LinkState> =>
    until(state, ({ name }) => ['online', 'waiting', 'unpaired', 'stopped'].includes(name));

  return {
    state: state as ReadonlySignal<LinkState>,
    proof: proof as ReadonlySignal<Proof | null>,
    notice: notice as ReadonlySignal<string>,
    freeze: freeze as ReadonlySignal<FreezeState | null>,
    dismissNotice(): void {
      notice.value = '';
    },
    pairing: store.current,
    /** This relay. */
    endpoint,
    /** Identifies this browser for as long as it keeps its data. */
    get deviceId(): string {
      return store.deviceId;
    },
    /** True if this session has a grant at `now`, epoch ms. */
    may: (grant: string, now = Date.now()): boolean => isGranted(store.current.value?.grants ?? {}, grant, now / 1000),
    /** The relay's version at the last connection. */
    relayVersion: computed(() => store.current.value?.server_version),
    /** The agent's profiles, as last listed by the relay (contract 07 §1.2). */
    profiles: profiles as ReadonlySignal<readonly ProfileRow[]>,
    isOnline: computed(() => state.value.name === 'online' && !isDoubted.value),
    isAway: isAway as ReadonlySignal<boolean>,
    isClockWrong: isClockWrong as ReadonlySignal<boolean>,
    lostAt: lostAt as ReadonlySignal<number | null>,
    retryAt: retryAt as ReadonlySignal<number>,
    /** After a request without an answer: sends an echo at once. */
    suspect(): void {
      if (state.value.name === 'online') wake();
    },
    port: (name: ChannelName): Port => ports.get(name) as Port,
    /** The target address of calls, that of the mailbox while the link is there. */
    target: target as ReadonlySignal<string>,
    isAtMailbox,
    /** An item of the mailbox's history, opened if possible. */
    opened: async <T extends SealedItem>(item: T): Promise<T> => (await sealing?.openItem(item)) ?? item,
    /** For calls to `target`. */
    token,

    /**
     * The proof for a request or upgrade with the present token, `path` relative to the relay's address; undefined for an
     * unbound session.
     */
    async proofFor(of: Pick<ProofTarget, 'method' | 'path' | 'fresh'>): Promise<string | undefined> {
      const bearer = token();
      const key = store.current.value?.bound ? await store.key() : null;
      return bearer && key ? proverOfTarget().prove({ ...of, token: bearer, key }) : undefined;
    },

    start: () => link.start(),
    reconnect,

    /** Retries at once, without waiting. */
    retry(): void {
      if (state.value.name === 'online') wake();
      else if (state.value.name === 'waiting') link.start();
      else reconnect();
    },

    /** Redeems a code (contract 01 §3.4), by default at this relay. After a success the connection stays. */
    async pair({ code, secret }: LinkCode, endpoints: Endpoint[] = [endpoint]): Promise<PairResult> {
      limitedFor = 0;
      replaceLink({ code, secret, endpoints });
      state.value = { name: 'connecting', endpoint, pins: {} };
      const settling = settled();
      link.start();
      const end = await settling;
      if (end.name === 'online') return { kind: 'paired' };
      void link.stop();
      link = makeLink();
      isAway.value = false;
      state.value = { name: 'unpaired' };
      // A bad code does not affect the existing pairing.
      if (store.current.value) link.start();
      if (end.name === 'waiting') {
        if (end.rateLimited) return { kind: 'limited', seconds: limitedFor };
        return { kind: 'unreachable', reason: end.reason };
      }
      const reason = end.name === 'unpaired' ? (end.reason ?? '') : '';
      const [, seconds] = /^pairing is restricted for (\d+) s/.exec(reason) ?? [];
      return seconds === undefined ? { kind: 'refused', reason } : { kind: 'restricted', seconds: Number(seconds) };
    },

    /** After a 401, resolves to whether there is a token other than `used`, or a proof other than the one that was sent. */
    async renew(used: string | null, refused?: { response: Response; proof: string | undefined }): Promise<boolean> {
      if (refused && proverOfTarget().take(refused.response, refused.proof)) return true;
      const pairing = store.current.value;
      if (pairing && token() !== used) return true;
      // Another tab has bound the session during this request.
      if (pairing?.bound && refused && refused.proof === undefined) return true;
      reconnect();
      const timeout = new Promise<null>((resolve) => setTimeout(() => resolve(null), RENEW_TIMEOUT));
      await Promise.race([settled(), timeout]);
      return store.current.value !== null && token() !== used;
    },

    /** Records that a backup contains this session too: the relay has unbound it from its key. */
    share: () => store.updatePairing({ bound: false, shared: true }),

    /** Stores a pairing with its device id. */
    async restore(pairing: Pairing, deviceId: string | null): Promise<void> {
      await store.restorePairing(pairing, deviceId);
      reconnect();
    },

    /** Erases the pairing here. The caller has told the relay. */
    async forget(): Promise<void> {
      replaceLink();
      await store.clear();
      isAway.value = false;
      state.value = { name: 'unpaired' };
    },
  };
}

/** The socket beside the pages, which are in `app/`. */
function socketUrl(base: string): string {
  const url = new URL('ws', base);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return url.href;
}

function formFactor(): string {
  return isTouch() ? 'phone' : 'desktop';
}

function createPort() {
  const listeners = new Set<(message: Message) => void>();
  const waiting = new Set<() => Cancel | void>();
  const leaving = new Map<() => Cancel | void, Cancel>();
  let sendNow: SendOnChannel | null = null;

  function enter(listener: () => Cancel | void): void {
    const leave = listener();
    if (leave) leaving.set(listener, leave);
  }

  const channel: LinkChannel = {
    online(send) {
      sendNow = send;
      for (const listener of [...waiting]) enter(listener);
      return () => {
        sendNow = null;
        for (const leave of leaving.values()) leave();
        leaving.clear();
      };
    },
    message(message) {
      for (const listener of [...listeners]) listener(message);
    },
  };

  return {
    channel,
    send(type: string, payload: Payload, id?: string): boolean {
      sendNow?.(type, payload, id);
      return sendNow !== null;
    },
    onMessage(listener: (message: Message) => void): Cancel {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    onOnline(listener: () => Cancel | void): Cancel {
      waiting.add(listener);
      if (sendNow) enter(listener);
      return () => {
        waiting.delete(listener);
        leaving.get(listener)?.();
        leaving.delete(listener);
      };
    },
  };
}

/**
 * Sends `system/ping` while connected. Calls `lost` if no echo comes in time. Returns a function that sends one now, with the
 * milliseconds for its echo.
 */
function watchEchoes(port: Port, proof: { value: Proof | null }, lost: () => void): (timeout?: number) => void {
  let cancelTimeout: Cancel = () => {};
  let sentAt = 0;
  let pending = '';

  /** A due ping is constant, which costs the edge nothing. Any other ping must not accept a late answer. */
  function ask(timeout: number, isDue = false): void {
    if (pending !== '') return;
    sentAt = performance.now();
    const [payload, id] = isDue ? ALIVE : [{ ts: sentAt }, String(sentAt)];
    pending = id;
    port.send('ping', payload, id);
    cancelTimeout = systemClock.after(timeout, () => {
      pending = '';
      lost();
    });
  }

  port.onMessage(({ type, id }) => {
    if (type !== 'pong' || id !== pending) return;
    cancelTimeout();
    pending = '';
    proof.value = { at: Date.now(), roundTrip: Math.round(performance.now() - sentAt) };
  });
  port.onOnline(() => {
    ask(ECHO_TIMEOUT);
    const stop = every(
      systemClock,
      ECHO_EVERY,
      () => ask(ECHO_TIMEOUT, true),
      () => {},
    );
    return () => {
      stop();
      cancelTimeout();
      pending = '';
    };
  });
  return (timeout = FIRST_ECHO_TIMEOUT) => {
    cancelTimeout();
    pending = '';
    ask(timeout);
  };
}
