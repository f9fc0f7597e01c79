import type { EventEmitter } from 'node:events';
import { type Server as HttpServer, type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Peer } from 'crossws';

// Everything that relies on undocumented parts of Node. test/node/internals.test.ts and listen.test.ts fail
// when one of them changes.

/** The response that a connection is sending or waiting for, if any. */
export const currentResponse = (socket: Duplex): ServerResponse | undefined =>
  (socket as { _httpMessage?: ServerResponse | null })._httpMessage ?? undefined;

/** A response on a connection that Node has handed over with its `upgrade` event, and will not answer by itself. */
export function responseOn(socket: Socket, request: IncomingMessage): ServerResponse {
  const response = new ServerResponse(request);
  response.assignSocket(socket);
  return response;
}

/**
 * Takes the `end` listener off a connection that the `ws` inside crossws has just taken over, and returns it. It is the
 * last one.
 */
export function takeEndListener(socket: Socket): () => void {
  const listener = socket.listeners('end').at(-1) as () => void;
  socket.off('end', listener);
  return listener;
}

/**
 * The `ws` socket of a peer of crossws. `peer.websocket` is a proxy around it, which makes a short message a tenth more
 * expensive.
 */
export const webSocketOf = (peer: Peer): EventEmitter =>
  (peer as unknown as { _internal: { ws: EventEmitter } })._internal.ws;

/** Takes off the listener by which crossws gets the messages of a socket of its `ws`. It is the only one. */
export function takeMessageListener(webSocket: EventEmitter): void {
  webSocket.removeAllListeners('message');
}

/**
 * Takes the listeners of `http-shutdown` off a server that listhen made: they hold every connection in a table, listen
 * to every response, and add up on a connection that is parsed again. The relay shuts down by itself.
 */
export function removeShutdown(server: HttpServer): void {
  for (const event of ['request', 'connection', 'secureConnection']) {
    const listener = server.listeners(event).at(-1) as () => void;
    server.off(event, listener);
  }
}

/** Lets requests without a `Host` header through, on a server that listens already. */
export function allowMissingHost(server: HttpServer): void {
  Object.assign(server, { requireHostHeader: false });
}

/** Sets how often a listening server looks for requests that are late. Node reads it when it begins to listen. */
export function checkConnectionsEvery(server: HttpServer, milliseconds: number): void {
  Object.assign(server, { connectionsCheckingInterval: milliseconds });
  server.emit('listening');
}

/**
 * Lets go of the last chunk that a socket of crossws received. Its `ws` keeps the four bytes of the frame's mask as a
 * view of that chunk until the next frame: 9 KiB of resident memory per quiet socket (2026-11).
 */
export function releaseChunk(webSocket: unknown): void {
  const receiver = (webSocket as { _receiver?: { _mask?: Uint8Array } })._receiver;
  if (receiver) receiver._mask = undefined;
}
