import type { Store } from '../../storage/schema.ts';
import type { Config } from '../config.ts';
import { describeError, RelayError } from '../errors.ts';
import { bytesToHex, randomBytes } from '../kit/bytes.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import { type Media, openSharedMedia } from './media.ts';
import { createObject, openObject } from './object-bytes.ts';
import type { ObjectStore } from './objects.ts';

/** Each upload holds a part of 5 MiB in memory, and a Durable Object has 128 MB. */
const MAX_UPLOADS = 8;
const MIN_WAIT = 60_000;

export interface ObjectMediaDeps {
  objects: ObjectStore;
  /** Prefix of this relay's keys: several relays may share a bucket. */
  prefix: string;
  store: Store<'media'>;
  config: Config;
  clock: Clock;
  log: Log;
}

const hostOnly = () => new RelayError('unsupported', 'this relay runs without a host, so it cannot serve its files');

/** Media of a relay without a host: uploads only, their bytes in an object store. */
export async function openObjectMedia({ objects, prefix, ...deps }: ObjectMediaDeps): Promise<Media> {
  const { clock, log } = deps;
  const shared = await openSharedMedia({
    ...deps,
    bytes: {
      maxUploads: MAX_UPLOADS,
      newPlace: () => `${prefix}/${bytesToHex(randomBytes(16))}`,
      create: async (key) => createObject(objects, key),
      accept: async (key) => key,
      open: (key) => openObject(objects, key),
      remove: (key) => objects.delete(key),
    },
  });
  let cancel: Cancel = () => {};

  async function sweep(): Promise<void> {
    await shared.sweep();
    schedule();
  }

  /** Sets an alarm for the next removal, never so soon that the timer keeps the object awake. */
  function schedule(): void {
    cancel();
    const next = shared.index.nextSweep();
    if (next === undefined) return;
    const failed = (error: unknown) => log.error(`media sweep failed: ${describeError(error)}`);
    cancel = clock.after(Math.max(MIN_WAIT, next * 1000 - clock.now()), () => void sweep().catch(failed));
  }
  schedule();

  return {
    ...shared,
    register: () => Promise.reject(hostOnly()),
    openPath: () => Promise.reject(hostOnly()),
    folder: () => Promise.reject(hostOnly()),
    recent: () => Promise.reject(hostOnly()),

    shared: {
      ...shared.shared,
      // Orphaned bytes determine the next alarm.
      async release(token) {
        await shared.shared.release(token);
        schedule();
      },
    },

    async upload(body) {
      const entry = await shared.upload(body);
      schedule();
      return entry;
    },

    sweep,
    start() {},

    async stop() {
      cancel();
      await shared.stop();
    },
  };
}
