import { peerKey } from '../lib/access/peer.ts';
import { RelayError } from '../lib/errors.ts';
import { HOME_PATH, MAX_FRAME } from '../lib/mirror/frames.ts';
import type { Relay } from '../lib/relay.ts';
import type { Channel } from '../lib/socket/channel.ts';
import { errorResponse, json, readJson } from '../lib/web/json.ts';
import type { Handler } from './request.ts';
import type { SocketRow } from './sockets.ts';

/** `GET /relay/mirror`: this side of the mirror (contract 12 §7). */
export const mirrorStatus: Handler = async (_request, { homeMirror, edgeMirror }) =>
  json(homeMirror ? await homeMirror.status() : requireEdge(edgeMirror).status());

/**
 * `POST /relay/mirror`: at home, `{url}` starts to mirror to that edge, and `{recall}` brings its messages home before the
 * mirror ends; at the edge, `{key}` pins home (contract 12 §1).
 */
export const enableMirror: Handler = async (request, { homeMirror, edgeMirror }) => {
  const { url, key, recall } = await readJson(request);
  if (!homeMirror) {
    if (typeof key !== 'string') throw new RelayError('invalid', 'key must be the public key of home');
    return json(await requireEdge(edgeMirror).pin(key));
  }
  if (typeof recall === 'boolean') return json(await homeMirror.recall(recall));
  const parsed = typeof url === 'string' && URL.canParse(url) ? new URL(url) : undefined;
  if (!parsed || !/^https?:$/.test(parsed.protocol) || parsed.href !== `${parsed.origin}/`) {
    throw new RelayError('invalid', 'url must be the https:// URL of a relay at the edge, without a path');
  }
  return json(await homeMirror.enable(parsed.origin));
};

/** `DELETE /relay/mirror`: ends the mirror on this side; at the edge, also the sessions of home. */
export const disableMirror: Handler = async (_request, { homeMirror, edgeMirror }) =>
  json(homeMirror ? await homeMirror.disable() : await requireEdge(edgeMirror).unpin());

function requireEdge(edgeMirror: Relay['edgeMirror']): NonNullable<Relay['edgeMirror']> {
  if (edgeMirror) return edgeMirror;
  throw new RelayError('unsupported', 'this relay has no mirror');
}

/** Wraps a route that only home serves: at the edge, a device of home is told since when home is off (contract 12 §2). */
export const homeOnly =
  (handler: Handler): Handler =>
  (request, relay) => {
    const refusal = request.session && relay.edgeMirror?.homeRefusal(request.session);
    if (refusal) throw refusal;
    return handler(request, relay);
  };

/** Wraps a channel that only home serves: messages from a device of home are neither handled nor stored. */
export function homeOnlyChannel(channel: Channel, { edgeMirror }: Relay): Channel {
  if (!edgeMirror) return channel;
  return {
    ...channel,
    message(connection, message, text) {
      const refusal = edgeMirror.homeRefusal(connection.session);
      if (!refusal) return channel.message(connection, message, text);
      const { message: sentence, extra = {} } = refusal;
      connection.sendError(sentence, String(extra.error_code), message.id, { channel: message.channel, ...extra });
    },
  };
}

/** The socket from home to the edge (contract 12 §2). */
export const homeSocket: SocketRow = {
  path: HOME_PATH,
  guard: (_request, { edgeMirror }) =>
    edgeMirror?.isExpected() ? undefined : errorResponse(404, 'this relay is the mirror of no home'),
  maxMessage: MAX_FRAME,
  binary: false,
  open: ({ url, peer, headers }, socket, { edgeMirror, config }) => {
    const address = peerKey(peer, headers, config.trustProxyHeaders);
    return requireEdge(edgeMirror).open(socket, { host: new URL(url).host, address });
  },
  restore: async (socket, { edgeMirror }) => edgeMirror?.restore(socket),
};
