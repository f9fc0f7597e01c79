import { agentRoot, type Config } from '../config.ts';
import { describeError } from '../errors.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import type { Upstream } from '../host/upstream.ts';
import type { Clock } from '../kit/clock.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import { profileHome } from '../profiles/home.ts';
import { type ModelEfforts, providerKey } from './efforts.ts';
import { createModelsDev } from './models-dev.ts';
import { createProbes, type ProbeContext } from './probes.ts';
import { providers } from './providers/index.ts';
import { type CapabilitiesRequest, type ModelPair, refusal } from './request.ts';
import { staticEfforts } from './static-rules.ts';
import { type ProfileSettings, readProfileSettings } from './target.ts';

/** Milliseconds for the files of a profile, after which the static rules have to suffice. */
const FILES_TIMEOUT = 1000;
/** Milliseconds for a whole request; the response contains the results so far. */
const REQUEST_TIMEOUT = 2500;

const NO_SETTINGS: ProfileSettings = { env: {}, config: {}, auths: [] };

/** Efforts of one pair, named as the client named it. */
export interface Capability extends ModelPair, ModelEfforts {}

export interface ModelCapabilitiesDeps {
  /** Absent at the edge, which has only the default profile and no files. */
  host?: Host;
  config: Pick<Config, 'agentConfig'>;
  upstream: Upstream;
  clock: Clock;
  log: Log;
  version: string;
  /** Without a host: replaces the `.env` of the default profile. */
  env?: Readonly<Record<string, string | undefined>>;
}

/** Reasoning efforts of models (contract 07 §3). */
export function createModelCapabilities(deps: ModelCapabilitiesDeps) {
  const { host, config, upstream, clock, log, version, env = {} } = deps;
  const root = agentRoot(config);
  const probes = createProbes({
    upstream,
    clock,
    log,
    hasHost: host !== undefined,
    userAgent: `svc-relay/${version}`,
  });
  const modelsDev = createModelsDev(host, root);
  const stopping = new AbortController();

  /** Null for an unknown profile. The generation is taken first, so that files that change later belong to a later one. */
  async function openProfile({ profile: name, refresh, models }: CapabilitiesRequest): Promise<ProbeContext | null> {
    if (!host) {
      if (name !== 'default') return null;
      return { profile: '', generation: probes.generation('', refresh), settings: { ...NO_SETTINGS, env } };
    }
    // The scan reports a dangling marker.
    const place = await profileHome(host.files, config, name);
    if (!place || (await unlessUnreadable(host.files.stat(place.config)))?.kind !== 'file') return null;
    const generation = probes.generation(place.home, refresh);
    // Secrets are read only if a provider will be queried.
    const settings = queryable(models).size > 0 ? await readProfileSettings(host, place, root) : NO_SETTINGS;
    return { profile: place.home, generation, settings };
  }

  /** Everything read from files, or undefined if that takes too long. */
  async function readFiles(request: CapabilitiesRequest) {
    const reading = Promise.all([openProfile(request), modelsDev.read()]);
    try {
      return await withTimeout({ clock, timeout: FILES_TIMEOUT }, reading, () => undefined);
    } catch (error) {
      log.warn(`cannot read the files of a profile: ${describeError(error)}`);
      return undefined;
    }
  }

  /**
   * One row per pair, in order, within 2.5 s. If a provider cannot be queried or gives no usable response, the static rules
   * apply.
   * @throws RelayError `not-found` (`profile_not_found`) for an unknown profile.
   */
  async function resolve(request: CapabilitiesRequest): Promise<Capability[]> {
    const end = clock.monotonic() + REQUEST_TIMEOUT;
    const files = await readFiles(request);
    const [context, listed] = files ?? [];
    if (context === null) throw refusal('profile_not_found', { profile: request.profile }, 'not-found');
    const live = new Map<string, ModelEfforts>();
    if (context && !stopping.signal.aborted) {
      const running = [...queryable(request.models)].map(([key, models]) =>
        probes.probe(key, [...models], context, (model, efforts) => live.set(pairKey(key, model), efforts)),
      );
      const timing = { clock, timeout: Math.max(0, end - clock.monotonic()), signal: stopping.signal };
      await withTimeout(timing, Promise.all(running.map(({ done }) => done)), () => {});
      for (const { leave } of running) leave();
    }
    return request.models.map(({ provider, model }) => {
      const key = providerKey(provider);
      const known = staticEfforts(key, model);
      const refined = known.exact ? known : (listed?.(key, model) ?? known);
      return { provider, model, ...(live.get(pairKey(key, model)) ?? refined) };
    });
  }

  return {
    resolve,

    /** Completes running requests with their results so far, and stops querying providers. */
    stop: (): void => stopping.abort(),
  };
}

const pairKey = (provider: string, model: string): string => JSON.stringify([provider, model]);

/** The models of each provider that can be queried, without duplicates. */
function queryable(models: readonly ModelPair[]): Map<string, Set<string>> {
  const wanted = new Map<string, Set<string>>();
  for (const { provider, model } of models) {
    const key = providerKey(provider);
    if (!providers.has(key)) continue;
    wanted.set(key, (wanted.get(key) ?? new Set()).add(model));
  }
  return wanted;
}
