import { WebSocket } from 'ws';
import { TIMEOUT } from '../limits.ts';
import type { Target } from '../relay.ts';

export interface VoiceEvent {
  type: string;
  [member: string]: unknown;
}

export type VoiceClient = Awaited<ReturnType<typeof connectVoice>>;

/** Why an upgrade was refused. */
export interface Refused {
  status: number;
  body: string;
}

/** Connects to a voice session and collects its events. Rejects with a `Refused` when the upgrade is refused. */
export async function connectVoice(target: Pick<Target, 'url'>, path: string, token: string) {
  const socket = new WebSocket(target.url.replace('http', 'ws') + path, {
    perMessageDeflate: false,
    headers: { authorization: `Bearer ${token}` },
  });
  const events: VoiceEvent[] = [];
  const waiters = new Set<() => void>();
  const wake = () => {
    for (const waiter of [...waiters]) waiter();
  };
  let end: { code: number; reason: string } | undefined;
  let taken = 0;
  socket.on('message', (data) => {
    events.push(JSON.parse(String(data)));
    wake();
  });
  socket.on('close', (code, reason) => {
    end = { code, reason: String(reason) };
    wake();
  });
  await new Promise<void>((resolve, reject) => {
    socket.once('open', resolve);
    socket.once('error', reject);
    socket.once('unexpected-response', (_request, response) => {
      let body = '';
      response.on('data', (chunk) => {
        body += chunk;
      });
      response.on('end', () => reject({ status: response.statusCode ?? 0, body } satisfies Refused));
    });
  });
  socket.on('error', () => {});

  function until<T>(what: string, look: () => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      const stop = () => {
        clearTimeout(timer);
        waiters.delete(attempt);
      };
      const timer = setTimeout(() => {
        stop();
        const types = events.map(({ type, message }) => (message ? `${type}: ${message}` : type));
        reject(new Error(`waited in vain for ${what}; received ${types.join(', ').slice(-2000)}`));
      }, TIMEOUT);
      const attempt = () => {
        const found = look();
        if (found === undefined) return;
        stop();
        resolve(found);
      };
      waiters.add(attempt);
      attempt();
    });
  }

  /** The events up to the next one of a type, that one included, which no call has returned before. */
  const through = (type: string): Promise<VoiceEvent[]> =>
    until(type, () => {
      const at = events.findIndex((event, index) => index >= taken && event.type === type);
      if (at < 0) return undefined;
      const found = events.slice(taken, at + 1);
      taken = at + 1;
      return found;
    });

  return {
    socket,
    /** Every event so far. */
    events,
    send: (message: unknown) => socket.send(JSON.stringify(message)),
    raw: (data: string | Buffer) => socket.send(data),
    through,
    /** The next event of a type, past those in between. */
    next: async (type: string): Promise<VoiceEvent> => (await through(type)).at(-1) as VoiceEvent,
    /** Resolves with the close code and reason. */
    closed: () => until('the end of the socket', () => end),
    close: (code?: number, reason?: string) => socket.close(code, reason),
    terminate: () => socket.terminate(),
  };
}

/** Why an upgrade is refused. Throws when it is not. */
export const refusedVoice = (target: Pick<Target, 'url'>, path: string, token: string): Promise<Refused> =>
  connectVoice(target, path, token).then(
    (client) => {
      client.terminate();
      throw new Error('the upgrade was accepted');
    },
    (refused) => refused,
  );

/** The audio of the `voice.audio.delta` events of a client, decoded. */
export const audioOf = (events: readonly VoiceEvent[]): Buffer =>
  Buffer.concat(
    events
      .filter(({ type }) => type === 'voice.audio.delta')
      .map(({ audio_base64 }) => Buffer.from(String(audio_base64), 'base64')),
  );
