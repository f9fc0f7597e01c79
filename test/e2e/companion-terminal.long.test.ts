import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeEach, expect, it, vi } from 'vitest';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { paired, run } from '../support/companion-cli.ts';
import { openPty } from '../support/pty.ts';
import { bearer } from '../support/relay.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli/svc.js', import.meta.url));

const pending = cleanups();
let relay: BuiltTarget;
beforeEach(async () => {
  relay = await startBuiltTarget();
  pending.push(() => relay.stop());
});

/** `svc companion run` in a terminal of its own. */
const openCompanion = (home: string, cols: number, rows = 24) =>
  openPty(process.execPath, [PROGRAM, 'companion', 'run', '--master', 'on', '--grant', 'all'], {
    cols,
    rows,
    env: { HOME: home, SVC_HOME: home },
  });

it('asks, shows the screen and stays legible at 40 columns and after a resize', { timeout: 300_000 }, async () => {
  const home = await paired(relay.port);
  const tool = await run(['pair', '--token', '--name', 'curl'], { env: { RELAY_PORT: String(relay.port) } });
  const headers = bearer(tool.stdout.trim());
  const call = (path: string, body: object) =>
    relay.fetch(path, { method: 'POST', headers, body: JSON.stringify(body) });
  const companion = openCompanion(home, 80);
  const answers = () => vi.waitFor(async () => expect((await relay.fetch('/ping', { headers })).status).toBe(200));
  await companion.shows(/^(direct|online).* \| master ON \| grants 10\/10/m);
  await answers();

  // Each run, and each time it is opened, the shop has an empty basket and asks again.
  for (const [key, status] of [
    ['a', 200],
    ['y', 200],
  ] as const) {
    await call('/open_app', { package: 'org.example.notes' });
    await call('/open_app', { package: 'org.example.shop' });
    await call('/tap_text', { text: 'Cups' });
    companion.type('v');
    await companion.shows(
      /┌ Tea shop ─+┐\s+│ Cups, set of four +│\s+│ 18\.00 +│\s+│ \[ Add to basket \] +│\s+│ \[ Buy now \] +│/,
    );
    const answer = call('/tap_text', { text: 'Buy now' });
    if (key === 'a') {
      const asking = await companion.shows(/y allow {2}n deny {2}a always/);
      expect(asking).toMatch(/App +Tea shop \(org\.example\.shop\)\s+Command +POST \/tap_text\s+Allowed +it taps it/);
      // The route stays on the last line while a question is open.
      expect(asking.split('\n').at(-1)).toMatch(/^direct \| master ON/);

      companion.resize(40);
      const narrow = await companion.shows(
        /^\? y allow {2}n deny {2}a always {2}\d+ s\ndirect \| master ON \| grants 10\/10$/m,
      );
      expect(narrow.match(/y allow/g), narrow).toHaveLength(1);
      companion.type(key);
    }
    expect((await answer).status).toBe(status);
    companion.type('v');
    await companion.shows(/┌ Tea shop ─+┐\s+│ Basket +│\s+│ Cups, set of four +│\s+│ \[ Pay \] +│\s+└/);
  }
  for (const columns of [100, 40, 61, 80]) companion.resize(columns);
  companion.type('m');
  const last = await companion.shows(/^direct \| master off \| .* q quit$/m);
  expect(last.match(/\| master off/g)).toHaveLength(1);
  companion.type('q');
  expect(await companion.ended).toBe(0);

  const again = openCompanion(home, 40);
  await again.shows(/direct \| master ON/);
  await answers();
  await call('/open_app', { package: 'org.example.shop' });
  await call('/tap_text', { text: 'Cups' });
  const answer = call('/tap_text', { text: 'Buy now' });
  const asking = await again.shows(/y allow/);
  // Lines end between words.
  expect(asking).toMatch(/"always" stops\n +asking about buy$/m);
  again.type('n');
  expect((await answer).status).toBe(403);
  again.type('q');
  await again.ended;
});

it('asks about a notification, tells the agent on yes, and stops at the kill switch', {
  timeout: 300_000,
}, async () => {
  const home = await paired(relay.port);
  const add = ['add', 'ada', '--app', 'com.android.messaging', '--title', 'ada', '--label', 'Ada writes'];
  for (const words of [add, ['on']]) expect((await run(['companion', 'triggers', ...words], { home })).code).toBe(0);
  const replies = async () => (await (await relay.fetch('/phone/replies?timeout=0')).json()).replies;
  const companion = openCompanion(home, 100);
  await companion.shows(/^(direct|online).* \| triggers ON/m);
  companion.type('s');
  await companion.shows(/Text message from Ada Lovelace: _/);
  companion.type('Tea at four?\r');
  const asking = await companion.shows(/y allow {2}n deny {2}\d+ s/);
  expect(asking).toMatch(
    /What +Ada Lovelace: Tea at four\?\s+App +Messages.*\s+Rule +Ada writes\s+Allowed +it sends its/,
  );
  companion.type('y');
  await companion.shows(/Rule Ada writes: the agent was told/);
  expect(await replies()).toMatchObject([{ text: expect.stringContaining('Text: Tea at four?') }]);

  // The kill switch takes back a question that is open.
  companion.type('sSecond\r');
  await companion.shows(/Ada Lovelace: Second/);
  companion.type('k');
  await companion.shows(/dropped: the trigger was stopped/);
  const stopped = await companion.shows(/Kill switch of the notification triggers is ON/);
  expect(stopped.split('\n').at(-1)).not.toContain('triggers ON');
  companion.type('sThird\r');
  companion.type('e');
  const listed = await companion.shows(/stopped by their kill switch[\s\S]*Latest/);
  expect(listed).toMatch(/stopped before an answer[\s\S]*the agent was told/);
  expect(await replies()).toEqual([]);
  companion.type('q');
  expect(await companion.ended).toBe(0);
});

it('exports a backup with a passphrase that is not shown, and imports it', { timeout: 300_000 }, async () => {
  const home = await paired(relay.port);
  const file = join(home, 'backup.json');
  const open = (words: string[], place: string) =>
    openPty(process.execPath, [PROGRAM, 'companion', ...words], {
      cols: 120,
      env: { HOME: place, SVC_HOME: place },
    });
  const exporting = open(['export', file], home);
  for (const label of ['Passphrase:', 'The same again:']) {
    await exporting.shows(new RegExp(label));
    exporting.type('correct horse battery\r');
  }
  await exporting.shows(/Next, on the other machine/);
  expect(await exporting.ended).toBe(0);
  expect(exporting.output).not.toContain('horse');
  expect((await stat(file)).mode & 0o777).toBe(0o600);

  const importing = open(['import', file], home);
  await importing.shows(/Passphrase:/);
  importing.type('correct horse battery\r');
  await importing.shows(/Replace the pairing with 127\.0\.0\.1:\d+\?.*\[y\/N\]/);
  importing.type('y\r');
  await importing.shows(/^Imported$/m);
  expect(await importing.ended).toBe(0);
  expect(importing.output).not.toContain('horse');
});
