import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import type { Storage } from 'unstorage';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createStores } from '../../storage/index.ts';
import type { Stores } from '../../storage/schema.ts';
import { sqlBackend } from '../../storage/sql-backend.ts';
import { openStateFile, StateInUseError } from '../../storage/sqlite.ts';
import { isDamagedLog } from '../../storage/wal.ts';

const FRAME = 24 + 4096;
const WRITES = 12;

let directory: string;
let path: string;
/** The files as a killed relay leaves them. */
let file: Buffer;
let log: Buffer;
/** Length of the log after each write. */
const ends: number[] = [];

const recordsOf = (stores: Stores) => stores.open('sessions') as unknown as Storage<object>;

const fail = (message: string): never => {
  throw new Error(message);
};

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'svc-relay-wal-'));
  path = join(directory, 'state.db');
  const stores = createStores('node', sqlBackend(openStateFile(path, fail)));
  const records = recordsOf(stores);
  for (let at = 0; at < WRITES; at++) {
    await records.setItem(`k${at}`, { at, text: 'x'.repeat(at % 3 === 0 ? 9_000 : 300) });
    ends.push(readFileSync(`${path}-wal`).length);
  }
  // A removal, like a revocation.
  await records.removeItem('k0');
  ends.push(readFileSync(`${path}-wal`).length);
  file = readFileSync(path);
  log = readFileSync(`${path}-wal`);
  stores.close();
});
afterAll(() => rm(directory, { recursive: true, force: true }));

const flipped = (bytes: Buffer, at: number, mask = 0x01): Buffer => {
  const copy = Buffer.from(bytes);
  copy.writeUInt8(copy.readUInt8(at) ^ mask, at);
  return copy;
};

/** The files of a killed relay, with this log, in a directory of their own. */
async function lie(bytes: Buffer): Promise<string> {
  const copy = join(await mkdtemp(join(directory, 'lie-')), 'state.db');
  writeFileSync(copy, file);
  writeFileSync(`${copy}-wal`, bytes);
  return copy;
}

describe('a damaged log', () => {
  it('has a changed byte in any write but the last two', () => {
    const last = ends.at(-3) as number;
    expect(last).toBeGreaterThan(WRITES * FRAME);
    fc.assert(
      fc.property(fc.nat({ max: last - 1 }), fc.integer({ min: 1, max: 255 }), (at, mask) => {
        expect(isDamagedLog(flipped(log, at, mask))).toBe(true);
      }),
      { numRuns: 300 },
    );
  });

  it('has a page of zeros, or a page from elsewhere, inside it', () => {
    const zeros = Buffer.from(log);
    zeros.fill(0, 32 + FRAME, 32 + 2 * FRAME);
    expect(isDamagedLog(zeros)).toBe(true);
    const swapped = Buffer.from(log);
    log.copy(swapped, 32 + FRAME, 32 + 2 * FRAME, 32 + 3 * FRAME);
    expect(isDamagedLog(swapped)).toBe(true);
  });

  it('has a meaningless header before its frames', () => {
    expect(isDamagedLog(Buffer.concat([Buffer.alloc(32), log.subarray(32)]))).toBe(true);
    expect(isDamagedLog(Buffer.concat([Buffer.alloc(32), Buffer.alloc(1)]))).toBe(true);
  });
});

describe('no damage', () => {
  it('is an empty log, a header alone, or a whole log', () => {
    for (const length of [0, 31, 32]) expect(isDamagedLog(log.subarray(0, length))).toBe(false);
    expect(isDamagedLog(log)).toBe(false);
  });

  it('is a log cut anywhere: a kill or a power failure during a write', () => {
    fc.assert(
      fc.property(fc.nat({ max: log.length }), (length) => {
        expect(isDamagedLog(log.subarray(0, length))).toBe(false);
      }),
      { numRuns: 200 },
    );
  });

  it('is a last write whose parts reached the disk in any order', () => {
    const [before, end] = ends.slice(-2) as [number, number];
    fc.assert(
      fc.property(fc.integer({ min: before, max: end - 1 }), fc.integer({ min: before, max: end }), (from, to) => {
        const torn = Buffer.from(log);
        torn.fill(0, Math.min(from, to), Math.max(from, to));
        expect(isDamagedLog(torn)).toBe(false);
      }),
      { numRuns: 200 },
    );
  });

  it('is the rest of an older log behind a restarted one, longer or shorter than it', async () => {
    const renewed = join(directory, 'renewed.db');
    const executor = openStateFile(renewed, fail);
    const records = recordsOf(createStores('node', sqlBackend(executor)));
    for (let at = 0; at < 30; at++) await records.setItem(`k${at}`, { at });
    const whole = readFileSync(`${renewed}-wal`).length;
    executor.all('PRAGMA wal_checkpoint(RESTART)');
    for (let at = 0; at < 45; at++) {
      await records.setItem(`k${at}`, { at: -at });
      expect(isDamagedLog(readFileSync(`${renewed}-wal`)), `after ${at}`).toBe(false);
      if (at === 3) expect(readFileSync(`${renewed}-wal`)).toHaveLength(whole);
    }
    expect(readFileSync(`${renewed}-wal`).length).toBeGreaterThan(whole);
    executor.close?.();
  });
});

describe('a state file with a damaged log (01 §6.7)', () => {
  it('keeps every record before the damage, and a copy of file and log as they were, with one warning', async () => {
    const at = WRITES - 2;
    const damaged = flipped(log, (ends[at] as number) - 100);
    const copy = await lie(damaged);
    const warnings: string[] = [];
    const stores = createStores('node', sqlBackend(openStateFile(copy, (message) => warnings.push(message))));
    const before = Array.from({ length: at }, (_, at) => `k${at}`).sort();
    expect((await recordsOf(stores).getKeys()).sort()).toEqual(before);
    expect(await recordsOf(stores).getItem('k3')).toMatchObject({ at: 3 });
    await recordsOf(stores).setItem('new', { it: 1 });
    stores.close();
    const [aside, ...more] = (await readdir(dirname(copy))).filter((name) => /corrupt-\d+$/.test(name));
    expect(more).toEqual([]);
    const kept = join(dirname(copy), String(aside));
    expect(readFileSync(kept).equals(file)).toBe(true);
    expect(readFileSync(`${kept}-wal`).equals(damaged)).toBe(true);
    expect(warnings).toEqual([expect.stringContaining(kept)]);
    const again = createStores('node', sqlBackend(openStateFile(copy, fail)));
    expect((await again.open('sessions').getKeys()).sort()).toEqual([...before, 'new'].sort());
    again.close();
  });

  it('is set aside also when the file itself is damaged', async () => {
    const copy = await lie(flipped(log, 40));
    writeFileSync(copy, 'no database at all '.repeat(400));
    const warnings: string[] = [];
    createStores('node', sqlBackend(openStateFile(copy, (message) => warnings.push(message)))).close();
    expect(warnings).toHaveLength(1);
    const names = (await readdir(dirname(copy))).filter((name) => /corrupt-\d+$/.test(name));
    expect(names).toHaveLength(1);
    expect(readFileSync(join(dirname(copy), String(names[0])), 'utf8')).toMatch(/^no database at all/);
  });

  it('is left alone while another relay holds it', async () => {
    const held = join(await mkdtemp(join(directory, 'held-')), 'state.db');
    const executor = openStateFile(held, fail);
    const records = recordsOf(createStores('node', sqlBackend(executor)));
    for (let at = 0; at < 4; at++) await records.setItem(`k${at}`, { at });
    const whole = readFileSync(`${held}-wal`);
    // This is how a reader may see the log in the middle of a write.
    writeFileSync(`${held}-wal`, flipped(whole, 32 + 100));
    const before = await readdir(dirname(held));
    expect(() => openStateFile(held, fail)).toThrow(StateInUseError);
    expect(await readdir(dirname(held))).toEqual(before);
    writeFileSync(`${held}-wal`, whole);
    expect(await records.getKeys()).toHaveLength(4);
    executor.close?.();
  });

  it('is opened normally when its log is whole', async () => {
    const copy = await lie(log);
    const stores = createStores('node', sqlBackend(openStateFile(copy, fail)));
    expect(await recordsOf(stores).getKeys()).toHaveLength(WRITES - 1);
    stores.close();
    copyFileSync(copy, `${copy}-closed`);
    expect(await readdir(dirname(copy))).toEqual(['state.db', 'state.db-closed']);
  });
});
