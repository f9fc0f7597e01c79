import type { Cancel, Clock } from '../kit/clock.ts';
import { type Expiry, isGranted } from '../sessions/grants.ts';
import type { Device, Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { ChannelTable } from './channel.ts';
import type { SocketConnection } from './connection.ts';

const MAX_SOCKETS = 8;

export interface SessionSocketsDeps {
  readonly channels: ChannelTable;
  sessions: Sessions;
  clock: Clock;
}

/** The sockets of one session, which share its policy. Lives as long as the session. */
export class SessionSockets {
  readonly #deps: SessionSocketsDeps;
  readonly #session: Session;
  /** Oldest first. */
  readonly #connections: SocketConnection[] = [];
  /** Channels that were granted at the last check. */
  #granted: string[] = [];
  #cancelDeadline: Cancel | undefined;
  /** The policy's part of the text below, the text, and the device that it describes. */
  #policyText = '';
  #text = '';
  #described: Device | undefined;

  constructor(deps: SessionSocketsDeps, session: Session) {
    this.#deps = deps;
    this.#session = session;
    this.policyChanged();
  }

  /**
   * The session's part of `auth.ok`, as the text of JSON members (contract 01 §3.5). Cached, since every connect sends it
   * and it changes rarely.
   */
  get text(): string {
    const { device, transportHint } = this.#session;
    if (this.#described !== device) {
      this.#described = device;
      const text = JSON.stringify;
      this.#text =
        `${this.#policyText},"transport_hint":${text(transportHint)},` +
        `"client_surface":${text(device.surface)},"device_form_factor":${text(device.formFactor)}`;
    }
    return this.#text;
  }

  /** Adds a socket. Over eight, the oldest is closed (contract 01 §3.7). */
  add(connection: SocketConnection): void {
    this.#connections.push(connection);
    if (this.#connections.length > MAX_SOCKETS) this.#connections[0]?.close(1008, 'replaced');
  }

  /** Oldest first. */
  get connections(): readonly SocketConnection[] {
    return this.#connections;
  }

  remove(connection: SocketConnection): void {
    const index = this.#connections.indexOf(connection);
    if (index >= 0) this.#connections.splice(index, 1);
  }

  /** A client of the session has answered a ping, or left one unanswered: see `Session`. */
  setAnswersPings(answers: boolean): void {
    if (!this.#deps.sessions.setAnswersPings(this.#session, answers) || !answers) return;
    for (const connection of this.#connections) connection.watchProbe();
  }

  /** Handles a new or reduced policy: notifies channels that lost their grant, and sets the next deadline. */
  policyChanged(): void {
    this.#cancelDeadline?.();
    const { channels, clock, sessions } = this.#deps;
    // An ended session closes its sockets through `Sessions.onEnd`.
    if (!sessions.isAlive(this.#session)) return;
    const { grants, expiresAt } = this.#session;
    this.#policyText = `"expires_at":${JSON.stringify(expiresAt)},"grants":${JSON.stringify(grants)}`;
    this.#described = undefined;
    const now = clock.now() / 1000;
    const granted: string[] = [];
    let next: Expiry = expiresAt;
    for (const [name, { grant }] of channels.withGrant) {
      if (!grant || !isGranted(grants, grant.name, now)) continue;
      granted.push(name);
      const expiry = grants[grant.name] as Expiry;
      if (expiry !== null && (next === null || expiry < next)) next = expiry;
    }
    const lost = this.#granted.filter((name) => !granted.includes(name));
    this.#granted = granted;
    if (next !== null) {
      this.#cancelDeadline = clock.after(Math.max(0, Math.ceil((next - now) * 1000)), () => this.policyChanged());
    }
    for (const name of lost) {
      for (const connection of [...this.#connections]) channels.byName[name]?.grantLost?.(connection);
    }
  }

  /** Closes every socket, because the session has ended. */
  end(code: number, reason: string): void {
    this.#cancelDeadline?.();
    for (const connection of [...this.#connections]) connection.close(code, reason);
  }
}
