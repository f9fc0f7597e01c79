import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { seeded } from '../support/flaky-proxy.ts';
import { Gone, startRelayProcess } from '../support/process.ts';

const LIVES = 4;
const PUTS_PER_LIFE = 500;
/** Additional short runs while no kill has hit a write. */
const MORE_LIVES = 30;
const PUTS_PER_MORE = 50;
const SEED = Number(process.env.SURVIVE_SEED) || Date.now() % 1_000_000;

/** On a memory file system where possible. A killed process loses nothing written to it, and fsync is fast. */
async function quickHome(): Promise<string> {
  const home = await mkdtemp(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'svc-relay-e2e-'));
  onTestFinished(() => rm(home, { recursive: true, force: true }));
  return home;
}

it(`kill -9 amid thousands of PUTs leaves every file whole (07 §1.5), seed ${SEED}`, { timeout: 480_000 }, async () => {
  const random = seeded(SEED);
  const home = await quickHome();
  const files = ['SOUL.md', 'memories/MEMORY.md', 'memories/a.md', 'profiles/p/SOUL.md', 'profiles/p/memories/b.md'];
  for (const file of files) {
    await mkdir(dirname(join(home, file)), { recursive: true });
    await writeFile(join(home, file), 'start');
  }
  const routes = files.map((file) => {
    const [profile, path] = file.startsWith('profiles/p/')
      ? ['p', file.slice('profiles/p/'.length)]
      : ['default', file];
    return `/api/profiles/${profile}/${path === 'SOUL.md' ? 'soul' : path?.replace('memories', 'memory')}`;
  });
  const relay = await startRelayProcess({ home });
  const code = 'KILLME';
  expect((await relay.ask('/pairing/register', { method: 'POST', body: { code } })).status).toBe(200);
  const { frame, socket } = await relay.offer({ pairing_code: code, device_id: crypto.randomUUID(), device_name: 'T' });
  socket.terminate();
  const headers = { authorization: `Bearer ${frame.payload.session_token}` };

  const answered = files.map(() => 'start');
  let puts = 0;
  let left = 0;
  for (let life = 0; life < LIVES || (left === 0 && life < LIVES + MORE_LIVES); life++) {
    const flying: (string | undefined)[] = files.map(() => undefined);
    const goal = puts + (life < LIVES ? PUTS_PER_LIFE : PUTS_PER_MORE);
    let etag: string | undefined;
    const writer = async (at: number) => {
      for (;;) {
        const content = `${life} ${puts} ${'x'.repeat(Math.floor(random() * 60_000))} end`;
        flying[at] = content;
        try {
          const answer = await relay.ask(routes[at] ?? '', { method: 'PUT', headers, body: { content } });
          expect(answer.status).toBe(200);
          etag = answer.json.etag;
        } catch (error) {
          if (error instanceof Gone) return;
          throw error;
        }
        answered[at] = content;
        flying[at] = undefined;
        if (++puts === goal) void relay.kill();
      }
    };
    await Promise.all(files.map((_, at) => writer(at)));
    await relay.kill();
    expect(etag).toMatch(/^"[0-9a-f]{64}"$/);
    for (const [at, file] of files.entries()) {
      const present = await readFile(join(home, file), 'utf8');
      expect([answered[at], flying[at]]).toContain(present);
      answered[at] = present;
    }
    const temporary = async () => {
      const names = await readdir(home, { recursive: true });
      return names.filter((name) => name.endsWith('.tmp')).length;
    };
    const found = await temporary();
    left += found;
    expect(found).toBeLessThanOrEqual(files.length);
    await relay.restart();
    await vi.waitFor(async () => expect(await temporary()).toBe(0));
  }
  expect(puts).toBeGreaterThanOrEqual(LIVES * PUTS_PER_LIFE);
  // Kills that hit no write would prove nothing.
  expect(left).toBeGreaterThan(0);
});
