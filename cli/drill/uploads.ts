import { randomBytes } from 'node:crypto';
import { pause } from '../pause.ts';
import type { DrillPhone } from './phone.ts';
import type { Stage } from './stage.ts';
import type { Tally, Work } from './tally.ts';

const SENDERS = 4;
/** Bytes. */
const MAX_FILE = 16 * 1024;
/** Milliseconds. */
const PACE = 100;
/** An upload that takes longer is given up, as a person would; its connection ends by itself. */
const TIMEOUT = 5000;
/** Files that are fetched again at the end, where the relay keeps them over its restarts. */
const MAX_STORED = 50;

export interface UploadOptions {
  stage: Stage;
  phone: DrillPhone;
  /** Which run of the relay answers: files of another one are gone on Node (contract 04 §3.1). */
  life(): number;
  /** True if uploads outlive the relay. */
  isDurable: boolean;
}

interface Upload {
  token: string;
  bytes: Buffer;
  life: number;
}

/** Uploads of the phone, each of which is fetched back and compared. */
export function createUploadWork({ stage, phone, life, isDurable }: UploadOptions): Work & { verify(): Promise<void> } {
  const tally: Tally = { kind: 'uploads', sent: 0, acknowledged: 0, repeated: 0, lost: 0, doubled: 0 };
  const stored: Upload[] = [];

  /** Fetches an upload until there is an answer, and compares it. */
  async function check({ token, bytes, life: own }: Upload, signal?: AbortSignal): Promise<void> {
    while (!signal?.aborted && (isDurable || life() === own)) {
      const before = life();
      const fetched = await phone.media.fetchMedia({ token }).catch((error: Error) => error);
      if (!(fetched instanceof Error)) {
        if (Buffer.compare(fetched.bytes, bytes) === 0) return;
        tally.lost++;
        return stage.note(`an upload came back with ${fetched.bytes.length} other bytes than the ${bytes.length} sent`);
      }
      if (/^the relay answered (?:404|410)\b/.test(fetched.message) && (isDurable || before === life())) {
        tally.lost++;
        return stage.note('an upload that was acknowledged is not there');
      }
      await pause(PACE, signal);
    }
  }

  async function send(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const bytes = randomBytes(1 + Math.floor(Math.random() * MAX_FILE));
      tally.sent++;
      const before = life();
      const file = { name: `drill-${tally.sent}.bin`, type: 'application/octet-stream', bytes };
      const sending = phone.media.upload(file).catch(() => null);
      const result = await Promise.race([sending, pause(TIMEOUT, signal).then(() => null)]);
      if (result && 'token' in result) {
        tally.acknowledged++;
        const upload = { token: result.token, bytes, life: before };
        await check(upload, signal);
        if (isDurable && stored.push(upload) > MAX_STORED) stored.shift();
      } else if (result && result.status < 500 && result.status !== 429)
        stage.note(`an upload was answered with ${result.status}`);
      await pause(PACE, signal);
    }
  }

  return {
    run: async (signal) => void (await Promise.all(Array.from({ length: SENDERS }, () => send(signal)))),
    /** Fetches the last uploads again, over a network that works. */
    async verify() {
      for (const upload of stored) await check(upload);
    },
    isSettled: () => true,
    tallies: () => [tally],
  };
}
