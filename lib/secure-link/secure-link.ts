import type { Config } from '../config.ts';
import { describeError } from '../errors.ts';
import { errnoOf } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import type { Upstream } from '../host/upstream.ts';
import { isLoopbackName, urlHost } from '../kit/addresses.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { createEvent } from '../kit/event.ts';
import { createTurns } from '../kit/semaphore.ts';
import type { Log } from '../log.ts';
import type { AdvertisedLink } from './advertised.ts';
import { type LinkHealth, linkHealth, type SecureLinkStatus } from './candidate.ts';
import { EXPIRED, type Identity, openIdentity, REPLACE } from './identity.ts';
import { type PreflightReport, type Proposal, preflight } from './preflight.ts';
import { readSettings } from './settings.ts';
import { loopbackLiteral } from './upstreams.ts';

/** The runtime's input for the listener. */
export interface SecureLinkPlan {
  /** Address to bind. */
  bindHost: string;
  port: number;
  /** `host:port` as written by clients, with brackets around IPv6. */
  authority: string;
  /** PEM. */
  cert: string;
  key: string;
  /** Upstreams, with a loopback address as host and no trailing slash. */
  api: URL;
  dashboard: URL;
}

export type SecureLink = ReturnType<typeof createSecureLink>;

export interface SecureLinkDeps {
  config: Config;
  host: Pick<Host, 'agentHome' | 'files' | 'identities' | 'network'>;
  upstream: Upstream;
  clock: Clock;
  log: Log;
}

/** Milliseconds between checks of the certificate's end, since wall time may jump, as on a laptop that slept. */
const LOOK_EVERY = 3_600_000;
/** Milliseconds before its end from which a certificate is reported. */
const SOON = 30 * 86_400_000;

/** Maximum preflight reports whose trial listener is queued. */
const MAX_WAITING_TRIALS = 16;

/** The state of Secure Link: the advertised route, or why there is none (contract 08 §2, §9). */
export function createSecureLink({ config, host, upstream, clock, log }: SecureLinkDeps) {
  const changes = createEvent<[]>();
  let status: SecureLinkStatus = config.secureLinkEnabled ? 'unavailable' : 'disabled';
  let identity: Identity | null = null;
  let advertised: AdvertisedLink | null = null;
  let problem: string | null = null;
  let hasWarned = false;
  let cancelRefresh: Cancel = () => {};
  let health = linkHealth(status, advertised);
  const inTrial = createTurns(MAX_WAITING_TRIALS);

  function change(next: SecureLinkStatus, link: AdvertisedLink | null): void {
    if (status === next && advertised?.url === link?.url) return;
    status = next;
    advertised = link;
    health = linkHealth(status, advertised);
    changes.emit();
  }

  function unavailable(reason: string): null {
    cancelRefresh();
    log.error(`Secure Link is unavailable: ${reason}`);
    problem = reason;
    change('unavailable', null);
    return null;
  }

  async function plan(): Promise<SecureLinkPlan | null> {
    const settings = readSettings(config);
    if (typeof settings === 'string') return unavailable(settings);
    const opened = await openIdentity(settings, host, clock.now(), log);
    if (typeof opened === 'string') return unavailable(opened);
    identity = opened;
    const { bindHost, port } = settings;
    const [api, dashboard] = await Promise.all([
      loopbackLiteral(settings.api, host.network),
      loopbackLiteral(settings.dashboard, host.network),
    ]);
    const { cert, key } = opened;
    return { bindHost, port, authority: `${urlHost(opened.host)}:${port}`, cert, key, api, dashboard };
  }

  /** Ends with the certificate, like after a restart, because phones refuse it from then on (contract 08 §2.4). */
  function watchEnd(facts: Identity['facts']): void {
    const left = facts.validTo - clock.now();
    if (left <= 0) {
      unavailable(`${EXPIRED}; ${REPLACE}`);
      return;
    }
    if (left < SOON && !hasWarned) {
      hasWarned = true;
      log.warn(`the certificate of Secure Link ends on ${new Date(facts.validTo).toISOString().slice(0, 10)}`);
    }
    cancelRefresh = clock.after(Math.min(left, LOOK_EVERY), () => watchEnd(facts));
  }

  return {
    /**
     * Reads or creates the identity and checks the upstreams; null if disabled or unavailable, which is logged. Called by
     * the runtime after the main listener is bound. Never rejects.
     */
    async prepare(): Promise<SecureLinkPlan | null> {
      if (!config.secureLinkEnabled) return null;
      try {
        return await plan();
      } catch (error) {
        return unavailable(errnoOf(error) || describeError(error));
      }
    },

    /** The runtime has bound the listener: the state is `available`. */
    listening(port: number): void {
      if (!identity) return;
      const authority = `${urlHost(identity.host)}:${port}`;
      const { pin, certDer } = identity.facts;
      problem = null;
      change('available', { url: `https://${authority}`, authority, pin, certDer });
      log.info(`Secure Link serves https://${authority}`);
      watchEnd(identity.facts);
      if (isLoopbackName(identity.host)) log.warn(`no phone can reach Secure Link at ${identity.host} directly`);
    },

    /** The listener could not be bound, or was lost: the state is `unavailable`, as it is after the certificate expires. */
    failed: (reason: string): void => void unavailable(reason),

    get status(): SecureLinkStatus {
      return status;
    },

    /** Set while available. */
    get advertised(): AdvertisedLink | null {
      return advertised;
    },

    /** Why it is unavailable, without paths; null otherwise. */
    get problem(): string | null {
      return problem;
    },

    /** Created again only when `status` or `advertised` changes. */
    get health(): LinkHealth {
      return health;
    },

    /** Signs with the key that pairing links pin. Returns null without a key. */
    sign: (bytes: Uint8Array): Uint8Array | null => identity && host.identities.sign(identity.key, bytes),

    /** Checks a proposed origin without any change (contract 08 §5). Never rejects. */
    preflight(proposal: Proposal): Promise<PreflightReport> {
      const current = advertised && { link: advertised, bindHost: config.secureLinkHost };
      return preflight(proposal, { config, host, upstream, clock, current, inTrial });
    },

    /** Calls back after every change of `status` or `advertised`. Returns the stop function. */
    onChange: changes.on,

    /** Stops advertising for good. */
    stop(): void {
      cancelRefresh();
      if (status === 'available') change('unavailable', null);
      changes.clear();
    },
  };
}
