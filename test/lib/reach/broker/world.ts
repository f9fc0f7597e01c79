import { digestOf } from '../../../../lib/kit/sha256.ts';
import { Broker, type BrokerDeps } from '../../../../lib/reach/broker/broker.ts';
import type { Change } from '../../../../lib/reach/broker/credentials.ts';
import { type Effect, wholeMessage } from '../../../../lib/reach/broker/effects.ts';
import { type BadFrame, decodeFrame, type Frame } from '../../../../lib/reach/frames.ts';
import { newId, newToken } from '../../../../lib/reach/ids.ts';
import { encodeMessage, type Register } from '../../../../lib/reach/messages.ts';
import { createTestClock } from '../../../support/clock.ts';

/** A socket of the world: messages sent to it, and those that it has not taken yet. */
export class WorldSocket {
  readonly messages: (string | Uint8Array)[] = [];
  /** Lengths of messages that have not left. */
  readonly waiting: number[] = [];
  closed: number | undefined;
  isPaused = false;
  probes = 0;
  /** Takes every message at once. */
  isFast = true;

  // biome-ignore lint/suspicious/noExplicitAny: a test knows the message it expects
  get json(): any[] {
    return this.messages.filter((message) => typeof message === 'string').map((text) => JSON.parse(text));
  }

  get frames(): (Frame | BadFrame)[] {
    return this.messages.filter((message) => typeof message !== 'string').map((bytes) => decodeFrame(bytes, true));
  }

  /** Bytes of all binary messages. */
  get received(): number[] {
    return this.messages.filter((message) => typeof message !== 'string').flatMap((bytes) => [...bytes]);
  }

  /** Bytes of the DATA frames of one stream. */
  dataOf(streamId: string): number[] {
    return this.frames.flatMap((frame) =>
      frame.type === 'data' && frame.streamId === streamId ? [...frame.payload] : [],
    );
  }
}

/** A broker whose effects act on sockets in memory. */
export class World {
  readonly clock = createTestClock();
  readonly hostId = newId();
  readonly hostToken = newToken();
  readonly broker: Broker<WorldSocket>;
  readonly stored = new Map<string, unknown>();
  readonly log: string[] = [];
  /** Saves that have not been answered, while `holdsSaves`. */
  readonly held: { id: number; changes: Change[] }[] = [];
  holdsSaves = false;

  constructor(deps: Partial<BrokerDeps> = {}) {
    const hosts = new Map([[this.hostId, [digestOf(this.hostToken)]]]);
    this.broker = new Broker({ clock: this.clock, hosts, ...deps });
    this.run(this.broker.pending());
  }

  run(effects: Effect<WorldSocket>[]): void {
    for (const effect of effects) this.#apply(effect);
  }

  #apply(effect: Effect<WorldSocket>): void {
    if (effect.do === 'log') this.log.push(effect.text);
    else if (effect.do === 'save') {
      this.held.push(effect);
      if (!this.holdsSaves) this.releaseSaves();
    } else {
      const { socket } = effect;
      if (socket.closed !== undefined) throw new Error(`${effect.do} on a closed socket`);
      if (effect.do === 'send') {
        const message = wholeMessage(effect);
        socket.messages.push(message);
        socket.waiting.push(message.length);
        if (socket.isFast) this.take(socket);
      } else if (effect.do === 'close') socket.closed = effect.code;
      else if (effect.do === 'probe') socket.probes++;
      else if (socket.isPaused === (effect.do === 'pause')) throw new Error(`${effect.do} twice`);
      else socket.isPaused = effect.do === 'pause';
    }
  }

  releaseSaves(ok = true): void {
    for (const { id, changes } of this.held.splice(0)) {
      for (const { table, digest, record } of ok ? changes : []) {
        if (record) this.stored.set(`${table}:${digest}`, record);
        else this.stored.delete(`${table}:${digest}`);
      }
      this.run(this.broker.saved(id, ok));
    }
  }

  /** The socket takes what waits for it, or the next few messages. */
  take(socket: WorldSocket, count = Number.POSITIVE_INFINITY): void {
    for (let taken = 0; taken < count && socket.waiting.length > 0; taken++) {
      this.run(this.broker.sent(socket, socket.waiting.shift() as number));
    }
  }

  open(source = '192.0.2.1'): WorldSocket {
    const socket = new WorldSocket();
    this.run(this.broker.opened(socket, source));
    return socket;
  }

  send(socket: WorldSocket, data: string | Uint8Array): void {
    if (socket.closed !== undefined) return;
    this.run(typeof data === 'string' ? this.broker.text(socket, data) : this.broker.binary(socket, data));
  }

  drop(socket: WorldSocket): void {
    if (socket.closed !== undefined) return;
    socket.closed = 1006;
    this.run(this.broker.closed(socket));
  }

  async pass(ms: number): Promise<void> {
    for (let left = ms; left > 0; left -= 1000) {
      this.clock.advance(Math.min(1000, left));
      this.run(this.broker.tick());
    }
  }

  register(message: Partial<Register>, source?: string): WorldSocket {
    const socket = this.open(source);
    const whole = { role: 'client', credential_kind: 'route', host_id: this.hostId, connection_id: newId(), token: '' };
    this.send(socket, encodeMessage({ type: 'register', ...whole, ...message } as { type: 'register' } & Register));
    return socket;
  }

  host({ flow, ...change }: Partial<Register> & { flow?: number } = {}, source?: string): WorldSocket {
    const host = this.register({ role: 'host', credential_kind: 'host', token: this.hostToken, ...change }, source);
    if (flow !== undefined) this.send(host, encodeMessage({ type: 'flow', window: flow }));
    return host;
  }

  /** Publishes a route and returns its token. */
  route(host: WorldSocket, credentialId = newId(), token = newToken()): string {
    const expires_at = this.clock.now() / 1000 + 3600;
    const credential = { credential_id: credentialId, token_sha256: digestOf(token), expires_at };
    this.send(host, encodeMessage({ type: 'publish_route', ...credential, device_id_hash: digestOf('device') }));
    return token;
  }

  /** Publishes a bootstrap and returns its token. */
  bootstrap(host: WorldSocket, max_uses = 1, life = 600): string {
    const token = newToken();
    const expires_at = this.clock.now() / 1000 + life;
    const credential = { pairing_id: newId(), token_sha256: digestOf(token), expires_at, max_uses };
    this.send(host, encodeMessage({ type: 'publish_bootstrap', ...credential }));
    return token;
  }

  /** A matched client and its stream ID. */
  match(host: WorldSocket, token = this.route(host)): { client: WorldSocket; id: string } {
    const client = this.register({ token });
    const [answer] = client.json;
    if (answer?.type !== 'matched') throw new Error(`not matched: ${JSON.stringify(answer)}`);
    return { client, id: answer.stream_id };
  }

  codeOf(socket: WorldSocket): string | undefined {
    return socket.json.at(-1)?.code;
  }
}
