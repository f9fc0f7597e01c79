import { agentRoot, type Config } from '../config.ts';
import { describeError } from '../errors.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import type { Upstream } from '../host/upstream.ts';
import type { Clock } from '../kit/clock.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import { profileHome } from '../profiles/home.ts';
import type { Answer } from './answer.ts';
import { createModelsDev } from './models-dev.ts';
import { providerKey } from './names.ts';
import { type Asking, createProbes } from './probes.ts';
import { type ProfileSettings, readProfileSettings } from './profile.ts';
import { providers } from './providers/index.ts';
import { type CapabilitiesRequest, type ModelPair, refusal } from './request.ts';
import { staticAnswer } from './static-rules.ts';

/** Milliseconds for the files of a profile. After them the static rules have to do. */
const FILES_TIMEOUT = 1000;
/** Milliseconds for everything. What is known by then is the answer. */
const REQUEST_TIMEOUT = 2500;

const NO_SETTINGS: ProfileSettings = { env: {}, config: {}, auths: [] };

/** What is known of one pair, named as the client did. */
export interface Capability extends ModelPair, Answer {}

/** How hard models can be told to think (contract 07 §3). */
export interface ModelCapabilities {
  /**
   * One row per pair, in order, within 2.5 s. Providers that cannot be asked, or say nothing of use, leave what the
   * static rules say.
   * @throws RelayError `not-found` (`profile_not_found`) for a profile that is none.
   */
  resolve(request: CapabilitiesRequest): Promise<Capability[]>;
  /** Ends the requests under way with what they know, and asks no provider any more. */
  stop(): void;
}

export interface ModelCapabilitiesParts {
  /** Absent at the edge, where there is only the default profile, and no file. */
  host?: Host;
  config: Pick<Config, 'agentConfig'>;
  upstream: Upstream;
  clock: Clock;
  log: Log;
  version: string;
  /** Without a host: what stands for the `.env` of the default profile. */
  env?: Readonly<Record<string, string | undefined>>;
}

export function createModelCapabilities(parts: ModelCapabilitiesParts): ModelCapabilities {
  const { host, config, upstream, clock, log, version, env = {} } = parts;
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

  /** Null when there is no such profile. The generation is taken first: files that change later belong to a later one. */
  async function open({ profile: name, refresh, models }: CapabilitiesRequest): Promise<Asking | null> {
    if (!host) {
      if (name !== 'default') return null;
      return { profile: '', generation: probes.generation('', refresh), settings: { ...NO_SETTINGS, env } };
    }
    // A marker that leads nowhere is the scan's to warn of.
    const place = await profileHome(host.files, config, name);
    if (!place || (await unlessUnreadable(host.files.stat(place.config)))?.kind !== 'file') return null;
    const generation = probes.generation(place.home, refresh);
    // Where nobody is to be asked, secrets are not read.
    const settings = askable(models).size > 0 ? await readProfileSettings(host, place, root) : NO_SETTINGS;
    return { profile: place.home, generation, settings };
  }

  /** Everything that files say, or undefined when they do not say it in time. */
  async function readFiles(request: CapabilitiesRequest) {
    const reading = Promise.all([open(request), modelsDev.read()]);
    try {
      return await withTimeout({ clock, timeout: FILES_TIMEOUT }, reading, () => undefined);
    } catch (error) {
      log.warn(`the files of a profile cannot be read: ${describeError(error)}`);
      return undefined;
    }
  }

  async function resolve(request: CapabilitiesRequest): Promise<Capability[]> {
    const end = clock.monotonic() + REQUEST_TIMEOUT;
    const files = await readFiles(request);
    const [asking, listed] = files ?? [];
    if (asking === null) throw refusal('profile_not_found', { profile: request.profile }, 'not-found');
    const live = new Map<string, Answer>();
    if (asking && !stopping.signal.aborted) {
      const inquiries = [...askable(request.models)].map(([key, models]) =>
        probes.ask(key, [...models], asking, (model, answer) => live.set(pairKey(key, model), answer)),
      );
      const timing = { clock, timeout: Math.max(0, end - clock.monotonic()), signal: stopping.signal };
      await withTimeout(timing, Promise.all(inquiries.map(({ done }) => done)), () => {});
      for (const { leave } of inquiries) leave();
    }
    return request.models.map(({ provider, model }) => {
      const key = providerKey(provider);
      const known = staticAnswer(key, model);
      const refined = known.exact ? known : (listed?.(key, model) ?? known);
      return { provider, model, ...(live.get(pairKey(key, model)) ?? refined) };
    });
  }

  return { resolve, stop: () => stopping.abort() };
}

const pairKey = (provider: string, model: string): string => JSON.stringify([provider, model]);

/** The models of each provider that can be asked, each once. */
function askable(models: readonly ModelPair[]): Map<string, Set<string>> {
  const wanted = new Map<string, Set<string>>();
  for (const { provider, model } of models) {
    const key = providerKey(provider);
    if (!providers.has(key)) continue;
    wanted.set(key, (wanted.get(key) ?? new Set()).add(model));
  }
  return wanted;
}
