import { authPayload } from '../../../../lib/companion/link/auth.ts';
import type { WaitingReply } from '../inbox/outbox.ts';
import type { StoredPairing } from '../stored-pairing.ts';

/** A worker is ended soon after its event: milliseconds for everything. */
const TIMEOUT = 20_000;

/**
 * Sends replies over a socket of its own, for a worker without a page. Resolves with the ids that the relay acknowledged.
 * It takes no new credentials: those are the page's.
 */
export function deliver(base: string, stored: StoredPairing, replies: readonly WaitingReply[]): Promise<Set<string>> {
  const url = new URL('ws', base);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  const missing = new Set(replies.map(({ message_id }) => message_id));
  const acknowledged = new Set<string>();
  const { pairing, deviceId } = stored;
  if (!pairing || missing.size === 0) return Promise.resolve(acknowledged);

  return new Promise((resolve) => {
    const socket = new WebSocket(url);
    const send = (channel: string, type: string, id: string, payload: object) =>
      socket.send(JSON.stringify({ channel, type, id, payload }));
    const end = () => {
      clearTimeout(timer);
      socket.close();
      resolve(acknowledged);
    };
    const timer = setTimeout(end, TIMEOUT);
    socket.onclose = end;
    socket.onopen = () => {
      // The relay keeps what the page has told it.
      const device = { name: '', surface: 'web', formFactor: 'unknown' };
      send('system', 'auth', 'auth', authPayload({ sessionToken: pairing.session_token }, deviceId, device));
    };
    socket.onmessage = ({ data }) => {
      const { type, payload } = JSON.parse(String(data)) as { type: string; payload: { client_msg_id?: string } };
      if (type === 'auth.fail') end();
      if (type === 'auth.ok') {
        for (const reply of replies) send('proactive', 'proactive.reply', reply.message_id, reply);
      }
      if (type !== 'proactive.reply.ack' || payload.client_msg_id === undefined) return;
      acknowledged.add(payload.client_msg_id);
      missing.delete(payload.client_msg_id);
      if (missing.size === 0) end();
    };
  });
}
