import { authPayload } from '../../../../lib/companion/link/auth.ts';
import type { WaitingReply } from '../inbox/outbox.ts';
import { homeOf, type StoredPairing } from '../stored-pairing.ts';
import type { Caller } from './caller.ts';

/** Total milliseconds, since a worker is terminated soon after its event. */
const TIMEOUT = 20_000;

/** Ids of acknowledged replies, and of those among them that came too late (contract 09 §7). */
export interface Delivered {
  acknowledged: ReadonlySet<string>;
  lateIds: ReadonlySet<string>;
}

/** Milliseconds for home to accept the connection, before the mailbox is tried (contract 12 §3). */
const BEFORE_MAILBOX = 5000;

/**
 * Sends replies over a separate socket, for a worker without a page: to home, and the rest to its mailbox. Resolves with the
 * acknowledged ones. Accepts no new credentials, which only the page may store.
 */
export async function deliver(
  stored: StoredPairing,
  replies: readonly WaitingReply[],
  caller: Pick<Caller, 'socketProof' | 'sealing'>,
): Promise<Delivered> {
  const { pairing } = stored;
  const none: Delivered = { acknowledged: new Set(), lateIds: new Set() };
  if (!pairing || replies.length === 0) return none;
  const { session_token: token, mailbox } = pairing;
  const url = homeOf(pairing);
  const edge =
    mailbox?.session_token === undefined
      ? undefined
      : { url: mailbox.url, token: mailbox.session_token, isMailbox: true };
  const timeout = edge ? BEFORE_MAILBOX : TIMEOUT;
  const sent = url === undefined ? none : await deliverTo({ url, token }, { stored, replies, caller, timeout });
  const left = replies.filter(({ message_id: id }) => !sent.acknowledged.has(id));
  if (!edge || left.length === 0) return sent;
  const there = await deliverTo(edge, { stored, replies: left, caller, timeout: TIMEOUT });
  return {
    acknowledged: new Set([...sent.acknowledged, ...there.acknowledged]),
    lateIds: new Set([...sent.lateIds, ...there.lateIds]),
  };
}

interface Delivery {
  stored: StoredPairing;
  replies: readonly WaitingReply[];
  caller: Pick<Caller, 'socketProof' | 'sealing'>;
  /** Milliseconds for the relay to accept the connection. */
  timeout: number;
}

function deliverTo(
  { url, token, isMailbox }: { url: string; token: string; isMailbox?: boolean },
  { stored, replies, caller, timeout }: Delivery,
): Promise<Delivered> {
  const acknowledged = new Set<string>();
  const lateIds = new Set<string>();

  return new Promise((resolve) => {
    const socket = new WebSocket(url);
    const send = (channel: string, type: string, id: string, payload: object) =>
      socket.send(JSON.stringify({ channel, type, id, payload }));
    const guard = isMailbox
      ? caller.sealing(stored).guard({
          send: (channel, type, payload, id = '') =>
            socket.readyState === WebSocket.OPEN && send(channel, type, id, payload),
          deliver() {},
        })
      : undefined;
    const say = ({ plain, ...reply }: WaitingReply) => {
      const { message_id: id } = reply;
      if (guard) guard.send('proactive', 'proactive.reply', { ...reply, plain }, id);
      else send('proactive', 'proactive.reply', id, reply);
    };
    const end = () => {
      clearTimeout(timer);
      socket.close();
      resolve({ acknowledged, lateIds });
    };
    let timer = setTimeout(end, timeout);
    socket.onclose = end;
    const authenticate = async (nonce?: string) => {
      // The relay keeps the facts reported by the page.
      const device = { name: '', surface: 'web', formFactor: 'unknown' };
      const auth = authPayload({ sessionToken: token }, stored.deviceId, device);
      const proof = await caller.socketProof(stored, token, nonce).catch(() => undefined);
      // A device without a key gets everything in plain from home.
      const key = isMailbox ? undefined : stored.pairing?.box?.public_key;
      if (socket.readyState === WebSocket.OPEN) send('system', 'auth', 'auth', { ...auth, box_key: key, proof });
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
        clearTimeout(timer);
        timer = setTimeout(end, TIMEOUT);
        for (const reply of replies) say(reply);
      }
      if (type !== 'proactive.reply.ack' || payload.client_msg_id === undefined) return;
      acknowledged.add(payload.client_msg_id);
      if (payload.late !== undefined) lateIds.add(payload.client_msg_id);
      if (replies.every(({ message_id: id }) => acknowledged.has(id))) end();
    };
  });
}
