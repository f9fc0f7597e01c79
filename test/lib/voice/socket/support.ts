import type { JsonObject } from '../../../../lib/kit/json.ts';
import { sha256 } from '../../../../lib/kit/sha256.ts';
import type { SocketEvents, Transport } from '../../../../lib/socket/transport.ts';
import { ResumableSession } from '../../../../lib/voice/socket/resumable.ts';
import { OUTPUT_RULES, type Rules } from '../../../../lib/voice/socket/rules.ts';
import type { Effect, EventBody, Input } from '../../../../lib/voice/socket/types.ts';

export const TOKEN = 'the-right-token';
export const TTL = 30_000;

/** A session whose sockets are lists of what they were sent, on a clock that only `pass` moves. */
export function createTestSession(rules: Rules = OUTPUT_RULES) {
  let now = 1000;
  const machine = new ResumableSession({
    rules,
    sessionId: 'session-1',
    tokenHash: sha256(TOKEN),
    resumeTtl: TTL,
    ready: () => ({ session_id: 'session-1', provider: 'stub' }),
    now,
  });
  const sent = new Map<string, JsonObject[]>();
  const closed = new Map<string, number>();
  const effects: Effect[] = [];

  function step(input: Input): Effect[] {
    const done = machine.step(input, now);
    effects.push(...done);
    for (const effect of done) {
      if (effect.type === 'send') from(effect.socket).push(JSON.parse(effect.text));
      if (effect.type === 'close') closed.set(effect.socket, effect.code);
    }
    return done;
  }
  function from(socket: string): JsonObject[] {
    const list = sent.get(socket) ?? [];
    sent.set(socket, list);
    return list;
  }

  return {
    machine,
    effects,
    step,
    /** Messages that a socket was sent. */
    from,
    types: (socket: string): unknown[] => from(socket).map(({ type }) => type),
    /** The code that the session closed a socket with. */
    codeOf: (socket: string): number | undefined => closed.get(socket),
    open: (socket: string) => step({ type: 'opened', socket }),
    say: (socket: string, message: unknown) => step({ type: 'text', socket, text: JSON.stringify(message) }),
    lose: (socket: string, code = 1006, reason = '') => step({ type: 'lost', socket, end: { code, reason } }),
    publish: (event: EventBody) => step({ type: 'publish', event }),
    audio: (label: string, size = 10) =>
      step({
        type: 'publish',
        isAudio: true,
        event: { type: 'voice.audio.delta', label, audio_base64: 'A'.repeat(size) },
      }),
    resume: (socket: string, cursors: JsonObject = {}, token = TOKEN) =>
      step({ type: 'text', socket, text: JSON.stringify({ type: 'session.resume', resume_token: token, ...cursors }) }),
    pass(ms: number) {
      now += ms;
      return step({ type: 'time' });
    },
    ended: (): string | undefined => effects.find((effect) => effect.type === 'ended')?.why,
  };
}

/** A socket that keeps what it is sent until the test says that it has left. */
export class FakeTransport implements Transport {
  readonly id: string;
  readonly credit?: number;
  readonly messages: JsonObject[] = [];
  events!: SocketEvents;
  waiting = 0;
  bytesReceived = 0;
  pings = 0;
  isPaused = false;
  isTrusted = false;
  end: { code: number; reason?: string } | undefined;

  constructor(id: string, credit?: number) {
    this.id = id;
    this.credit = credit;
  }

  send(data: string): void {
    this.waiting += data.length;
    this.messages.push(JSON.parse(data));
  }
  close(code: number, reason: string): void {
    this.end = { code, reason };
  }
  terminate(): void {
    this.end = { code: 1006 };
  }
  unsent = (): number => this.waiting;
  pause(): boolean {
    this.isPaused = true;
    return true;
  }
  resume(): void {
    this.isPaused = false;
  }
  received = (): number => this.bytesReceived;
  ping(): void {
    this.pings++;
  }
  authenticated(): void {
    this.isTrusted = true;
  }
  say(message: unknown): void {
    this.bytesReceived += 10;
    this.events.message(JSON.stringify(message));
  }
  drain(): void {
    this.waiting = 0;
    this.events.drained();
  }
  types = (): unknown[] => this.messages.map(({ type }) => type);
}
