import { agentRoot, type Config } from '../config.ts';
import { RelayError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import { randomString } from '../kit/bytes.ts';
import { type Cancel, type Clock, every } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import { containerMounts, translate } from './containers.ts';
import { guessType, typeOf } from './content-types.ts';
import type { SecretPlaces } from './deny-list.ts';
import type { Media } from './media.ts';
import { baseName } from './names.ts';
import { createRegistry, type MediaEntry } from './registry.ts';
import { createUploads } from './uploads.ts';
import { openPath, type PathRefusal, REFUSAL_TEXT } from './validate.ts';

const MiB = 1024 * 1024;
const OWNED_CAP = 2048 * MiB;
const MOST_UPLOADS = 256;
const SWEEP_PERIOD = 300_000;
const UPLOAD_PREFIX = 'svc-relay-upload-';
/** Files that the relay may be handed: its own uploads, and what the agent's tool makes of old phones' screenshots. */
const MANAGED = /^(?:svc-relay-upload-|android_screenshot_)/;
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789';

export interface HostMediaParts {
  host: Host;
  config: Config;
  clock: Clock;
  log: Log;
}

/** By-path statuses: `forbidden` tells nothing about what is there. */
const KIND: Record<PathRefusal, 'invalid' | 'forbidden' | 'not-found'> = {
  invalid: 'invalid',
  relative: 'forbidden',
  protected: 'forbidden',
  outside: 'forbidden',
  missing: 'not-found',
  irregular: 'not-found',
  unreadable: 'forbidden',
  'too-large': 'forbidden',
};

/** Media of a home host: files, served from their own place. Nothing of it outlives the process. */
export function createHostMedia({ host, config, clock, log }: HostMediaParts): Media {
  const cap = config.mediaMaxSizeMb * MiB;
  const registry = createRegistry({
    clock,
    ttl: config.mediaTtlSeconds,
    cap: config.mediaLruCap,
    ownedCap: OWNED_CAP,
    async remove(place) {
      try {
        await host.files.remove(place);
      } catch (error) {
        log.warn(`a file of the relay could not be removed: ${codeOf(error)}`);
        throw error;
      }
    },
  });
  const uploads = createUploads({
    clock,
    cap,
    total: MOST_UPLOADS,
    create: (suffix) =>
      host.media.create(`${host.media.temporaryDirectory()}/${UPLOAD_PREFIX}${randomString(ALPHABET, 24)}${suffix}`),
  });
  const secrets = secretPlaces(config, host);
  const periodic: Cancel[] = [];
  let stopped = false;

  /** Recomputed each time: directories move, links change. */
  async function roots(): Promise<string[]> {
    const named = [host.media.temporaryDirectory(), config.workspace, ...config.mediaAllowedRoots];
    return [...new Set(await Promise.all(named.map((root) => host.media.resolve(root))))];
  }

  /** Managed files are direct children of the temporary directory, with a name of their own kind. */
  async function isManaged(path: string): Promise<boolean> {
    const at = path.lastIndexOf('/');
    const temporary = await host.media.resolve(host.media.temporaryDirectory());
    return path.slice(0, at) === temporary && MANAGED.test(path.slice(at + 1));
  }

  function enter(entry: Parameters<typeof registry.add>[0]): MediaEntry {
    const added = registry.add(entry);
    log.info(`media entered: ${entry.size} bytes, ${entry.contentType}, sensitive ${entry.sensitive}`);
    return added;
  }

  async function discardLeftovers(): Promise<void> {
    const oldest = clock.now() - config.mediaTtlSeconds * 1000;
    const found = await host.media.ownFiles(host.media.temporaryDirectory(), UPLOAD_PREFIX);
    const stale = found.filter(({ modified }) => modified < oldest);
    await Promise.all(stale.map(({ path }) => host.files.remove(path)));
    if (stale.length > 0) log.info(`${stale.length} uploads left by an earlier run were removed`);
  }

  return {
    async register({ path, contentType, fileName, sensitive, owned }) {
      const found = await openPath(path, { host, secrets, roots: await roots(), cap });
      if (!found.ok) throw new RelayError('invalid', REFUSAL_TEXT[found.refusal]);
      const { size } = found.file;
      await found.file.close();
      if (owned && !(await isManaged(found.path))) {
        throw new RelayError('invalid', 'only files that the relay manages can be owned');
      }
      if (stopped) throw new RelayError('unavailable', 'the relay is stopping');
      return enter({ place: found.path, contentType, fileName, size, sensitive, owned });
    },

    async upload(body) {
      const { place, fileName, contentType } = await uploads.receive(body);
      const found = await openPath(place, { host, secrets, roots: await roots(), cap }).catch(() => null);
      if (found?.ok) await found.file.close();
      if (!found?.ok || stopped) {
        await host.files.remove(place).catch(() => {});
        throw new RelayError('internal', 'the upload could not be stored');
      }
      return enter({ place: found.path, contentType, fileName, size: found.file.size, sensitive: false, owned: true });
    },

    markSensitive: registry.markSensitive,

    async open(token) {
      const entry = registry.find(token);
      const found = entry && (await openPath(entry.place, { host, secrets }));
      if (!entry || !found?.ok || found.path !== entry.place) {
        if (found?.ok) await found.file.close();
        throw new RelayError('not-found', 'there is no such media, or it has expired');
      }
      registry.touch(entry);
      const contentType = await typeOf(found.file, entry.contentType);
      return { bytes: found.file, contentType, fileName: entry.fileName, sensitive: entry.sensitive };
    },

    async openPath(given, hint) {
      const path = await translate(given, await containerMounts(host, config), host);
      const found = await openPath(path, {
        host,
        secrets,
        roots: config.mediaStrictSandbox ? await roots() : undefined,
        cap,
      });
      if (!found.ok) throw new RelayError(KIND[found.refusal], REFUSAL_TEXT[found.refusal]);
      const contentType = await typeOf(found.file, hint ?? guessType(found.path));
      return { bytes: found.file, contentType, fileName: baseName(found.path) };
    },

    list: registry.list,
    count: registry.count,
    sweep: registry.sweep,

    start() {
      const failed = (error: unknown) => log.warn(`media sweep failed: ${codeOf(error)}`);
      periodic.push(every(clock, SWEEP_PERIOD, registry.sweep, failed));
      discardLeftovers().catch((error) => log.warn(`old uploads could not be removed: ${codeOf(error)}`));
    },

    async stop() {
      stopped = true;
      for (const cancel of periodic.splice(0)) cancel();
      await uploads.stop();
      await registry.clear();
    },
  };
}

/** An errno and nothing else: messages name paths. */
const codeOf = (error: unknown): string => String((error as { code?: unknown })?.code ?? 'failed');

function secretPlaces(config: Config, host: Host): SecretPlaces {
  const homes = host.media.userHomes().map((home) => `${home}/.svc`);
  const files = [
    config.sslKey,
    config.secureLinkKey,
    config.secureLinkHostIdFile,
    config.stateFile,
    config.agentConfig,
  ];
  return {
    agentHomes: [...new Set([...homes, config.agentHome, agentRoot(config)])].filter((home) => home !== ''),
    relayHome: config.relayHome,
    files: files.filter((file) => typeof file === 'string'),
  };
}
