import { spawnSync } from 'node:child_process';
import { appendFileSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished, type TestContext, vi } from 'vitest';
import { openStateFile } from '../../storage/sqlite.ts';
import { TIMED } from '../support/limits.ts';
import { Gone, launch, type RelayProcess, startRelayProcess } from '../support/process.ts';
import { randomCode } from '../support/relay.ts';

const pairDevice = async (relay: RelayProcess, device: string = crypto.randomUUID()) => {
  const code = randomCode();
  await relay.ask('/pairing/register', { method: 'POST', body: { code } });
  const { frame, socket } = await relay.offer({ pairing_code: code, device_id: device });
  socket.terminate();
  expect(frame.type).toBe('auth.ok');
  return frame.payload.session_token as string;
};

const stateOf = async (relay: RelayProcess) => (await relay.ask('/health')).json.readiness.checks.session_store;
const statusOf = async (relay: RelayProcess, token: string) =>
  (await relay.ask('/sessions', { headers: { authorization: `Bearer ${token}` } })).status;

const SYNCS = 'fsync,fdatasync';

/** Traces system calls of a running process, and optionally interferes with them. Skips the test where strace cannot. */
async function trace(context: TestContext, pid: number, calls: string, inject?: string) {
  const interfere = inject === undefined ? [] : ['-e', `inject=${calls}:${inject}`];
  const tracer = launch('strace', ['-f', '-p', String(pid), '-e', `trace=${calls}`, ...interfere], {
    PATH: process.env.PATH ?? '',
  });
  try {
    await tracer.prints(/attached/);
  } catch (error) {
    context.skip(`FAULT INJECTION NOT TESTED: strace cannot attach here: ${error}`);
  }
  return {
    end: () => tracer.kill('SIGINT'),
    /** Number of calls so far. */
    count: () => tracer.stderr.match(/\b(?:fsync|fdatasync|pwrite64)\(/g)?.length ?? 0,
  };
}

/** Makes every sync of a running process fail from now on. Returns a function that ends this. */
async function breakDisk(context: TestContext, pid: number): Promise<() => Promise<unknown>> {
  return (await trace(context, pid, SYNCS, 'error=EIO')).end;
}

const NOT_STORED = 'could not be stored: try again later';

/** What a device that asks for a session is told. */
const ask = async (relay: RelayProcess, credentials: Record<string, string>) => {
  const { frame, socket } = await relay.offer(credentials);
  socket.terminate();
  return frame;
};

it('01 §6.7: a disk that fails to sync refuses what it cannot store, and stores what was taken away once it works', async (context) => {
  const relay = await startRelayProcess();
  const [kept, revoked] = [await pairDevice(relay), await pairDevice(relay)];
  const device_id = crypto.randomUUID();
  const code = randomCode();
  await relay.ask('/pairing/register', { method: 'POST', body: { code } });
  expect(await stateOf(relay)).toBe('ok');

  const repair = await breakDisk(context, relay.child.pid);
  expect(await ask(relay, { pairing_code: code, device_id })).toMatchObject({
    type: 'auth.fail',
    payload: { reason: NOT_STORED },
  });
  expect(await stateOf(relay)).toBe('degraded');
  await vi.waitFor(() => expect(relay.child.stderr).toMatch(/\[WARNING\] sessions: .*could not be saved/));
  const end = await relay.ask(`/sessions/${revoked.slice(0, 8)}`, {
    method: 'DELETE',
    headers: { authorization: `Bearer ${revoked}` },
  });
  expect(end).toMatchObject({ status: 503, json: { ok: false, applied: true, stored: false } });
  expect(await statusOf(relay, revoked)).toBe(401);
  expect(await statusOf(relay, kept)).toBe(200);

  await repair();
  await vi.waitFor(async () => expect(await stateOf(relay)).toBe('ok'), 40_000);
  const after = await ask(relay, { pairing_code: code, device_id });
  expect(after.type, 'the code has stayed good').toBe('auth.ok');
  await relay.kill('SIGKILL');
  await relay.restart();
  expect(await statusOf(relay, kept)).toBe(200);
  expect(await statusOf(relay, after.payload.session_token as string)).toBe(200);
  expect(await statusOf(relay, revoked)).toBe(401);
  expect(relay.output).not.toMatch(/damaged|\[ERROR\]/);
});

it('01 §9.2: it stops in time while the disk fails, and loses nothing that was saved', async (context) => {
  const relay = await startRelayProcess();
  const before = await pairDevice(relay);
  const code = randomCode();
  await relay.ask('/pairing/register', { method: 'POST', body: { code } });
  const repair = await breakDisk(context, relay.child.pid);
  expect((await ask(relay, { pairing_code: code })).payload.reason).toBe(NOT_STORED);
  expect(await stateOf(relay)).toBe('degraded');
  const began = performance.now();
  const { signal } = await relay.kill('SIGTERM');
  expect(performance.now() - began).toBeLessThan(5_000);
  expect(signal).toBeNull();
  expect(relay.child.stderr).not.toMatch(/^\s+at |node:internal/m);
  await repair();
  await relay.restart();
  expect(await statusOf(relay, before)).toBe(200);
  expect(await stateOf(relay)).toBe('ok');
});

/** A file system of its own, so small that it is soon full. Skips the test where this user cannot mount one. */
async function smallDisk(context: TestContext) {
  const path = await mkdtemp(join(tmpdir(), 'svc-relay-disk-'));
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=1m,mode=0700', 'tmpfs', path], { encoding: 'utf8' });
  onTestFinished(async () => {
    spawnSync('umount', ['-l', path]);
    await rm(path, { recursive: true, force: true });
  });
  if (mounted.status !== 0) context.skip(`A FULL DISK NOT TESTED: no tmpfs can be mounted here: ${mounted.stderr}`);
  const filler = join(path, 'filler');
  return {
    path,
    fill() {
      const step = Buffer.alloc(1024, 1);
      try {
        for (;;) appendFileSync(filler, step);
      } catch (error) {
        expect((error as NodeJS.ErrnoException).code).toBe('ENOSPC');
      }
    },
    free: () => rm(filler),
  };
}

it('01 §6.7: on a full disk no revocation is acknowledged that a crash would undo', async (context) => {
  const disk = await smallDisk(context);
  const relay = await startRelayProcess({ env: { RELAY_STATE_FILE: join(disk.path, 'state.db') } });
  const [kept, revoked] = [await pairDevice(relay), await pairDevice(relay)];
  disk.fill();
  // The log may have room for some changes: until one fails, each is stored.
  const end = await vi.waitFor(async () => {
    const code = randomCode();
    await relay.ask('/pairing/register', { method: 'POST', body: { code } });
    expect((await ask(relay, { pairing_code: code, device_id: crypto.randomUUID() })).type).toBe('auth.fail');
    return relay.ask(`/sessions/${revoked.slice(0, 8)}`, {
      method: 'DELETE',
      headers: { authorization: `Bearer ${revoked}` },
    });
  }, 20_000);
  expect(end).toMatchObject({ status: 503, json: { applied: true, stored: false } });
  expect(await stateOf(relay)).toBe('degraded');
  await disk.free();
  await vi.waitFor(async () => expect(await stateOf(relay)).toBe('ok'), 40_000);
  await relay.kill('SIGKILL');
  await relay.restart();
  expect(await statusOf(relay, revoked)).toBe(401);
  expect(await statusOf(relay, kept)).toBe(200);
});

it('design 4: a phone that returns causes no sync to disk', async (context) => {
  const relay = await startRelayProcess();
  const token = await pairDevice(relay);
  // Makes the record old: one younger than a minute would not be written anyway.
  await relay.kill('SIGTERM');
  const state = openStateFile(join(relay.home, 'svc-relay', 'state.db'), () => {});
  state.run("UPDATE items SET value = json_set(value, '$.last_seen', 1700000000) WHERE store = 'sessions'");
  state.close?.();
  await relay.restart();
  // What the start wrote moves from the log into the file once nothing has been written for a while.
  const log = join(relay.home, 'svc-relay', 'state.db-wal');
  await vi.waitFor(() => expect(statSync(log, { throwIfNoEntry: false })?.size ?? 0).toBe(0), 30_000);

  const syncs = await trace(context, relay.child.pid, SYNCS);
  for (let visit = 0; visit < 5; visit++) {
    const { frame, socket } = await relay.offer({ session_token: token });
    expect(frame.type).toBe('auth.ok');
    expect(await statusOf(relay, token)).toBe(200);
    socket.terminate();
  }
  expect(syncs.count()).toBe(0);
  // Control: a pairing does cause one.
  await pairDevice(relay);
  await vi.waitFor(() => expect(syncs.count()).toBeGreaterThan(0));
  await syncs.end();

  await relay.kill('SIGTERM');
  await relay.restart();
  const { sessions } = (await relay.ask('/sessions', { headers: { 'x-svc-operator': '1' } })).json;
  const row = sessions.find(({ token_prefix }: { token_prefix: string }) => token_prefix === token.slice(0, 8));
  expect(row.last_seen, 'the last visit was saved at the end').toBeGreaterThan(1_700_000_001);
});

it('design 4: a relay killed at any write of a re-pairing comes back with the old session or the new one', async (context) => {
  const relay = await startRelayProcess();
  const device = crypto.randomUUID();
  let before = await pairDevice(relay, device);
  const prefixes = async () => {
    const { sessions } = (await relay.ask('/sessions', { headers: { 'x-svc-operator': '1' } })).json;
    return sessions.map((row: { token_prefix: string }) => row.token_prefix);
  };
  let kills = 0;
  for (let write = 1; ; write++) {
    const killer = await trace(context, relay.child.pid, 'pwrite64', `signal=KILL:when=${write}`);
    const unlessGone = (error: unknown): undefined => {
      if (!(error instanceof Gone)) throw error;
    };
    const fresh = await pairDevice(relay, device).catch(unlessGone);
    // The write may also be one after the answer.
    const shown = fresh && (await prefixes().catch(unlessGone));
    if (fresh !== undefined && shown !== undefined) {
      await killer.end();
      expect(shown).toEqual([fresh.slice(0, 8)]);
      break;
    }
    kills++;
    await relay.restart();
    const left = await prefixes();
    expect(left, `after a kill at write ${write}`).toHaveLength(1);
    // An answered pairing survives the kill.
    if (fresh !== undefined) expect(left).toEqual([fresh.slice(0, 8)]);
    if (left[0] === before.slice(0, 8)) expect(await statusOf(relay, before)).toBe(200);
    else expect(await statusOf(relay, before)).toBe(401);
    before = await pairDevice(relay, device);
  }
  expect(kills).toBeGreaterThan(0);
  expect(relay.output).not.toMatch(/damaged/);
});

it('design 4: a slow sync delays those who wait for it, and nobody else', TIMED, async (context) => {
  const relay = await startRelayProcess();
  const token = await pairDevice(relay);
  const slow = await trace(context, relay.child.pid, SYNCS, 'delay_exit=200000');
  let isDone = false;
  const writing = (async () => {
    const init = { method: 'POST', body: { text: 'hello' }, headers: { authorization: `Bearer ${token}` } };
    for (let count = 0; count < 10; count++) await relay.ask('/phone/message', init);
  })().finally(() => {
    isDone = true;
  });
  const times: number[] = [];
  while (!isDone) {
    const began = performance.now();
    await relay.ask('/health');
    times.push(performance.now() - began);
  }
  await writing;
  await slow.end();
  times.sort((a, b) => a - b);
  context.annotate?.(
    `${times.length} answers of /health, p50 ${times[times.length >> 1]}, p99 ${times.at(-Math.ceil(times.length / 100))} ms`,
  );
  expect(times.length).toBeGreaterThan(40);
  expect(times[Math.floor(times.length * 0.9)]).toBeLessThan(100);
});
