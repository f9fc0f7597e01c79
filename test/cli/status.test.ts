import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { agentHome, fakeRelay } from '../support/cli.ts';
import { run } from '../support/companion-cli.ts';
import { createTestHost } from '../support/host.ts';

const ANSWERS: Record<string, unknown> = {
  '/health': { status: 'ok', version: '1.0.0', readiness: { ready: true } },
  '/relay/devices': { devices: [] },
};

/** `svc status` of a relay whose `/relay/info` says `info`, on a machine whose host differs by `host`. */
async function status({ info = {}, free = 5e9, locked = false }: { info?: object; free?: number; locked?: boolean }) {
  const home = agentHome();
  const { machine, files } = createTestHost({ agentHome: home });
  const relay = await fakeRelay(({ path }) => ({ body: path === '/relay/info' ? info : (ANSWERS[path] ?? {}) }));
  const folder = join(home, 'state');
  await mkdir(folder);
  const host = {
    machine: { ...machine, space: async () => ({ free, total: 1e12 }) },
    files: { ...files, isWritable: async () => !locked },
  };
  const env = { RELAY_PORT: String(relay.port), RELAY_STATE_FILE: join(folder, 'state.db') };
  const text = (await run(['status'], { home, env, host, columns: 200 })).stdout;
  const { stdout } = await run(['status', '--json'], { home, env, host });
  const nobody = await run(['status', '--json'], { home, env: { ...env, RELAY_PORT: '1' }, host });
  return { folder, text, json: JSON.parse(stdout), stopped: JSON.parse(nobody.stdout) };
}

it('contract 11 §5: a full disk shows with the next step, and one that is nearly full', async () => {
  const full = await status({ free: 1e6 });
  expect(full.text).toContain(`Disk       0 MB free for the state in ${full.folder}\n`);
  const next = `Make room there. See it with: df -h ${full.folder}`;
  expect(full.text.replace(/\s+/g, ' ')).toContain(next);
  const disk = { status: 'error', problem: `0 MB free for the state in ${full.folder}`, next };
  expect(full.json).toMatchObject({ ok: true, disk, next });
  expect(full.stopped).toMatchObject({ ok: false, disk, next });
  const nearly = await status({ free: 1e8 });
  expect(nearly.json).toMatchObject({
    disk: { status: 'warn' },
    next: `Make room there. See it with: df -h ${nearly.folder}`,
  });
  expect(nearly.stopped.next).toContain('svc up');
  const enough = await status({});
  expect(enough.text).not.toMatch(/Disk|Clock/);
  expect(enough.json).toMatchObject({ disk: null, relay: { clock: null }, next: 'Pair a phone with: svc pair' });
});

it('contract 11 §5: a state that is read-only shows with the next step', async () => {
  const { folder, text, json } = await status({ locked: true });
  expect(text).toContain(`Disk       ${folder} is not writable\n`);
  expect(json.next).toBe(`Make it writable for this user. See it with: ls -ld ${folder}`);
});

it('contract 11 §5: a clock that is behind or stopped shows with the next step', async () => {
  const clock_problem = { state: 'stopped', reads_at: 1_790_000_000, last_write: 1_790_000_000, kept_aside: 0 };
  const stopped = await status({ info: { clock_problem } });
  expect(stopped.text).toContain(
    'Clock      the clock reads 2026-09-21 14:13 UTC, and stands still: nothing ends on time\n',
  );
  expect(stopped.json.relay.clock).toEqual(clock_problem);
  expect(stopped.json.next).toContain('timedatectl set-ntp true');
  const behind = await status({ info: { clock_problem: { ...clock_problem, state: 'behind' } } });
  expect(behind.text).toMatch(/Clock +the clock reads .* before the last write/);
});

it('contract 11 §5: the disk of a relay elsewhere shows as that relay says', async () => {
  const disk_problem = { status: 'error', problem: '0 MB free for the state in /data', next: 'Make room there.' };
  const relay = await fakeRelay(({ path }) => ({
    body: path === '/relay/info' ? { disk_problem } : (ANSWERS[path] ?? {}),
  }));
  const words = ['status', '--relay', `http://localhost:${relay.port}`];
  const { stdout } = await run([...words, '--json'], {});
  expect(JSON.parse(stdout)).toMatchObject({ ok: true, disk: disk_problem, next: 'Make room there.' });
  expect((await run(words, {})).stdout).toContain('Disk       0 MB free for the state in /data\n');
});
