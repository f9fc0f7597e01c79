import type { Server as HttpServer } from 'node:http';
import { createServer, type Server, type Socket } from 'node:net';
import { limitKey } from '../../../lib/access/peer.ts';

export interface ConnectionCaps {
  /** Maximum connections in total, and of one address or IPv6 /64. */
  maxConnections: number;
  maxPerPeer: number;
}

/** Open connections, limited in total and per peer (contract 08 §4.4, §7.7). */
export class ConnectionLimits {
  readonly open = new Set<Socket>();
  readonly #caps: ConnectionCaps;
  readonly #perPeer = new Map<string, number>();

  constructor(caps: ConnectionCaps) {
    this.#caps = caps;
  }

  /** Counts a connection until it closes. Returns false for one over a limit; without a key only the total counts. */
  hold(socket: Socket, key: string | null): boolean {
    const { maxConnections, maxPerPeer } = this.#caps;
    const count = key === null ? 0 : (this.#perPeer.get(key) ?? 0);
    if (this.open.size >= maxConnections || count >= maxPerPeer) return false;
    this.open.add(socket);
    if (key !== null) this.#perPeer.set(key, count + 1);
    socket.once('close', () => {
      this.open.delete(socket);
      if (key === null) return;
      const left = (this.#perPeer.get(key) ?? 1) - 1;
      if (left > 0) this.#perPeer.set(key, left);
      else this.#perPeer.delete(key);
    });
    return true;
  }
}

export interface FrontOptions {
  limits: ConnectionLimits;
  /** As `server` needs it: true for plain HTTP, false for TLS. */
  allowHalfOpen: boolean;
  /** Key of a peer address; by default `limitKey`. */
  keyOf?(address: string | null): string | null;
}

/** A listener in front of `server` that drops connections over the limits before any of their bytes is read. */
export const createFront = (server: HttpServer, { limits, allowHalfOpen, keyOf = limitKey }: FrontOptions): Server =>
  createServer({ noDelay: true, allowHalfOpen }, (socket) => {
    if (limits.hold(socket, keyOf(socket.remoteAddress ?? null))) server.emit('connection', socket);
    else socket.destroy();
  });
