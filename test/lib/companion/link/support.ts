import { type BridgeDeps, createBridge } from '../../../../lib/companion/link/commands.ts';
import type { Link, LinkDeps } from '../../../../lib/companion/link/link.ts';
import { createLink } from '../../../../lib/companion/link/link.ts';
import type { Pairing, PairingStore } from '../../../../lib/companion/link/settings.ts';
import type { LinkState } from '../../../../lib/companion/link/state.ts';
import type { PhoneAnswer, PhoneCommand } from '../../../../lib/companion/types.ts';
import type { Dial, PinnedRoute, SocketEnd, SocketEvents } from '../../../../lib/host/dial.ts';
import { createTestClock } from '../../../support/clock.ts';
import { createTestLog } from '../../../support/log.ts';

export interface Frame {
  channel: string;
  type: string;
  id: string;
  payload: Record<string, unknown>;
}

/** The relay's end of one dialled socket. */
export interface FakeSocket {
  url: string;
  route?: PinnedRoute;
  /** Messages that the companion sent. */
  sent: Frame[];
  /** Whether it answers pings of the companion at once, as a relay does. */
  answersPings: boolean;
  /** `terminated`, or the code it was closed with. */
  letGo: 'terminated' | number | null;
  open(spki?: string): void;
  push(channel: string, type: string, payload?: unknown, id?: string): void;
  raw(text: string): void;
  alive(): void;
  end(end?: Partial<SocketEnd>): void;
}

export function createFakeDial() {
  const sockets: FakeSocket[] = [];
  const dial: Dial = (url, events: SocketEvents, route) => {
    let over = false;
    let done: () => void = () => {};
    const socket: FakeSocket = {
      url,
      route,
      sent: [],
      answersPings: true,
      letGo: null,
      open: (spki) => events.open(spki),
      push: (channel, type, payload = {}, id = 'r1') => events.message(JSON.stringify({ channel, type, id, payload })),
      raw: (text) => events.message(text),
      alive: () => events.alive(),
      end({ code = 1006, reason = '', ...rest } = {}) {
        if (over) return;
        over = true;
        events.close({ code, reason, ...rest });
        done();
      },
    };
    sockets.push(socket);
    return {
      send(text) {
        const frame: Frame = JSON.parse(text);
        socket.sent.push(frame);
        if (frame.type === 'ping' && socket.answersPings) socket.push('system', 'pong', frame.payload, frame.id);
      },
      close(code = 1000, _reason, after) {
        socket.letGo = code;
        done = after ?? done;
        queueMicrotask(() => socket.end({ code }));
      },
      terminate() {
        socket.letGo ??= 'terminated';
        socket.end();
      },
    };
  };
  return { dial, sockets };
}

export const PAIRING: Pairing = {
  session_token: 'token-1',
  refresh_token: 'refresh-1',
  endpoints: [
    { role: 'lan', url: 'ws://192.0.2.1:8767/ws', priority: 0 },
    { role: 'public', url: 'wss://relay.example:443/ws', priority: 1 },
  ],
  tofu_pins: {},
  paired_at: 1,
  server_version: '1.0.0',
  expires_at: null,
  grants: {},
};

/** Members of pinned candidates (contract 08 §6.2). */
export const PIN = `sha256/${'p'.repeat(42)}A=`;
export const PROXY = {
  url: 'https://192.0.2.9:9443',
  transport_hint: 'https',
  pin_sha256: PIN,
  cert_der: 'MIIB',
  surfaces: ['relay', 'api', 'dashboard'],
};
export const BROKER = {
  protocol_version: 1,
  url: 'wss://reach.example/v1/connect',
  host_id: `${'h'.repeat(21)}A`,
  credential_kind: 'bootstrap',
  token: `${'t'.repeat(42)}A`,
  expires_at: 2_000_000_000,
};

/** The routes of a pairing link with these candidates. */
const PINNED = { url: 'wss://192.0.2.9:9443/relay/ws', pinned: { pin: PIN, certDer: PROXY.cert_der } };
export const SECURE_LINK = { role: 'plugin_proxy', priority: 0, ...PINNED };
export const REACH = {
  role: 'outbound_broker',
  priority: 1,
  ...PINNED,
  broker: {
    url: BROKER.url,
    hostId: BROKER.host_id,
    bootstrap: { token: BROKER.token, expiresAt: BROKER.expires_at },
  },
};

/** A store that records its writes and can be delayed or made to fail. */
export function createFakeStore(first: Pairing | null = PAIRING) {
  let pairing = first;
  const written: (Pairing | null)[] = [];
  const control = { gate: Promise.resolve() as Promise<void>, failure: null as Error | null };
  async function write(next: Pairing | null) {
    await control.gate;
    if (control.failure) throw control.failure;
    pairing = next;
    written.push(next);
  }
  const store: PairingStore = {
    deviceId: 'b1f4c1d2-0000-4000-8000-000000000001',
    pairing: () => pairing,
    replacePairing: (next) => write(next),
    updatePairing: (change) => write(pairing && { ...pairing, ...change }),
    removePairing: () => write(null),
  };
  return { store, written, control };
}

export const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

export interface Setup {
  pairing?: Pairing | null;
  handle?: (command: PhoneCommand) => Promise<PhoneAnswer>;
  onAnswer?: BridgeDeps['onAnswer'];
  parts?: Partial<LinkDeps>;
}

/** A link on a fake dial, a fake store and a clock that stands still. `random` is 0: waits are 1, 2, 4 … 30 s. */
export function setup({ pairing = PAIRING, handle, onAnswer, parts = {} }: Setup = {}) {
  const clock = createTestClock();
  const log = createTestLog();
  const { dial, sockets } = createFakeDial();
  const fake = createFakeStore(pairing);
  const states: LinkState[] = [];
  const notices: string[] = [];
  const changed = new Set<() => void>();
  const link: Link = createLink({
    dial,
    store: fake.store,
    clock,
    log,
    device: { name: 'Test phone' },
    random: () => 0,
    bridge: createBridge({
      phone: {
        handle: handle ?? (async ({ path }) => ({ status: 200, result: { path } })),
        status: () => ({ device: { name: 'Test phone' } }),
        onStatusChange(listener) {
          changed.add(listener);
          return () => void changed.delete(listener);
        },
      },
      clock,
      onAnswer,
    }),
    onState: (state) => states.push(state),
    onNotice: (text) => notices.push(text),
    ...parts,
  });
  const socket = (): FakeSocket => sockets.at(-1) as FakeSocket;
  /** Opens the newest socket and sends `auth.ok`. */
  async function admit(payload: Record<string, unknown> = {}, spki = 'a'.repeat(64)): Promise<FakeSocket> {
    const current = socket();
    current.open(spki);
    current.push('system', 'auth.ok', { session_token: 'token-1', grants: {}, expires_at: null, ...payload });
    await settle();
    return current;
  }
  return { clock, log, sockets, socket, ...fake, states, notices, changed, link, admit };
}

/** A list in JSON on which `String` overflows the stack. */
export const DEEP = '['.repeat(50_000) + ']'.repeat(50_000);

export const sentOf = (socket: FakeSocket, type: string): Frame[] => socket.sent.filter((frame) => frame.type === type);
