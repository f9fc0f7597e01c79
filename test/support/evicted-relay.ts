import { createChannels } from '../../handlers/channels/index.ts';
import { readConfig } from '../../lib/config.ts';
import type { Upstream } from '../../lib/host/upstream.ts';
import { createRelay, type Relay } from '../../lib/relay.ts';
import type { SocketEvents, Transport } from '../../lib/socket/transport.ts';
import type { Frame } from './client.ts';
import { createTestClock } from './clock.ts';
import { randomCode } from './relay.ts';
import { memoryStores, noLog } from './states.ts';

type Env = Record<string, string>;

/** A client of a relay that runs in this process. Its socket is open until it is closed or lost. */
export interface LocalClient {
  readonly frames: Frame[];
  readonly token: string;
  isOpen: boolean;
  /** Sends an envelope. */
  send(channel: string, type: string, payload?: Record<string, unknown>): void;
  /** The payloads of the frames of this type, so far. */
  received(type: string): Record<string, unknown>[];
  close(): void;
  /** The socket ends while the relay is evicted, so that nothing is called. */
  lose(): void;
}

/**
 * A relay as a Durable Object runs it, in this process and on a clock of its own: `evict` takes its memory away at any
 * moment, also while commands are under way, which the local runtime never does.
 */
export async function startEvictedRelay({ env = {}, upstream }: { env?: Env; upstream?: Upstream } = {}) {
  const stores = memoryStores();
  const clock = createTestClock();
  const { config } = readConfig(env, { home: '', agentHome: '' });
  const sockets = new Map<Transport, SocketEvents>();
  let relay: Relay;
  let lives = 0;

  async function wake(): Promise<void> {
    const life = ++lives;
    // Its timers go with its memory.
    const after = (delay: number, run: () => void) => clock.after(delay, () => life === lives && run());
    relay = await createRelay({
      version: '1.0.0',
      config,
      stores,
      clock: { ...clock, after },
      upstream,
      log: noLog,
      channels: createChannels,
      socketsOutliveMemory: true,
    });
    for (const transport of [...sockets.keys()]) {
      const events = await relay.sockets.restore(transport);
      if (events) sockets.set(transport, events);
      else sockets.delete(transport);
    }
    await relay.restored();
  }
  await wake();

  return {
    clock,
    stores,
    get relay(): Relay {
      return relay;
    },

    /** Drops the relay's memory, once its stores are written, and wakes it again. */
    async evict(): Promise<void> {
      await clock.advanceAsync(1_000);
      await wake();
    },

    /** Pairs a device, or with a token reconnects one. */
    async connect(device: Record<string, unknown> = {}, token?: string): Promise<LocalClient> {
      const code = randomCode();
      if (token === undefined) await relay.codes.register(code, {});
      const frames: Frame[] = [];
      const transport: Transport = {
        id: crypto.randomUUID(),
        send: (text) => void frames.push(JSON.parse(String(text))),
        close: () => client.close(),
        terminate: () => client.close(),
        unsent: () => 0,
        pause: () => true,
        resume: () => {},
      };
      const events = relay.sockets.open(transport, {
        peer: { address: '192.0.2.1', tls: true, via: 'edge' },
        key: '192.0.2.1',
        transportHint: 'wss',
      });
      sockets.set(transport, events);
      const client: LocalClient = {
        frames,
        token: '',
        isOpen: true,
        send(channel, type, payload = {}) {
          sockets.get(transport)?.message(JSON.stringify({ channel, type, id: crypto.randomUUID(), payload }));
        },
        received: (type) => frames.filter((frame) => frame.type === type).map(({ payload }) => payload),
        close() {
          if (!client.isOpen) return;
          client.isOpen = false;
          sockets.get(transport)?.closed();
          sockets.delete(transport);
        },
        lose() {
          client.isOpen = false;
          sockets.delete(transport);
        },
      };
      const credential = token === undefined ? { pairing_code: code } : { session_token: token };
      client.send('system', 'auth', { device_id: crypto.randomUUID(), device_name: 'Phone', ...credential, ...device });
      while (frames.length === 0) await new Promise<void>((resolve) => setImmediate(resolve));
      const [ok] = frames;
      if (ok?.type !== 'auth.ok') throw new Error(`not admitted: ${JSON.stringify(ok)}`);
      return Object.assign(client, { token: ok.payload.session_token as string });
    },
  };
}

export type EvictedRelay = Awaited<ReturnType<typeof startEvictedRelay>>;
