import { authPayload } from '../../../../lib/companion/link/auth.ts';
import type { WaitingReply } from '../inbox/outbox.ts';
import type { StoredPairing } from '../stored-pairing.ts';
import type { Caller } from './caller.ts';

/** A worker is ended soon after its event: milliseconds for everything. */
const TIMEOUT = 20_000;

/** Ids of the replies that the relay acknowledged, and of those among them that came too late (contract 09 §7). */
export interface Delivered {
  acknowledged: ReadonlySet<string>;
  late: ReadonlySet<string>;
}

/**
 * Sends replies over a socket of its own, for a worker without a page. Resolves with what the relay acknowledged. It takes no new credentials: those are the page's.
 */
export function deliver(
  base: string,
  stored: StoredPairing,
  replies: readonly WaitingReply[],
  caller: Pick<Caller, 'socketProof'>,
): Promise<Delivered> {
  const url = new URL('ws', base);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  const missing = new Set(replies.map(({ message_id }) => message_id));
  const acknowledged = new Set<string>();
  const late = new Set<string>();
  const { pairing, deviceId } = stored;
  if (!pairing || missing.size === 0) return Promise.resolve({ acknowledged, late });

  return new Promise((resolve) => {
    const socket = new WebSocket(url);
    const send = (channel: string, type: string, id: string, payload: object) =>
      socket.send(JSON.stringify({ channel, type, id, payload }));
    const end = () => {
      clearTimeout(timer);
      socket.close();
      resolve({ acknowledged, late });
    };
    const timer = setTimeout(end, TIMEOUT);
    socket.onclose = end;
    const authenticate = async (nonce?: string) => {
      // The relay keeps what the page has told it.
      const device = { name: '', surface: 'web', formFactor: 'unknown' };
      const auth = authPayload({ sessionToken: pairing.session_token }, deviceId, device);
      const proof = await caller.socketProof(stored, nonce).catch(() => undefined);
      if (socket.readyState === WebSocket.OPEN) send('system', 'auth', 'auth', { ...auth, proof });
    };
    socket.onopen = () => void authenticate();
    socket.onmessage = ({ data }) => {
      const { type, payload } = JSON.parse(String(data)) as {
        type: string;
        payload: { client_msg_id?: string; late?: string; nonce?: string };
      };
      if (type === 'auth.challenge') void authenticate(payload.nonce);
      if (type === 'auth.fail') end();
      if (type === 'auth.ok') {
        for (const reply of replies) send('proactive', 'proactive.reply', reply.message_id, reply);
      }
      if (type !== 'proactive.reply.ack' || payload.client_msg_id === undefined) return;
      acknowledged.add(payload.client_msg_id);
      if (payload.late !== undefined) late.add(payload.client_msg_id);
      missing.delete(payload.client_msg_id);
      if (missing.size === 0) end();
    };
  });
}
