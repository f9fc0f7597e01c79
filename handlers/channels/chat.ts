import { sendChatError, type Turn } from '../../lib/chat/chat.ts';
import { isSessionId } from '../../lib/chat/upstream.ts';
import { RelayError } from '../../lib/errors.ts';
import type { Relay } from '../../lib/relay.ts';
import type { Channel, Connection } from '../../lib/socket/channel.ts';
import type { Payload } from '../../lib/socket/envelope.ts';

const GRANT = { name: 'chat', label: 'Chat' };
const MAX_SHOWN_TYPE = 256;

/**
 * `chat`: a turn with the agent's API server (contract 02 §5). Requests run concurrently and only start in order, so
 * nothing here awaits them.
 */
export function createChatChannel({ chat }: Relay): Channel {
  return {
    grant: GRANT,
    message(connection, { type, id, payload }) {
      try {
        if (type === 'chat.send') chat.send(connection, id, turnOf(payload));
        else if (type === 'chat.sessions.list') chat.listSessions(connection, id, profileOf(payload));
        else if (type === 'chat.cancel') cancel(connection, payload);
        else throw new RelayError('invalid', `Unknown chat message type: ${type.slice(0, MAX_SHOWN_TYPE)}`);
      } catch (error) {
        if (!(error instanceof RelayError)) throw error;
        sendChatError(connection, id, error.message, 'invalid_request');
      }
    },
    badPayload: (connection, { id }) =>
      sendChatError(connection, id, 'payload must be a JSON object', 'invalid_request'),
    failed: (connection, { id }) => sendChatError(connection, id, 'internal error', 'internal_error'),
    denied: (connection, { id }, text) => sendChatError(connection, id, text, 'permission_denied'),
    grantLost: (connection) => chat.revoke(connection, `${GRANT.label} grant expired for this device`),
    describe: (connection) => ({ streams: chat.streamsOf(connection) }),
    closed: (connection) => chat.drop(connection),
  };

  function cancel(connection: Connection, { request_id: id }: Payload): void {
    if (typeof id === 'string') chat.cancel(connection, id);
  }
}

const isAbsent = (value: unknown): boolean => value === undefined || value === null || value === '';

function turnOf(payload: Payload): Turn {
  const { message, session_id: sessionId } = payload;
  if (typeof message !== 'string' || message === '') throw new RelayError('invalid', 'Empty message');
  const profile = profileOf(payload);
  if (isAbsent(sessionId)) return { message, profile };
  if (typeof sessionId !== 'string' || !isSessionId(sessionId)) throw new RelayError('invalid', 'Invalid session_id');
  return { message, sessionId, profile };
}

function profileOf({ profile }: Payload): string | undefined {
  if (isAbsent(profile) || profile === 'default') return undefined;
  if (typeof profile === 'string' && profile.length <= 256) return profile;
  throw new RelayError('invalid', 'Invalid profile');
}
