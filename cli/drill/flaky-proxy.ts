import type { AddressInfo } from 'node:net';
import { connect as connectTcp, createServer, type Server, type Socket } from 'node:net';

/**
 * - `cut`: closes both sides
 * - `reset`: resets both sides (TCP RST)
 * - `stall`: silently stops forwarding in both directions
 * - `half-open`: silently drops one direction and forwards the other
 * - `trickle`: forwards one byte at a time, without ending the connection
 */
export type FaultKind = 'none' | 'cut' | 'reset' | 'stall' | 'half-open' | 'trickle';

export interface FlakyOptions {
  /** Port of the relay. */
  port: number;
  /** Same seed, same faults at the same bytes. */
  seed: number;
  /** Each connection suffers one of these. */
  faults: FaultKind[];
  /** Port to listen on; by default any that is free. */
  listen?: number;
  /** Range from which each connection draws the number of bytes, over both directions, before its fault. */
  after?: [least: number, most: number];
}

export interface Strike {
  kind: FaultKind;
  /** The direction that `half-open` drops. */
  swallowed: 'up' | 'down';
  /** Bytes forwarded before the fault. */
  at: number;
}

export type FlakyProxy = Awaited<ReturnType<typeof startFlakyProxy>>;

/** Pseudo-random numbers in [0, 1) from a seed (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A TCP proxy that injects faults into its connections, the same ones for the same seed. */
export async function startFlakyProxy(options: FlakyOptions) {
  const random = seeded(options.seed);
  const after = options.after ?? [0, 4096];
  const sockets = new Set<Socket>();
  const clients = new Set<Socket>();
  const strikes: Strike[] = [];
  const strikeWaiters = new Set<() => void>();
  /** Injects the fault into one open connection now. */
  const strikeNow = new Set<(kind: FaultKind, swallowed: 'up' | 'down') => void>();
  let faults = options.faults;
  let [least, most] = after;
  let refused: string | undefined;
  let accepted = 0;
  let trickling = 0;

  function track(socket: Socket): void {
    sockets.add(socket);
    socket.setNoDelay(true);
    socket.on('error', () => {});
    socket.on('close', () => sockets.delete(socket));
  }

  function serve(down: Socket): void {
    accepted++;
    // Every connection takes the same number of draws, whatever its fate, so that faults stay reproducible.
    let kind = faults[Math.floor(random() * faults.length)] ?? 'none';
    const threshold = least + Math.floor(random() * (most - least + 1));
    let swallowed: 'up' | 'down' = random() < 0.5 ? 'up' : 'down';
    const up = connectTcp({ port: options.port, host: '127.0.0.1' });
    track(down);
    track(up);
    clients.add(down);
    down.on('close', () => clients.delete(down));
    if (kind === 'trickle') trickling++;
    let passed = 0;
    let struck = false;

    function breakOff(): void {
      if (kind !== 'reset') return;
      up.resetAndDestroy();
      down.resetAndDestroy();
    }
    function strike(now: FaultKind, direction: 'up' | 'down'): void {
      [kind, swallowed, struck] = [now, direction, true];
      strikes.push({ kind, swallowed, at: passed });
      if (kind === 'cut') down.destroy();
      breakOff();
      for (const waiter of [...strikeWaiters]) waiter();
    }
    strikeNow.add(strike);
    down.on('close', () => strikeNow.delete(strike));

    /** The part of a chunk to forward. Injects the fault when its byte is reached. */
    function allow(chunk: Buffer): Buffer {
      if (struck || kind === 'none' || kind === 'trickle') return chunk;
      const room = Math.max(0, threshold - passed);
      if (chunk.length < room) return chunk;
      struck = true;
      strikes.push({ kind, swallowed, at: threshold });
      return chunk.subarray(0, room);
    }

    function pump(from: Socket, to: Socket, direction: 'up' | 'down'): void {
      const swallows = () => struck && (kind === 'stall' || (kind === 'half-open' && swallowed === direction));
      let busy = Promise.resolve();
      from.on('data', (chunk: Buffer) => {
        if (swallows()) return;
        if (direction === 'up' && passed === 0 && refused !== undefined && chunk.includes(refused)) {
          strike('reset', 'up');
          return;
        }
        const wasStruck = struck;
        const rest = allow(chunk);
        passed += rest.length;
        if (kind === 'trickle') {
          from.pause();
          busy = busy.then(() => trickle(rest, to)).finally(() => from.resume());
        } else if (rest.length > 0 && to.writable && !to.write(rest)) {
          from.pause();
          to.once('drain', () => from.resume());
        }
        if (wasStruck || !struck) return;
        // The direction that continues keeps the bytes beyond the threshold.
        if (kind === 'half-open' && swallowed !== direction && to.writable) to.write(chunk.subarray(rest.length));
        if (kind === 'cut') {
          to.end(() => to.destroy());
          from.destroy();
        } else breakOff();
        for (const waiter of [...strikeWaiters]) waiter();
      });
      // An end travels like data: where bytes are dropped, it is dropped too.
      from.on('close', () => {
        if (swallows()) return;
        void busy.then(() => to.end(() => to.destroy()));
      });
    }
    pump(down, up, 'up');
    pump(up, down, 'down');
  }

  function strikeAll(kind: FaultKind, swallowed: 'up' | 'down' = 'up'): void {
    for (const strike of [...strikeNow]) strike(kind, swallowed);
  }

  const server: Server = createServer(serve);
  await new Promise<void>((resolve) => server.listen(options.listen ?? 0, '127.0.0.1', resolve));

  return {
    port: (server.address() as AddressInfo).port,
    /** Open TCP connections, counting both sides. */
    open: () => sockets.size,
    accepted: () => accepted,
    /** Connections whose bytes were passed on one by one; none of them counts among `strikes`. */
    trickling: () => trickling,
    strikes: strikes as readonly Strike[],
    /** Sets the faults of future connections. */
    plan(next: FaultKind[]): void {
      faults = next;
      [least, most] = after;
    },
    /** Injects a fault into every open connection now, and into each future one at its first byte, until the next `plan`. */
    block(kind: FaultKind): void {
      faults = [kind];
      [least, most] = [0, 0];
      strikeAll(kind);
    },
    /** Resets each future connection whose first bytes contain `text`, such as the path of its request; undefined: none. */
    refuse(text: string | undefined): void {
      refused = text;
    },
    /** Injects a fault into every open connection now. */
    strike: strikeAll,
    /** Resolves once `count` faults have happened since the start. */
    struck(count: number): Promise<void> {
      return new Promise((resolve) => {
        const attempt = () => {
          if (strikes.length < count) return;
          strikeWaiters.delete(attempt);
          resolve();
        };
        strikeWaiters.add(attempt);
        attempt();
      });
    },
    /** Drops every client connection, as an impatient client would. A stalled relay side does not notice. */
    dropClients(): void {
      for (const client of [...clients]) client.destroy();
    },
    async close(): Promise<void> {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const socket of [...sockets]) socket.destroy();
      await closed;
    },
  };
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));

async function trickle(bytes: Buffer, to: Socket): Promise<void> {
  for (let at = 0; at < bytes.length; at++) {
    if (!to.writable) return;
    to.write(bytes.subarray(at, at + 1));
    await turn();
  }
}
