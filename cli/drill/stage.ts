import { type Connection, openConnection } from '../../lib/companion/link/connection.ts';
import { dial } from '../../lib/host/node/dial.ts';
import { createPinnedConnector } from '../../lib/host/node/pinned.ts';
import { createCallRelay } from '../../lib/host/node/relay-call.ts';
import { utf8ToBytes } from '../../lib/kit/bytes.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { type JsonObject, parseObject } from '../../lib/kit/json.ts';
import { decodeUtf8 } from '../../lib/kit/text.ts';
import { newPairingCode } from '../../lib/pairing/code.ts';
import type { Message, Payload } from '../../lib/socket/envelope.ts';

/** Milliseconds. */
const CALL_TIMEOUT = 4000;
const AUTH_TIMEOUT = 4000;
/** Bytes. */
const MAX_ANSWER = 16 * 1024 * 1024;
/** Notes in one report. */
const MAX_NOTES = 20;

export interface Call {
  method?: 'GET' | 'POST';
  path: string;
  body?: object;
  headers?: Record<string, string>;
}

export interface Answer {
  status: number;
  body: JsonObject;
}

/** A socket that the relay has accepted, with the payload of its `auth.ok`. */
export interface Session {
  connection: Connection;
  payload: Payload;
  /** Resolves when the socket has ended. */
  ended: Promise<void>;
}

export type Stage = ReturnType<typeof createStage>;

/** Calls and sockets to the relay through a port of this machine, each on a connection of its own. */
export function createStage({ port, operator }: { port: number; operator(): Promise<Record<string, string>> }) {
  const callRelay = createCallRelay(createPinnedConnector());
  const url = `ws://127.0.0.1:${port}/ws`;
  const notes: string[] = [];
  const code = newPairingCode();

  /** One call; null when the network gave no whole answer, which leaves open what the relay has done. */
  async function call({ method = 'GET', path, body, headers }: Call): Promise<Answer | null> {
    try {
      const { status, bytes } = await callRelay({
        socketUrl: url,
        method,
        path,
        headers: { ...(body && { 'content-type': 'application/json' }), ...headers },
        body: body && utf8ToBytes(JSON.stringify(body)),
        limit: MAX_ANSWER,
        signal: AbortSignal.timeout(CALL_TIMEOUT),
        refuse: () => null,
      });
      return { status, body: parseObject(decodeUtf8(bytes)) ?? {} };
    } catch {
      return null;
    }
  }

  /** The same as the operator. */
  const asOperator = async (request: Call): Promise<Answer | null> =>
    call({ ...request, headers: { 'x-svc-operator': '1', ...(await operator()) } });

  /** Lifts blocks, as every pairing does. Attempts that the network has cut short count as failed ones (contract 01 §4). */
  async function lift(): Promise<void> {
    await asOperator({ method: 'POST', path: '/pairing/register', body: { code } });
  }

  /**
   * Opens a socket and authenticates it. Null when the network failed first, and the reason when the relay refuses. Later
   * messages go to `onMessage`.
   */
  function authenticate(
    credentials: Payload,
    onMessage: (message: Message) => void = () => {},
  ): Promise<Session | { refused: string } | null> {
    return new Promise((resolve) => {
      let end = () => {};
      const ended = new Promise<void>((over) => {
        end = over;
      });
      const settle = (result: Session | { refused: string } | null) => {
        cancel();
        resolve(result);
        if (result && 'connection' in result) return;
        void connection.disconnect('terminate');
        end();
      };
      const cancel = systemClock.after(AUTH_TIMEOUT, () => settle(null));
      let isAccepted = false;
      const connection = openConnection({
        dial,
        url,
        clock: systemClock,
        onOpen: () => connection.send('system', 'auth', credentials),
        onMessage(message) {
          if (isAccepted) return onMessage(message);
          if (message.type === 'auth.fail') settle({ refused: String(message.payload.reason) });
          if (message.type !== 'auth.ok') return;
          isAccepted = true;
          settle({ connection, payload: message.payload, ended });
        },
        onClose({ status }) {
          end();
          if (isAccepted) return;
          settle(null);
          if (status === 429) void lift();
        },
      });
    });
  }

  return {
    url,
    port,
    callRelay,
    call,
    asOperator,
    authenticate,
    lift,
    /** Events that the drill does not expect, and that are no loss. The first of them are printed. */
    notes: notes as readonly string[],
    note(text: string): void {
      if (notes.length < MAX_NOTES) notes.push(text);
    },
  };
}

/** Pairs a device of this name; used before the network gets bad. Returns the payload of `auth.ok`. */
export async function pairDevice(stage: Stage, name: string): Promise<Payload> {
  const code = await newCode(stage);
  const session = await stage.authenticate({ pairing_code: code, device_id: `drill-${name}`, device_name: name });
  if (!session || 'refused' in session) throw new Error(`the device ${name} cannot be paired`);
  await session.connection.disconnect('goodbye');
  return session.payload;
}

/** Registers a pairing code. */
export async function newCode(stage: Stage): Promise<string> {
  const code = newPairingCode();
  const answer = await stage.asOperator({ method: 'POST', path: '/pairing/register', body: { code } });
  if (answer?.status !== 200) throw new Error(`a pairing code was refused: ${answer ? answer.status : 'no answer'}`);
  return code;
}
