import { sendChatError, type Turn } from '../../lib/chat/chat.ts';
import { isSessionId } from '../../lib/chat/upstream.ts';
import { RelayError } from '../../lib/errors.ts';
import type { Relay } from '../../lib/relay.ts';
import type { Channel, Connection } from '../../lib/socket/channel.ts';
import type { Payload } from '../../lib/socket/envelope.ts';

const GRANT = { name: 'chat', label: 'Chat' };
const MAX_SHOWN_TYPE = 256;

/**
 * `chat`: turns with the agent's API server (contract 02 §5, 10 §1). Requests run concurrently and only start in order, so
 * they are not awaited; a snapshot is, because it is large.
 */
export function createChatChannel({ chat, chatTurns }: Relay): Channel {
  return {
    grant: GRANT,
    message(connection, { type, id, payload }) {
      try {
        if (type === 'chat.send' && payload.keep === true) {
          chatTurns.send(connection, id, turnOf(payload), clientTurnIdOf(payload));
        } else if (type === 'chat.send') chat.send(connection, id, turnOf(payload));
        else if (type === 'chat.follow') chatTurns.follow(connection, id, numberOf(payload, 'since'));
        else if (type === 'chat.resume') {
          return chatTurns.resume(connection, id, turnIdOf(payload), numberOf(payload, 'after'));
        } else if (type === 'chat.sessions.list') chat.listSessions(connection, id, profileOf(payload));
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
    grantLost(connection) {
      chat.revoke(connection);
      chatTurns.revoke(connection);
    },
    describe: (connection) => ({ streams: chat.streamsOf(connection) + chatTurns.viewsOf(connection) }),
    opened(connection, slept) {
      if (slept) chatTurns.restore(connection);
    },
    closed(connection) {
      chat.drop(connection);
      chatTurns.drop(connection);
    },
  };

  function cancel(connection: Connection, { request_id: id, turn_id: turnId }: Payload): void {
    if (typeof turnId === 'string') chatTurns.cancel(connection, turnId);
    if (typeof id !== 'string') return;
    chat.cancel(connection, id);
    chatTurns.cancelRequest(connection, id);
  }
}

/** Contract 10 §1. */
const CLIENT_TURN_ID = /^[A-Za-z0-9_-]{1,64}$/;

function clientTurnIdOf({ client_turn_id: id }: Payload): string | undefined {
  if (id === undefined || id === null) return undefined;
  if (typeof id === 'string' && CLIENT_TURN_ID.test(id)) return id;
  throw new RelayError('invalid', 'Invalid client_turn_id');
}

function turnIdOf({ turn_id: id }: Payload): string {
  if (typeof id === 'string' && id !== '') return id;
  throw new RelayError('invalid', 'Invalid turn_id');
}

function numberOf(payload: Payload, name: string): number | undefined {
  const value = payload[name];
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'number') return value;
  throw new RelayError('invalid', `Invalid ${name}`);
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
