import { concatBytes } from '../../lib/kit/bytes.ts';
import type { MediaBytes } from '../../lib/media/media.ts';

const turn = () => new Promise<void>((resolve) => setTimeout(resolve, 0));
const never = () => new Promise<never>(() => {});

/** Bytes of media in memory, with the faults of a disk. They outlive the process that wrote them, which may be killed. */
export class MemoryBytes {
  readonly files = new Map<string, Uint8Array>();
  /** Each read gives other bytes. */
  isDamaged = false;
  /** Every write fails. */
  isFull = false;
  /** Number of files that were created. */
  created = 0;
  #life = 0;

  /** The view of a new process. Work that an earlier one has under way never ends. */
  life(): MediaBytes {
    const life = ++this.#life;
    const step = async () => {
      await turn();
      if (life !== this.#life) await never();
    };
    const create = async (place: string) => {
      await step();
      const chunks: Uint8Array[] = [];
      this.files.set(place, new Uint8Array());
      return {
        write: async (bytes: Uint8Array) => {
          await step();
          if (this.isFull) throw Object.assign(new Error('ENOSPC: no space left'), { code: 'ENOSPC' });
          chunks.push(bytes);
        },
        finish: async () => {
          await step();
          this.files.set(place, concatBytes(...chunks));
          await step();
          return place;
        },
        discard: async () => {
          await step();
          this.files.delete(place);
        },
      };
    };
    const newPlace = () => `f${++this.created}`;
    return {
      maxUploads: 4,
      newPlace,
      create,
      accept: async (place) => place,
      open: async (place) => {
        const bytes = this.files.get(place);
        if (!bytes) return null;
        const read = this.isDamaged ? bytes.map((byte) => byte ^ 1) : bytes;
        return {
          size: bytes.length,
          modified: 0,
          tag: place,
          head: async (length) => read.subarray(0, length),
          body: async (start, end) => {
            await step();
            return new Response(read.slice(start, end + 1)).body as ReadableStream<Uint8Array<ArrayBuffer>>;
          },
          close: async () => {},
        };
      },
      remove: async (place) => {
        await step();
        this.files.delete(place);
      },
      durable: { create: () => create(newPlace()), locations: async () => [...this.files.keys()] },
    };
  }
}
