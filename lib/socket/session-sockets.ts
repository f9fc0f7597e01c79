import type { Cancel, Clock } from '../kit/clock.ts';
import { type Expiry, isGranted } from '../sessions/grants.ts';
import type { Device, Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { ChannelTable } from './channel.ts';
import type { Connection } from './connection.ts';

const MAX_SOCKETS = 8;

export interface SessionSocketsParts {
  readonly channels: ChannelTable;
  sessions: Sessions;
  clock: Clock;
}

/** The sockets of one session, and what its policy means for all of them alike. Stays until the session ends. */
export class SessionSockets {
  readonly #parts: SessionSocketsParts;
  readonly #session: Session;
  /** The oldest first. */
  readonly #connections: Connection[] = [];
  /** Channels whose grant was there when last looked at. */
  #granted: string[] = [];
  #cancelDeadline: Cancel | undefined;
  /** What of the text below belongs to the policy, the text, and whom it describes. */
  #policyText = '';
  #text = '';
  #described: Device | undefined;

  constructor(parts: SessionSocketsParts, session: Session) {
    this.#parts = parts;
    this.#session = session;
    this.policyChanged();
  }

  /**
   * What `auth.ok` says of the session, as members of a JSON object's text (contract 01 §3.5). Made once: it is sent
   * with every connect, and changes rarely.
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

  /** Takes up another socket. More than eight are too many: the oldest goes (contract 01 §3.7). */
  add(connection: Connection): void {
    this.#connections.push(connection);
    if (this.#connections.length > MAX_SOCKETS) this.#connections[0]?.close(1008, 'replaced');
  }

  remove(connection: Connection): void {
    const index = this.#connections.indexOf(connection);
    if (index >= 0) this.#connections.splice(index, 1);
  }

  /** The policy is new or has shrunk: tells channels that lost their grant, and sets the next deadline. */
  policyChanged(): void {
    this.#cancelDeadline?.();
    const { channels, clock, sessions } = this.#parts;
    // A session that is over ends every socket by itself, through `Sessions.onEnd`.
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

  /** The session is over: closes every socket. */
  end(code: number, reason: string): void {
    this.#cancelDeadline?.();
    for (const connection of [...this.#connections]) connection.close(code, reason);
  }
}
