import type { Store } from '../../storage/schema.ts';
import type { Config } from '../config.ts';
import { describeError, RelayError } from '../errors.ts';
import { bytesToHex, randomBytes } from '../kit/bytes.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import { typeOf } from './content-types.ts';
import type { Media } from './media.ts';
import { createObject, openObject } from './object-bytes.ts';
import type { ObjectStore } from './objects.ts';
import { createRegistry } from './registry.ts';
import { createUploads } from './uploads.ts';

const MiB = 1024 * 1024;
const OWNED_CAP = 2048 * MiB;
/** Each holds a part of 5 MiB, and an object has 128 MB. */
const MOST_UPLOADS = 8;
/** An object whose upload never ended, as after an eviction, is removed this much later. */
const ABANDONED_AFTER = 3600;
const LEAST_WAIT = 60_000;

export interface ObjectMediaParts {
  objects: ObjectStore;
  /** Keys of objects begin with it: several relays may share a bucket. */
  prefix: string;
  store: Store<'media'>;
  config: Config;
  clock: Clock;
  log: Log;
}

const hostOnly = () => new RelayError('unsupported', 'this relay runs without a host, so it cannot serve its files');

/** Media of a relay without a host: uploads, their bytes in an object store, their entries outliving the memory. */
export async function openObjectMedia(parts: ObjectMediaParts): Promise<Media> {
  const { objects, prefix, store, config, clock, log } = parts;
  const failed = (error: unknown) => log.error(`media state could not be saved: ${describeError(error)}`);
  let cancel: Cancel = () => {};

  const registry = createRegistry({
    clock,
    ttl: config.mediaTtlSeconds,
    cap: config.mediaLruCap,
    ownedCap: OWNED_CAP,
    remove: (place) => objects.delete(place),
    changed(token, entry) {
      (entry ? store.setItem(`entry-${token}`, { entry: { ...entry } }) : store.removeItem(`entry-${token}`)).catch(
        failed,
      );
    },
  });
  const pending = new Map<string, number>();
  const pendingKey = (place: string) => `pending-${place.slice(place.lastIndexOf('/') + 1)}`;

  const uploads = createUploads({
    clock,
    cap: config.mediaMaxSizeMb * MiB,
    total: MOST_UPLOADS,
    async create() {
      const place = `${prefix}/${bytesToHex(randomBytes(16))}`;
      const since = clock.now() / 1000;
      // Before the first byte: an object that nobody knows of would stay for ever.
      await store.setItem(pendingKey(place), { pending: { place, since } });
      pending.set(place, since);
      const object = createObject(objects, place);
      return {
        ...object,
        async discard() {
          await object.discard();
          await settle(place);
        },
      };
    },
  });

  async function settle(place: string): Promise<void> {
    pending.delete(place);
    await store.removeItem(pendingKey(place)).catch(failed);
  }

  const records = await Promise.all((await store.getKeys()).map((key) => store.getItem(key)));
  const entries = records.flatMap((record) => (record && 'entry' in record ? [record.entry] : []));
  for (const entry of entries.sort((one, other) => one.lastAccessed - other.lastAccessed)) registry.restore(entry);
  for (const record of records)
    if (record && 'pending' in record) pending.set(record.pending.place, record.pending.since);

  async function sweep(): Promise<void> {
    await registry.sweep();
    const abandoned = clock.now() / 1000 - ABANDONED_AFTER;
    for (const [place, since] of [...pending]) {
      if (since >= abandoned) continue;
      await objects.delete(place);
      await settle(place);
    }
    arm();
  }

  /** Sleeps until there is something to remove: a shorter timer would keep the object awake. */
  function arm(): void {
    cancel();
    const times = [...pending.values()].map((since) => since + ABANDONED_AFTER + 1);
    const next = Math.min(registry.nextExpiry() ?? Number.POSITIVE_INFINITY, ...times);
    if (!Number.isFinite(next)) return;
    const wait = Math.max(LEAST_WAIT, next * 1000 - clock.now());
    cancel = clock.after(wait, () => void sweep().catch(failed));
  }
  arm();

  return {
    register: () => Promise.reject(hostOnly()),
    openPath: () => Promise.reject(hostOnly()),

    async upload(body) {
      const { place, fileName, contentType, size } = await uploads.receive(body);
      const entry = registry.add({ place, contentType, fileName, size, sensitive: false, owned: true });
      await settle(place);
      arm();
      log.info(`media entered: ${size} bytes, ${contentType}`);
      return entry;
    },

    markSensitive: registry.markSensitive,

    async open(token) {
      const entry = registry.find(token);
      const bytes = entry && (await openObject(objects, entry.place));
      if (!entry || !bytes) throw new RelayError('not-found', 'there is no such media, or it has expired');
      registry.touch(entry);
      const contentType = await typeOf(bytes, entry.contentType);
      return { bytes, contentType, fileName: entry.fileName, sensitive: entry.sensitive };
    },

    list: registry.list,
    count: registry.count,
    start() {},
    sweep,

    async stop() {
      cancel();
      await uploads.stop();
    },
  };
}
