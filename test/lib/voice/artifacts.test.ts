import { mkdir, mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Host } from '../../../lib/host/index.ts';
import { createArtifacts } from '../../../lib/voice/artifacts.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestHost } from '../../support/host.ts';
import { createTestLog } from '../../support/log.ts';

const START = new Date(2026, 0, 2, 3, 4, 5).getTime();
const DAY = 86_400_000;
const host = createTestHost({ agentHome: '/nowhere' });
let home: string;

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'relay-artifacts-'));
});
afterEach(() => rm(home, { recursive: true, force: true }));

function setUp(over: Partial<Host['files']> = {}) {
  const clock = createTestClock(START);
  const log = createTestLog();
  const files = { ...host.files, ...over };
  return { clock, log, artifacts: createArtifacts({ host: { ...host, files }, clock, log }) };
}
const open = (
  artifacts: ReturnType<typeof createArtifacts>,
  prefix: 'voice-output' | 'realtime' | 'realtime-agent' = 'voice-output',
) => artifacts.open({ prefix, scope: { runDir: `${home}/a/runs`, section: {} }, sessionId: 'Ab-C_1234567890xyz' });
const pcm = (...samples: number[]) => new Uint8Array(Int16Array.from(samples).buffer);

/** A disk that takes nothing until it is opened. */
function gated() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const append: typeof host.files.append = (path, bytes) => opened.then(() => host.files.append(path, bytes));
  return { open: () => open(), append };
}

describe('an event log (contract 05 §15)', () => {
  it('has one line per event: sorted keys, unix_ms, audio by its size; private', async () => {
    const { artifacts } = setUp();
    const session = open(artifacts);
    expect(session.logPath).toBe(`${home}/a/runs/voice-output-20260102-030405-AbC123456789.jsonl`);
    session.record({
      type: 'voice.audio.delta',
      event_id: 1,
      byte_count: 6,
      audio_base64: 'QUJDREVG',
      ä: { z: 1, b: 2 },
    });
    session.record({ type: 'voice.audio.done', event_id: 2 });
    await session.settled();
    const lines = (await readFile(session.logPath, 'utf8')).split('\n');
    expect(lines).toEqual([
      `{"audio_base64":"<6 bytes>","byte_count":6,"event_id":1,"type":"voice.audio.delta","unix_ms":${START},"\\u00e4":{"b":2,"z":1}}`,
      `{"event_id":2,"type":"voice.audio.done","unix_ms":${START}}`,
      '',
    ]);
    expect((await stat(session.logPath)).mode & 0o777).toBe(0o600);
    expect((await stat(`${home}/a/runs`)).mode & 0o777).toBe(0o700);
    expect((await stat(`${home}/a`)).mode & 0o777).toBe(0o700);
  });

  it('writes in order, whatever the disk does', async () => {
    let pending = 0;
    const { artifacts } = setUp({
      append: async (path, bytes) => {
        expect(++pending).toBe(1);
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 3));
        await host.files.append(path, bytes);
        pending--;
      },
    });
    const session = open(artifacts);
    for (let count = 0; count < 50; count++) {
      session.record({ type: 'x', event_id: count });
      if (count % 7 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    await session.settled();
    const lines = (await readFile(session.logPath, 'utf8')).trim().split('\n');
    expect(lines.map((line) => JSON.parse(line).event_id)).toEqual(Array.from({ length: 50 }, (_, at) => at));
  });

  it('gathers audio for a quarter of a second or MiB, and writes everything else at once', async () => {
    const sizes: number[] = [];
    const { artifacts, clock } = setUp({ append: async (_path, bytes) => void sizes.push(bytes.length) });
    const session = open(artifacts);
    session.startAudio(24_000);
    for (let frame = 0; frame < 10; frame++) session.audio(new Uint8Array(1000));
    await clock.advanceAsync(249);
    expect(sizes).toEqual([]);
    await clock.advanceAsync(1);
    await vi.waitFor(() => expect(sizes).toEqual([44 + 10_000]));
    session.audio(new Uint8Array(256 * 1024));
    await vi.waitFor(() => expect(sizes).toHaveLength(2));
    session.audio(new Uint8Array(2));
    session.record({ type: 'voice.error' });
    await vi.waitFor(() => expect(sizes).toHaveLength(4));
    await session.settled();
    expect(clock.pending).toBe(0);
  });

  it('fails quietly, once', async () => {
    await writeFile(`${home}/a`, 'a file where the directory should be');
    const { artifacts, log } = setUp();
    const session = open(artifacts);
    session.record({ type: 'x' });
    await session.settled();
    session.record({ type: 'y' });
    expect(session.startAudio(16_000)).toMatch(/\.wav$/);
    session.audio(pcm(1));
    session.endAudio();
    await session.settled();
    expect(log.lines.filter((line) => line.includes('no longer recorded'))).toHaveLength(1);
    expect(log.lines.join()).not.toContain(home);
  });

  it('is named once it is there as a whole, and not at all when it is not to be (issue 23, 3.2)', async () => {
    const { open: gate, append } = gated();
    const slow = setUp({ append });
    const session = open(slow.artifacts);
    const path = session.startAudio(16_000);
    session.audio(pcm(1, 2));
    let saved: string | undefined;
    const saving = session.savedAudio(path).then((named) => {
      saved = named;
    });
    await slow.clock.advanceAsync(2999);
    expect(saved).toBeUndefined();
    gate();
    await saving;
    expect(saved).toBe(path);
    const wav = await readFile(path);
    expect([wav.length, wav.readUInt32LE(40)]).toEqual([48, 4]);
    expect(slow.clock.pending).toBe(0);

    const stuck = setUp({ append: () => new Promise(() => {}) });
    const late = open(stuck.artifacts);
    const named = late.savedAudio(late.startAudio(16_000));
    await stuck.clock.advanceAsync(3000);
    expect(await named).toBe('');
    const broken = open(setUp({ append: () => Promise.reject(new Error('disk')) }).artifacts);
    expect(await broken.savedAudio(broken.startAudio(16_000))).toBe('');
  });

  it('goes on when the disk does not keep up, without the rest of the recording', async () => {
    const { open: gate, append } = gated();
    const { artifacts, log } = setUp({ append });
    const session = open(artifacts);
    const path = session.startAudio(16_000);
    for (let count = 0; count < 3000; count++) {
      session.audio(new Uint8Array(4096));
      session.record({ type: 'voice.audio.delta', event_id: count });
    }
    gate();
    await session.settled();
    expect(log.lines.filter((line) => line.includes('ends early'))).toHaveLength(1);
    expect((await readFile(session.logPath, 'utf8')).trim().split('\n')).toHaveLength(3000);
    const wav = await readFile(path);
    expect(wav.length).toBeGreaterThan(7 * 1024 * 1024);
    expect(wav.readUInt32LE(40)).toBe(wav.length - 44);
  });

  it('is given up when its own lines do not leave', async () => {
    const { artifacts, log } = setUp({ append: () => new Promise(() => {}) });
    const session = open(artifacts);
    for (let count = 0; count < 2000; count++) session.record({ type: 'x', text: 'x'.repeat(8192) });
    expect(log.lines.filter((line) => line.includes('no longer recorded: the disk is too slow'))).toHaveLength(1);
  });

  it('takes at most 16 MiB, says so, and has its last line all the same', async () => {
    const { artifacts } = setUp();
    const session = open(artifacts, 'realtime-agent');
    const text = 'x'.repeat(1024 * 1024);
    for (let count = 0; count < 20; count++) {
      session.record({ type: 'x', event_id: count, text });
      await session.settled();
    }
    session.recordEnd({ type: 'closed' });
    await session.settled();
    const lines = (await readFile(session.logPath, 'utf8')).trim().split('\n');
    const types = lines.map((line) => JSON.parse(line).type);
    expect(types).toEqual([...Array(15).fill('x'), 'voice.log.full', 'closed']);
  });

  it('shares 64 MiB with the others, which come back when the disk does', async () => {
    const { open: release, append } = gated();
    const { artifacts, log } = setUp({ append });
    const given = () => log.lines.filter((line) => line.includes('too slow')).length;
    const record = () => {
      const session = artifacts.open({
        prefix: 'realtime',
        scope: { runDir: home, section: {} },
        sessionId: crypto.randomUUID(),
      });
      session.startAudio(8000);
      for (let count = 0; count < 7 * 256; count++) session.audio(new Uint8Array(4096));
      return session;
    };
    const sessions = Array.from({ length: 10 }, record);
    expect(given()).toBe(1);
    release();
    await Promise.all(sessions.map((session) => session.settled()));
    await Promise.all(Array.from({ length: 9 }, record).map((session) => session.settled()));
    expect(given()).toBe(1);
  });
});

describe('a recording', () => {
  it('is a WAV that can be read before and after it is complete', async () => {
    const { artifacts } = setUp();
    const session = open(artifacts);
    const path = session.startAudio(16_000);
    expect(path).toBe(`${home}/a/runs/voice-output-20260102-030405-AbC123456789.wav`);
    session.audio(pcm(1, -2));
    await session.settled();
    const partial = await readFile(path);
    expect([partial.length, partial.readUInt32LE(40)]).toEqual([48, 0xffffffff]);
    session.audio(pcm(3));
    session.endAudio();
    await session.settled();
    const whole = await readFile(path);
    expect([whole.length, whole.readUInt32LE(4), whole.readUInt32LE(24), whole.readUInt32LE(40)]).toEqual([
      50, 42, 16_000, 6,
    ]);
    expect(new Int16Array(whole.buffer.slice(whole.byteOffset + 44, whole.byteOffset + 50))).toEqual(
      Int16Array.of(1, -2, 3),
    );
    expect((await stat(path)).mode & 0o777).toBe(0o600);
  });

  it('does not overwrite an earlier one of its session', async () => {
    const { artifacts } = setUp();
    const session = open(artifacts, 'realtime');
    const paths = [1, 2, 3].map((sample) => {
      const path = session.startAudio(8000);
      session.audio(pcm(sample));
      return path;
    });
    session.endAudio();
    await session.settled();
    expect(paths.map((path) => path.slice(path.lastIndexOf('/') + 1))).toEqual([
      'realtime-20260102-030405-AbC123456789.wav',
      'realtime-20260102-030405-AbC123456789-2.wav',
      'realtime-20260102-030405-AbC123456789-3.wav',
    ]);
    for (const [at, path] of paths.entries()) expect((await readFile(path)).readInt16LE(44)).toBe(at + 1);
  });
});

describe('retention', () => {
  it('removes old artifacts at the start and daily, and nothing else', async () => {
    const { artifacts, clock } = setUp();
    await mkdir(`${home}/runs`);
    const days = {
      'voice-output-20250101-120000-AbC.jsonl': 15,
      'voice-output-20250101-120000-AbC.wav': 15,
      'realtime-20250101-120000-AbC-2.wav': 15,
      'voice-output-20251231-120000-New.wav': 13,
      'notes.wav': 100,
      'voice-output-mine.wav': 100,
    };
    for (const [name, age] of Object.entries(days)) {
      await writeFile(`${home}/runs/${name}`, '');
      await utimes(`${home}/runs/${name}`, START / 1000, START / 1000 - age * 86_400);
    }
    artifacts.start([
      { runDir: `${home}/runs`, section: {} },
      { runDir: `${home}/none`, section: { run_retention_days: 1 } },
    ]);
    const left = async () => (await readdir(`${home}/runs`)).sort();
    await vi.waitFor(async () =>
      expect(await left()).toEqual(['notes.wav', 'voice-output-20251231-120000-New.wav', 'voice-output-mine.wav']),
    );
    await clock.advanceAsync(2 * DAY);
    await vi.waitFor(async () => expect(await left()).toEqual(['notes.wav', 'voice-output-mine.wav']));
    artifacts.stop();
    expect(clock.pending).toBe(0);
  });
});

it('keeps files for as long as their section says', async () => {
  const { artifacts, clock } = setUp();
  artifacts.open({
    prefix: 'realtime',
    scope: { runDir: `${home}/runs`, section: { run_retention_days: '2' } },
    sessionId: 'x',
  });
  const path = `${home}/runs/realtime-20250101-120000-AbC.wav`;
  await mkdir(`${home}/runs`);
  await writeFile(path, '');
  await utimes(path, START / 1000, START / 1000);
  artifacts.start([]);
  await clock.advanceAsync(2 * DAY);
  expect(await readdir(`${home}/runs`)).toHaveLength(1);
  await clock.advanceAsync(DAY);
  await vi.waitFor(async () => expect(await readdir(`${home}/runs`)).toEqual([]));
  artifacts.stop();
});

it('sweeps its directory when a session begins, at most once a minute (contract 06 §10)', async () => {
  const { artifacts, clock } = setUp();
  const old = `${home}/runs/realtime-agent-20250101-120000-AbC.jsonl`;
  const write = async () => {
    await mkdir(`${home}/runs`, { recursive: true });
    await writeFile(old, '');
    await utimes(old, START / 1000, START / 1000 - 20 * 86_400);
  };
  const begin = (section = {}) =>
    artifacts.open({ prefix: 'realtime-agent', scope: { runDir: `${home}/runs`, section }, sessionId: 'x' });
  const left = () => readdir(`${home}/runs`);
  await write();
  begin({ run_retention_days: 0 });
  clock.advance(60_000);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(await left()).toHaveLength(1);
  begin();
  await vi.waitFor(async () => expect(await left()).toEqual([]));
  await write();
  clock.advance(59_999);
  begin();
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(await left()).toHaveLength(1);
  clock.advance(1);
  begin();
  await vi.waitFor(async () => expect(await left()).toEqual([]));
});

it('keeps the newest 2000 files', async () => {
  const { artifacts } = setUp();
  await mkdir(`${home}/runs`);
  const names = Array.from({ length: 2010 }, (_, at) => {
    const stamp = `20260101-${String(at).padStart(6, '0')}`;
    return at % 2 === 0 ? `voice-output-${stamp}-AbC.wav` : `realtime-agent-${stamp}-AbC.jsonl`;
  });
  await Promise.all([...names, 'notes.txt'].map((name) => writeFile(`${home}/runs/${name}`, '')));
  artifacts.start([{ runDir: `${home}/runs`, section: {} }]);
  await vi.waitFor(async () => {
    expect((await readdir(`${home}/runs`)).sort()).toEqual([...names.slice(10), 'notes.txt'].sort());
  });
  artifacts.stop();
});

it('keeps nothing without a host', async () => {
  const artifacts = createArtifacts({ clock: createTestClock(), log: createTestLog() });
  const session = open(artifacts);
  session.record({ type: 'x' });
  expect([session.logPath, session.startAudio(8000)]).toEqual(['', '']);
  artifacts.start([]);
  await session.settled();
});
