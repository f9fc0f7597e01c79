import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
import { TIMED } from '../support/limits.ts';
import { Gone, startRelayProcess, temporaryHome } from '../support/process.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

it('a scan of 200 profiles with 100 skills each leaves the event loop free', TIMED, async () => {
  const directory = await mkdtemp(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'relay-profiles-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const run = (script: string, ...args: string[]) =>
    promisify(execFile)(process.execPath, [join(ROOT, 'test/bench/support', script), ...args]);
  const parts = join(directory, 'parts.mjs');
  await run('rescan-parts.mjs', ROOT, parts);
  const home = join(directory, 'home');
  await mkdir(home);
  const { stdout } = await run('rescan-probe.mjs', home, parts);
  const { cold, blocked, profiles, skills } = JSON.parse(stdout);
  expect([profiles, skills]).toEqual([200, 20_000]);
  expect(blocked).toBeLessThan(20);
  // Runs cold code, once per process, perhaps on a slow machine.
  expect(cold).toBeLessThan(100);
});

it('auth.ok of a client that comes with the first answer of a restarted relay has the profiles (11 §5)', async () => {
  const home = await temporaryHome();
  for (let count = 0; count < 300; count++) {
    await mkdir(join(home, `profiles/p${count}`), { recursive: true });
    await writeFile(join(home, `profiles/p${count}/config.yaml`), `model: {default: m${count}}\n`);
  }
  const relay = await startRelayProcess({ home, flags: ['--pairing-code', 'ABC123'] });
  const paired = await relay.offer({ pairing_code: 'ABC123', device_name: 'Test', device_id: crypto.randomUUID() });
  paired.socket.terminate();
  const { session_token } = paired.frame.payload;
  await relay.kill();
  const again = relay.begin();
  for (;;) {
    const come = await relay.offer({ session_token }).catch((error) => {
      if (!(error instanceof Gone) || !again.running()) throw error;
    });
    if (!come) continue;
    come.socket.terminate();
    expect(come.frame.type).toBe('auth.ok');
    expect(come.frame.payload.profiles).toHaveLength(300);
    return;
  }
});
