import { describeError } from '../../errors.ts';
import type { CallRelay, Dial } from '../../host/dial.ts';
import { type Cancel, type Clock, isTime, seconds } from '../../kit/clock.ts';
import { asObject } from '../../kit/json.ts';
import type { Log } from '../../log.ts';
import type { Message, Payload } from '../../socket/envelope.ts';
import {
  authPayload,
  type Credentials,
  type DeviceFacts,
  newerMailbox,
  readIssuedSession,
  readMailbox,
} from './auth.ts';
import { createBetterRouteWatch } from './better-route.ts';
import type { Bridge } from './commands.ts';
import { type Connection, openConnection, startHeartbeat } from './connection.ts';
import { authority, type Endpoint, endpointId } from './endpoints.ts';
import type { takeHome, withMailbox, withRoutes } from './new-routes.ts';
import type { PairingOffer } from './pairing-url.ts';
import { readRouteCredential, routeTo } from './reach.ts';
import type { Sealing } from './sealing.ts';
import type { Pairing, PairingStore } from './settings.ts';
import type { MailboxAccess } from './settings-document.ts';
import { aboutKey, initialMachine, type LinkEffect, type LinkEvent, type LinkState, transition } from './state.ts';

const GREETINGS: Readonly<Record<string, true>> = {
  'system/frozen': true,
  'system/home.offline': true,
  'pairing/routes.updated': true,
};
/** Id of the request for a lost mailbox, whose refusal is not shown to people. */
const MAILBOX_QUESTION = 'mailbox';

/** `id` is that of the envelope; a new one by default. */
export type SendOnChannel = (type: string, payload: Payload, id?: string) => void;

/** A further channel of this device, besides `system` and `bridge`. */
export interface LinkChannel {
  /** Called after every `auth.ok`. `send` works until the returned function is called. */
  online(send: SendOnChannel): Cancel;
  message(message: Message): void;
}

/** Either the function itself, or a loader for it, since pages load it when needed. */
type Reader<F extends (...given: never[]) => unknown, R> = (...given: Parameters<F>) => R | Promise<R>;

export interface LinkDeps {
  dial: Dial;
  /** Probes whether a better route works again. Without it, the link stays on its route. */
  callRelay?: CallRelay;
  store: PairingStore;
  clock: Clock;
  log: Log;
  device: DeviceFacts;
  /** Omitted by a device that runs no commands. */
  bridge?: Bridge;
  /** Further channels, keyed by name. */
  channels?: Readonly<Record<string, LinkChannel>>;
  /**
   * Returns a proof of this device's key for the credential in use, with the nonce of a challenge; undefined if there
   * is no key (handlers/web/README.md).
   */
  prove?(
    credential: string,
    shown: { isPairing: boolean; isMailbox: boolean; nonce?: string },
  ): Promise<string | undefined>;
  /** Stores the routes of `routes.updated` for the next connection. Links without it ignore them. */
  withRoutes?: Reader<typeof withRoutes, Partial<Pairing> | null>;
  /** Stores the mailbox at the edge. Links without it use no mailbox. */
  withMailbox?: Reader<typeof withMailbox, MailboxAccess | undefined>;
  /**
   * Keys of the sealed mailbox. Requested while the first socket opens if its first frame needs them, else once online.
   * Links without it use a plain mailbox.
   */
  sealing?(): Sealing | Promise<Sealing>;
  /** Stores the home of a device that has paired at the edge. Links without it stay with the edge. */
  takeHome?: typeof takeHome;
  /** Makes a new pairing. Without it the stored one is used. */
  offer?: PairingOffer;
  /** In [0, 1), for jitter. */
  random?: () => number;
  /**
   * True if a person is waiting for the relay, in which case it is retried every two seconds while nothing listens
   * there.
   */
  isAttended?(): boolean;
  onState?(state: LinkState): void;
  /**
   * A message from the relay for display, such as an expired grant. `code` is `home_offline` or `home_only` at the
   * mailbox.
   */
  onNotice?(text: string, code?: string): void;
}

export type Link = ReturnType<typeof createLink>;

/** The phone's side of the socket (contract 01 §3, 03 §1). `transition` decides, this performs the effects. */
export function createLink(deps: LinkDeps) {
  const { dial, store, clock, device, bridge, channels = {}, random = Math.random } = deps;
  const log = deps.log.named('link');
  const { callRelay } = deps;
  const watchBetterRoutes =
    callRelay &&
    createBetterRouteWatch({
      callRelay,
      clock,
      pairing: () => store.pairing(),
      isIdle: () => bridge?.isIdle() ?? true,
      isHomeOn: () => isHomeOn,
      onBetter: (endpoint) => dispatch({ name: 'better', endpoint }),
      onOtherPeer: ({ url }, reason) => log.error(aboutKey(`${authority(url)}: ${reason}`)),
    });
  /** False once the edge has said on its mailbox that home is off. */
  let isHomeOn = true;
  let machine = initialMachine(deps.offer);
  let connection: Connection | null = null;
  /** The token last presented to the relay, or issued by it. */
  let presented: string | undefined;
  let credentials: Credentials | undefined;
  /** This device's key for sealed messages as last shown to home. */
  let shownKey: unknown;
  let cancelTimer: Cancel = () => {};
  let goOffline: Cancel = () => {};
  /** While online, watches for better routes among the present ones. */
  let watchAgain = () => {};
  let disconnected = Promise.resolve();
  let sealing: Sealing | undefined;
  let loading: Promise<unknown> | undefined;
  /** Set while online on the mailbox. */
  let guard: ReturnType<Sealing['guard']> | undefined;
  /** Messages after `auth.ok`, buffered until the credentials are stored: the last of each kind. */
  const greetings = new Map<string, Message>();
  /** The last notice, since an expired grant is repeated after every status report. */
  let notice = '';

  function dispatch(event: LinkEvent): void {
    const facts = {
      now: clock.monotonic(),
      epoch: seconds(clock),
      random: random(),
      pairing: store.pairing(),
      isAttended: deps.isAttended?.(),
    };
    const step = transition(machine, event, facts);
    machine = step.machine;
    for (const effect of step.effects) {
      // A listener may have stopped the link on the new state.
      if (machine !== step.machine) return;
      perform(effect);
    }
  }

  function perform(effect: LinkEffect): void {
    switch (effect.name) {
      case 'report':
        deps.onState?.(effect.state);
        break;
      case 'log':
        log[effect.level](effect.text);
        break;
      case 'timer':
        cancelTimer();
        cancelTimer = effect.delay === null ? () => {} : clock.after(effect.delay, () => dispatch({ name: 'timeout' }));
        break;
      case 'dial':
        connect(effect.endpoint);
        break;
      case 'authenticate':
        credentials = effect.credentials;
        presented = 'sessionToken' in credentials ? credentials.sessionToken : undefined;
        void authenticate(credentials);
        break;
      case 'store':
        void storeSession(effect);
        break;
      case 'forget':
        void forgetPairing();
        break;
      case 'forget-mailbox':
        // Another tab may have stored newer ones.
        if (store.pairing()?.mailbox?.session_token === presented)
          void changePairing(
            { mailbox: mailboxUrlOnly() },
            'the mailbox does not know this device: home is asked for it',
          );
        break;
      case 'go-online':
        goOnline();
        break;
      case 'disconnect':
        goOffline();
        goOffline = () => {};
        if (connection) disconnected = connection.disconnect(effect.how);
        break;
    }
  }

  function connect(endpoint: Endpoint): void {
    notice = '';
    greetings.clear();
    if (needsSealing(endpoint)) void loadSealing();
    connection = openConnection({
      dial,
      url: endpoint.url,
      route: routeTo(endpoint, machine.offer ? null : store.pairing(), seconds(clock)),
      clock,
      onOpen: (spki) => dispatch({ name: 'opened', spki }),
      onMessage: receive,
      onClose: (end) => dispatch({ name: 'closed', end }),
    });
  }

  /** False if the first frame may carry this device's key as the pairing has it, so that a start waits for nothing else. */
  const needsSealing = ({ mailbox }: Endpoint): boolean =>
    deps.sealing !== undefined &&
    (machine.offer !== null || mailbox === true || store.pairing()?.box?.public_key === undefined);

  /** Resolves even after a failure, in which case the next call tries again. */
  async function loadSealing(): Promise<void> {
    if (!sealing && deps.sealing) loading ??= load(deps.sealing);
    await loading;
  }

  async function load(open: NonNullable<LinkDeps['sealing']>): Promise<void> {
    try {
      sealing = await open();
    } catch (error) {
      log.error(`nothing sealed can be opened until the next connection: ${describeError(error)}`);
      loading = undefined;
    }
  }

  /** A device without a key gets everything in plain from home. */
  async function boxMember(isPairing: boolean): Promise<Payload> {
    if (sealing) return sealing.authMember(isPairing);
    return { box_key: isPairing ? undefined : store.pairing()?.box?.public_key };
  }

  /** Sends the first frame, and sends it again if the relay requests a proof with its `nonce`. */
  async function authenticate(shown: Credentials, nonce?: string): Promise<void> {
    const current = connection;
    const payload = authPayload(shown, store.deviceId, device);
    const [credential, isPairing] = 'sessionToken' in shown ? [shown.sessionToken, false] : [shown.pairingCode, true];
    // A browser that cannot sign is treated as one without a key.
    const isMailbox = 'endpoint' in machine.state && machine.state.endpoint.mailbox === true;
    if ('endpoint' in machine.state && needsSealing(machine.state.endpoint)) await loadSealing();
    // Home's sealed messages could then not be told from forged ones.
    if (isMailbox && deps.sealing && !sealing) return;
    const box = deps.sealing && !isMailbox ? await boxMember(isPairing) : undefined;
    shownKey = box?.box_key;
    const proof = deps.prove && (await deps.prove(credential, { isPairing, isMailbox, nonce }).catch(() => undefined));
    current?.send('system', 'auth', { ...payload, ...box, ...(proof !== undefined && { proof }) });
  }

  async function storeSession(effect: Extract<LinkEffect, { name: 'store' }>): Promise<void> {
    const { serverVersion, expiresAt, grants, profiles } = effect.session;
    try {
      await (effect.endpoint.mailbox ? storeAtMailbox(effect) : storeAtHome(effect));
    } catch (error) {
      return dispatch({ name: 'store-failed', reason: `cannot store the credentials: ${describeError(error)}` });
    }
    dispatch({ name: 'stored', relay: { serverVersion, expiresAt, grants, profiles } });
  }

  async function storeAtHome({ session, endpoint, pins, offer }: Extract<LinkEffect, { name: 'store' }>) {
    const { sessionToken, refreshToken, routeCredential, bound, homeBox, mailbox: given } = session;
    const { endpoints: routes = [], mailbox: known } = store.pairing() ?? {};
    const endpoints = offer ? offer.endpoints : routes;
    const route = readRouteCredential(routeCredential, { endpoint, endpoints, now: seconds(clock) });
    if (routeCredential !== undefined && !route) log.warn('the relay sent access to Reach that is not for this route');
    if (isNewHomeBox(homeBox, store.pairing()?.box)) await loadSealing();
    const box = await sealing?.taken(homeBox, endpoints, offer !== null);
    // A new pairing starts with the mailbox of its link.
    const begun = offer?.mailbox === undefined ? undefined : { url: offer.mailbox };
    const mailbox = deps.withMailbox && (given ? newerMailbox(offer ? undefined : known, given) : begun);
    const change = {
      session_token: sessionToken,
      ...(mailbox && { mailbox }),
      ...box,
      home_off_since: undefined,
      paired_at_edge: undefined,
      ...(refreshToken !== undefined && { refresh_token: refreshToken }),
      ...(route && { route_credential: route }),
      last_good: endpointId(endpoint),
      tofu_pins: { ...pins },
      server_version: session.serverVersion,
      expires_at: session.expiresAt,
      grants: session.grants,
      ...(deps.prove && { bound: bound ?? false }),
    };
    const pairedAt = Math.floor(clock.now() / 1000);
    if (offer) await store.replacePairing({ ...change, endpoints, paired_at: pairedAt });
    else await store.updatePairing(change);
    presented = sessionToken;
  }

  /** Stores the credentials of the edge beside those of home. */
  async function storeAtMailbox({ session, endpoint }: Extract<LinkEffect, { name: 'store' }>): Promise<void> {
    const known = store.pairing()?.mailbox;
    const refresh = session.refreshToken ?? known?.refresh_token;
    const mailbox = {
      ...known,
      url: endpoint.url,
      session_token: session.sessionToken,
      ...(refresh !== undefined && { refresh_token: refresh }),
    };
    await store.updatePairing({ mailbox, last_good: endpointId(endpoint), home_off_since: undefined });
    isHomeOn = true;
  }

  /** Stores a change whose failure the link can tolerate. */
  async function changePairing(change: Partial<Pairing>, done?: string): Promise<void> {
    try {
      await store.updatePairing(change);
      if (done !== undefined) log.info(done);
    } catch (error) {
      log.warn(`a change of the pairing could not be stored: ${describeError(error)}`);
    }
  }

  function mailboxUrlOnly(): Pairing['mailbox'] {
    const { url } = store.pairing()?.mailbox ?? {};
    return url === undefined ? undefined : { url };
  }

  /** Asks home for credentials that are missing: they were lost, or came to a version that did not store them. */
  function askForMailbox(current: Connection): void {
    if (!deps.withMailbox || store.pairing()?.mailbox?.session_token !== undefined) return;
    current.send('system', 'mailbox.get', {}, MAILBOX_QUESTION);
  }

  async function forgetPairing(): Promise<void> {
    await store
      .removePairing(presented)
      .catch((error) => log.error(`cannot remove the pairing: ${describeError(error)}`));
    dispatch({ name: 'forgotten' });
  }

  function goOnline(): void {
    const current = connection as Connection;
    const isAtMailbox = machine.state.name === 'online' && machine.state.endpoint.mailbox === true;
    const stopHeartbeat = startHeartbeat({
      clock,
      connection: current,
      onSilent: (reason) => dispatch({ name: 'silent', reason }),
      // Device control belongs to home; the mailbox refuses it.
      status: isAtMailbox ? undefined : bridge?.status,
    });
    // Valid even after the link has moved, because the relay does not send these messages again.
    const ends = { send: current.send, deliver: toChannel };
    guard = isAtMailbox ? sealing?.guard(ends) : undefined;
    const send = guard?.send ?? current.send;
    const leaveChannels = Object.entries(channels).map(([name, channel]) =>
      channel.online((type, payload, id) => send(name, type, payload, id)),
    );
    if (!isAtMailbox) void startSealing(ends);
    let stopWatching: Cancel | undefined;
    watchAgain = () => {
      stopWatching?.();
      stopWatching = machine.state.name === 'online' ? watchBetterRoutes?.(machine.state.endpoint) : undefined;
    };
    watchAgain();
    goOffline = () => {
      bridge?.cancelAll();
      stopHeartbeat();
      stopWatching?.();
      watchAgain = () => {};
      for (const leave of leaveChannels) leave();
    };
    askForMailbox(current);
    for (const early of [...greetings.values()]) if (connection === current) receive(early);
    greetings.clear();
  }

  /** Home has this device's key from the first frame. If it is lost, home gets another one with the next connection. */
  async function startSealing(ends: Parameters<Sealing['guard']>[0]): Promise<void> {
    const shown = shownKey;
    await loadSealing();
    const lost = await sealing?.online({ ...ends, shown });
    if (lost) await changePairing(lost, 'the key for sealed messages was lost: home gets a new one next time');
  }

  function toChannel(message: Message): void {
    if (Object.hasOwn(channels, message.channel)) channels[message.channel]?.message(message);
  }

  /** Stores the present routes for the next connection (contract 11 §2), or goes to the home that they name (12 §3). */
  async function takeRoutes(payload: Payload): Promise<void> {
    const pairing = store.pairing();
    const { state } = machine;
    if (state.name !== 'online' || !pairing) return;
    if (payload.home) {
      if ((await deps.takeHome?.(deps, payload, state.endpoint)) && machine.state === state)
        dispatch({ name: 'home-given' });
      return;
    }
    if (state.endpoint.mailbox) return;
    try {
      const [routes, mailbox] = await Promise.all([
        deps.withRoutes?.(pairing, payload.endpoints, state.endpoint),
        deps.withMailbox?.(pairing, payload),
      ]);
      const isMoved = JSON.stringify(mailbox) !== JSON.stringify(pairing.mailbox);
      if (!routes && !isMoved) return;
      await store.updatePairing({ ...routes, ...(isMoved && { mailbox }) });
      log.info('the new addresses of the relay are stored');
      watchAgain();
    } catch (error) {
      log.warn(`the new addresses of the relay could not be stored: ${describeError(error)}`);
    }
  }

  function receive(message: Message): void {
    const { channel, type, payload } = message;
    if (machine.state.name === 'online') receiveOnline(message);
    else if (`${channel}/${type}` in GREETINGS) greetings.set(type, message);
    else if (channel === 'system' && type === 'auth.ok') {
      greetings.clear();
      dispatch({ name: 'auth-ok', session: readIssuedSession(payload) });
    } else if (channel === 'system' && type === 'auth.challenge' && credentials) {
      if (typeof payload.nonce === 'string') void authenticate(credentials, payload.nonce);
    } else if (channel === 'system' && type === 'auth.fail') {
      const { reason } = payload;
      const text = typeof reason === 'string' && reason !== '' ? reason.slice(0, 200) : 'no reason given';
      dispatch({ name: 'auth-fail', reason: text });
    }
  }

  function receiveOnline(message: Message): void {
    const { channel, type, id, payload } = message;
    const current = connection as Connection;
    if (channel === 'system' && type === 'ping') {
      current.send('system', 'pong', { ts: payload.ts ?? clock.now() }, id);
    } else if (channel === 'system' && type === 'mailbox') {
      const mailbox = readMailbox(payload.mailbox);
      if (mailbox && deps.withMailbox) void changePairing({ mailbox: newerMailbox(store.pairing()?.mailbox, mailbox) });
    } else if (channel === 'system' && (type === 'home.online' || type === 'home.offline')) {
      heardOfHome(type === 'home.online', payload.since);
    } else if (channel === 'system' && type === 'error') receiveError(message);
    else if (channel === 'bridge') bridge?.receive(current, message);
    else if (channel === 'pairing' && type === 'routes.updated' && deps.withRoutes) void takeRoutes(payload);
    else if (guard) guard.receive(message);
    else toChannel(message);
  }

  function receiveError(message: Message): void {
    const { id, payload } = message;
    if (id === MAILBOX_QUESTION) return;
    const text = typeof payload.message === 'string' ? payload.message.slice(0, 300) : '';
    const code = typeof payload.error_code === 'string' ? payload.error_code : '';
    if (text !== notice) deps.onNotice?.(text, code);
    notice = text;
    channels.system?.message(message);
  }

  /** The mailbox reports that home is off since `since` (epoch seconds), or back. */
  function heardOfHome(isOn: boolean, since: unknown): void {
    if (machine.state.name !== 'online' || !machine.state.endpoint.mailbox) return;
    isHomeOn = isOn;
    const off = isOn || !isTime(since, 1000) ? undefined : Math.floor(since);
    if (store.pairing()?.home_off_since !== off) void changePairing({ home_off_since: off });
    if (off !== undefined) deps.onNotice?.(`home is off since ${new Date(off * 1000).toISOString()}`, 'home_offline');
    if (isOn) dispatch({ name: 'home-online' });
  }

  return {
    get state(): LinkState {
      return machine.state;
    },
    /** Connects, and stays connected until `stop` or until the relay refuses the credentials. Also cuts a wait short. */
    start: (): void => dispatch({ name: 'start' }),
    /** Closes the socket in an orderly way. The link cannot be started again. */
    stop(): Promise<void> {
      dispatch({ name: 'stop' });
      return disconnected;
    },
  };
}

/** True if `home_box` of `auth.ok` differs from what the pairing has of it. */
function isNewHomeBox(given: unknown, box: Pairing['box']): boolean {
  const { key, uploads } = asObject(given) ?? {};
  return key !== box?.home || (uploads === true) !== (box?.uploads === true);
}
