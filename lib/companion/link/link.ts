import { describeError } from '../../errors.ts';
import type { Dial, DialedSocket, SocketEnd } from '../../host/dial.ts';
import type { Cancel, Clock } from '../../kit/clock.ts';
import type { Log } from '../../log.ts';
import { encodeEnvelope, type Message, type Payload, parseEnvelope } from '../../socket/envelope.ts';
import type { Phone, PhoneCommand } from '../types.ts';
import { authPayload, type DeviceFacts, readIssued } from './auth.ts';
import type { LinkChannel } from './channel.ts';
import { type Answered, createCommands, readCommand } from './commands.ts';
import { attemptOrder, type Endpoint } from './endpoints.ts';
import { keepOnline } from './online.ts';
import type { PairingOffer } from './pairing-url.ts';
import { checkPin, type Pins } from './pins.ts';
import type { PairingStore } from './settings.ts';
import { initialMachine, keepsPairing, type LinkEvent, type LinkState, transition } from './state.ts';

/** Limits in milliseconds. */
const OPENS_WITHIN = 15_000;
const ANSWERS_WITHIN = 20_000;
const CLOSES_WITHIN = 1000;

/** What is behind the link: the phone, or nothing while this device only pairs. */
export type LinkPhone = Pick<Phone, 'handle' | 'status' | 'onStatusChange'>;

export interface LinkParts {
  dial: Dial;
  store: PairingStore;
  clock: Clock;
  log: Log;
  device: DeviceFacts;
  phone?: LinkPhone;
  /** What else is spoken, by the name of the channel. */
  channels?: Readonly<Record<string, LinkChannel>>;
  /** Pairs anew with this. Without it the stored pairing is used. */
  offer?: PairingOffer;
  /** From [0, 1), for jitter. */
  random?: () => number;
  onState?(state: LinkState): void;
  onCommand?(command: PhoneCommand): void;
  onAnswer?(answered: Answered): void;
  /** Something the relay says to people, such as an expired grant. */
  onNotice?(text: string): void;
}

export interface Link {
  readonly state: LinkState;
  /** Connects, and stays connected until `stop` or until the relay refuses the credentials. Also ends a wait at once. */
  start(): void;
  /** Closes the socket in order. The link cannot be started again. */
  stop(): Promise<void>;
}

/** A connection to one endpoint, from dialling to its end. */
interface Attempt {
  readonly endpoint: Endpoint;
  socket: DialedSocket | null;
  /** What the pins become when this attempt succeeds. */
  pins: Pins;
  /** When the relay was last heard of, in monotonic milliseconds. */
  heard: number;
  /** The answer to the auth frame is being stored; an end of the socket waits for that. */
  storing: boolean;
  ended: SocketEnd | null;
  /** What the relay told people last: an expired grant is said again with every status report. */
  notice: string;
  over: boolean;
  /** Tells the commands that came on it that nobody waits for their answers. */
  readonly gone: AbortController;
  /** Ends what belongs to the current state of this attempt. */
  release: Cancel;
}

/**
 * The phone's side of the socket (contract 01 §3, 03 §1): what is to happen is decided by `transition`; here it is
 * done.
 */
export function createLink(parts: LinkParts): Link {
  const { dial, store, clock, device, phone, random = Math.random } = parts;
  const log = parts.log.named('link');
  const { onCommand, onAnswer } = parts;
  const run = phone && createCommands({ handle: (command) => phone.handle(command), clock, onCommand, onAnswer });
  let machine = initialMachine();
  let offer = parts.offer;
  let attempt: Attempt | null = null;
  let cancelWait: Cancel = () => {};

  function order(): readonly Endpoint[] {
    if (offer) return offer.endpoints;
    const pairing = store.pairing();
    return pairing ? attemptOrder(pairing.endpoints, pairing.last_good) : [];
  }

  function happen(event: LinkEvent): void {
    const before = machine.state;
    machine = transition(machine, event, { now: clock.monotonic(), random: random(), order });
    const { state } = machine;
    if (state === before) return;
    cancelWait();
    parts.onState?.(state);
    // Whoever was told may have stopped the link.
    if (machine.state !== state) return;
    if (state.name === 'connecting') connect(state.endpoint);
    if (state.name === 'authenticating') authenticate();
    if (state.name === 'online') keep();
    if (state.name === 'waiting') cancelWait = clock.after(state.wait, () => happen({ name: 'due' }));
  }

  function connect(endpoint: Endpoint): void {
    const current: Attempt = {
      endpoint,
      socket: null,
      // A pairing begins with no pins (spec 2.1).
      pins: offer ? {} : (store.pairing()?.tofu_pins ?? {}),
      heard: clock.monotonic(),
      storing: false,
      ended: null,
      notice: '',
      over: false,
      gone: new AbortController(),
      release: clock.after(OPENS_WITHIN, () => giveUp(current, 'no connection within 15 s')),
    };
    attempt = current;
    current.socket = dial(endpoint.url, {
      open(spki) {
        if (current.over) return;
        current.heard = clock.monotonic();
        const check = checkPin(current.pins, endpoint.url, spki);
        if (check.kind === 'first') current.pins = check.pins;
        if (check.kind !== 'refused') return happen({ name: 'open' });
        log.error(`${check.reason}: nothing was sent. If the relay has a new certificate, pair again`);
        giveUp(current, check.reason);
      },
      message(text) {
        current.heard = clock.monotonic();
        if (!current.over) receive(current, text);
      },
      alive() {
        current.heard = clock.monotonic();
      },
      close(end) {
        current.ended = end;
        if (!current.storing) lose(current);
      },
    });
  }

  function lose(current: Attempt): void {
    if (current.over || !current.ended) return;
    finish(current);
    happen(current.ended.status === 429 ? { name: 'rate-limited' } : { name: 'lost', reason: reasonOf(current.ended) });
  }

  /** Ends an attempt from this side. */
  function giveUp(current: Attempt, reason: string): void {
    if (current.over) return;
    finish(current);
    current.socket?.terminate();
    happen({ name: 'lost', reason });
  }

  function finish(current: Attempt): void {
    current.over = true;
    current.release();
    current.gone.abort();
  }

  function send(current: Attempt, channel: string, type: string, payload: Payload, id: string = crypto.randomUUID()) {
    if (!current.over) current.socket?.send(encodeEnvelope(channel, type, payload, id));
  }

  function authenticate(): void {
    const current = attempt as Attempt;
    current.release();
    current.release = clock.after(ANSWERS_WITHIN, () => giveUp(current, 'no answer to the authentication within 20 s'));
    const pairing = store.pairing();
    const credentials = offer
      ? { pairingCode: offer.code }
      : { sessionToken: pairing?.session_token ?? '', refreshToken: pairing?.refresh_token };
    send(current, 'system', 'auth', authPayload(credentials, store.deviceId, device));
  }

  function receive(current: Attempt, text: string): void {
    const message = parseEnvelope(text);
    if (!message) return;
    const { channel, type, payload } = message;
    if (machine.state.name === 'online') dispatch(current, message);
    else if (channel === 'system' && type === 'auth.ok') void answered(current, () => accept(current, payload));
    else if (channel === 'system' && type === 'auth.fail') void answered(current, () => refuse(payload));
  }

  /** Handles the one answer to the auth frame. An end of the socket counts only after it. */
  async function answered(current: Attempt, handle: () => Promise<LinkEvent>): Promise<void> {
    if (current.storing || machine.state.name !== 'authenticating') return;
    current.storing = true;
    current.release();
    const event = await handle();
    current.storing = false;
    if (event.name === 'accepted' && current.ended) return lose(current);
    if (current.over) return;
    if (event.name !== 'accepted') {
      finish(current);
      current.socket?.close();
    }
    happen(event);
  }

  /** Keeps what was issued; it is not used before. */
  async function accept(current: Attempt, payload: Payload): Promise<LinkEvent> {
    const issued = readIssued(payload);
    if (!issued) return { name: 'lost', reason: 'the relay answered without a session' };
    const { sessionToken, refreshToken, ...relay } = issued;
    const facts = {
      session_token: sessionToken,
      ...(refreshToken !== undefined && { refresh_token: refreshToken }),
      last_good: current.endpoint.url,
      tofu_pins: { ...current.pins },
      server_version: relay.serverVersion,
      expires_at: relay.expiresAt,
      grants: relay.grants,
    };
    const pairedAt = Math.floor(clock.now() / 1000);
    try {
      if (offer) await store.replacePairing({ ...facts, endpoints: offer.endpoints, paired_at: pairedAt });
      else await store.updatePairing(facts);
    } catch (error) {
      return { name: 'lost', reason: `the credentials cannot be stored: ${describeError(error)}` };
    }
    offer = undefined;
    return { name: 'accepted', relay };
  }

  async function refuse({ reason }: Payload): Promise<LinkEvent> {
    const said = typeof reason === 'string' && reason !== '' ? reason.slice(0, 200) : 'no reason given';
    log.warn(`the relay refused this device: ${said}`);
    // A code that was refused says nothing about the pairing that is stored.
    if (!keepsPairing(said) && !offer) {
      await store.removePairing().catch((error) => log.error(`cannot remove the pairing: ${describeError(error)}`));
    }
    return { name: 'refused', reason: said };
  }

  function keep(): void {
    const current = attempt as Attempt;
    const sendStatus = () => phone && send(current, 'bridge', 'bridge.status', phone.status());
    const end = keepOnline({
      clock,
      heard: () => current.heard,
      ping: () => send(current, 'system', 'ping', { ts: clock.now() }),
      giveUp: (reason) => giveUp(current, reason),
      status: phone && { send: sendStatus, onChange: (listener) => phone.onStatusChange(listener) },
    });
    const ends = Object.entries(parts.channels ?? {}).map(([name, channel]) =>
      channel.online((type, payload) => send(current, name, type, payload)),
    );
    current.release = () => {
      end();
      for (const one of ends) one();
    };
  }

  function dispatch(current: Attempt, message: Message): void {
    const { channel, type, id, payload } = message;
    if (channel === 'system' && type === 'ping') {
      send(current, 'system', 'pong', { ts: payload.ts ?? clock.now() }, id);
    } else if (channel === 'system' && type === 'error') {
      const said = typeof payload.message === 'string' ? payload.message.slice(0, 300) : '';
      if (said !== current.notice) parts.onNotice?.(said);
      current.notice = said;
    } else if (channel === 'bridge' && type === 'bridge.command') {
      const command = readCommand(payload);
      if (!command || !run) return;
      void run({ ...command, gone: current.gone.signal }, (answer) =>
        send(current, 'bridge', 'bridge.response', answer),
      );
    } else if (parts.channels && Object.hasOwn(parts.channels, channel)) parts.channels[channel]?.message(message);
  }

  return {
    get state() {
      return machine.state;
    },
    start: () => happen({ name: 'start' }),
    async stop() {
      happen({ name: 'stop' });
      const current = attempt;
      if (!current || current.over) return;
      finish(current);
      await closing(current);
      current.socket?.terminate();
    },
  };

  /** Resolves when the socket has ended, or was given the time for it. */
  function closing(current: Attempt): Promise<void> {
    return new Promise((resolve) => {
      const cancel = clock.after(CLOSES_WITHIN, resolve);
      current.socket?.close(1000, 'companion stopped', () => {
        cancel();
        resolve();
      });
    });
  }
}

function reasonOf({ code, reason, status }: SocketEnd): string {
  if (status !== undefined) return `the upgrade was answered with HTTP ${status}`;
  if (code === 1006) return reason || 'the connection broke';
  return reason === '' ? `closed (${code})` : `closed (${code} ${reason})`;
}
