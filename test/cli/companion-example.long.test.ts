import { readFile } from 'node:fs/promises';
import { beforeEach, expect, it, vi } from 'vitest';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { begin, paired, run } from '../support/companion-cli.ts';
import { bearer } from '../support/relay.ts';

const pending = cleanups();
let relay: BuiltTarget;
beforeEach(async () => {
  relay = await startBuiltTarget();
  pending.push(() => relay.stop());
});

/** The calls of the example in cli/README.md, in order: path and body. */
async function exampleCalls(): Promise<[path: string, body: string | undefined][]> {
  const section = (await readFile('cli/README.md', 'utf8')).split('## Try it without a phone')[1] ?? '';
  return [...section.matchAll(/^phone \$R(\/\S+)(?: -d '([^']+)')?/gm)].map(([, path = '', body]) => [path, body]);
}

it('the companion shows every call of the example in cli/README.md', { timeout: 300_000 }, async () => {
  const calls = await exampleCalls();
  expect(calls.length).toBeGreaterThan(10);
  const home = await paired(relay.port);
  const token = (
    await run(['pair', '--token', '--name', 'curl'], { env: { RELAY_PORT: String(relay.port) } })
  ).stdout.trim();
  const companion = begin(['companion', 'run', '--master', 'on', '--grant', 'all'], { home, tty: true });
  await companion.prints(/online: [^|]*\| master ON/);
  await companion.prints(/master ON \| grants 10\/10/);
  await vi.waitFor(async () => expect((await relay.fetch('/ping', { headers: bearer(token) })).status).toBe(200));

  const answers: [path: string, status: number, text: string][] = [];
  const keys = ['n', 'y'];
  for (const [path, body] of calls) {
    const before = companion.stdout.length;
    const asked = relay
      .fetch(path, { method: body === undefined ? 'GET' : 'POST', headers: bearer(token), body })
      .then(async (response) => answers.push([path, response.status, await response.text()]));
    if (body?.includes('Buy now')) {
      await vi.waitFor(() => expect(companion.stdout.slice(before)).toMatch(/y allow {2}n deny/));
      companion.type(keys.shift() ?? 'n');
    }
    await asked;
    await companion.prints(new RegExp(`${path} `));
  }
  const shown = JSON.stringify(answers, null, 1);
  expect(
    answers.map(([, status]) => status),
    shown,
  ).toEqual([...calls.slice(0, -3).map(() => 200), 403, 200, 200]);
  expect(JSON.parse(answers.at(-3)?.[2] ?? '')).toMatchObject({
    error: 'user denied destructive action',
    reason: 'confirmation_denied_or_timeout',
  });
  const screens = answers.filter(([path]) => path === '/screen').map(([, , text]) => text);
  expect(screens.at(-2)).toContain('Call the plumber');
  expect(screens.at(-1)).toContain('Basket');
  // Typed text is not shown.
  expect(companion.stdout).not.toContain('plumber');

  companion.type('m');
  await companion.prints(/Master toggle is off/);
  const off = await relay.fetch('/screen', { headers: bearer(token) });
  expect([off.status, (await off.json()).error_code]).toEqual([403, 'bridge_disabled']);
  companion.type('q');
  expect((await companion.ended).code).toBe(0);
});
