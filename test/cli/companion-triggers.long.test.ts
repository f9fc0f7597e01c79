import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { agentHome } from '../support/cli.ts';
import { begin, paired, run } from '../support/companion-cli.ts';

const place = (home: string) => join(home, 'companion/settings.json');
const fileOf = async (home: string) => JSON.parse(await readFile(place(home), 'utf8'));
const triggers = async (home: string, ...words: string[]) => {
  const { code, stdout, stderr } = await run(['companion', 'triggers', ...words, '--json'], { home });
  expect([code, stderr]).toEqual([0, '']);
  return JSON.parse(stdout);
};
const ADD = ['add', 'ada', '--app', 'com.android.messaging', '--title', 'ada', '--label', 'Ada writes'];
const RULE = {
  id: 'ada',
  label: 'Ada writes',
  enabled: true,
  app_package: 'com.android.messaging',
  title_contains: 'ada',
  action: 'ask_me',
  require_confirmation: false,
};

describe('svc companion triggers', () => {
  it('keeps rules and toggles under the keys of the specification, and names the next step', async () => {
    const home = agentHome();
    const off = await run(['companion', 'triggers'], { home });
    expect(off.stdout).toMatch(/^Notification triggers are off\.\nNext: svc companion triggers add --app /);
    expect(await triggers(home, ...ADD)).toMatchObject({ rules: [RULE], problem: null, activity: [] });
    await triggers(home, 'add', '--app', 'org.example.shop', '--text', 'x y');
    const { notification_triggers: stored } = await fileOf(home);
    expect(Object.keys(stored)).toEqual([
      'notification_triggers_enabled',
      'notification_triggers_kill_switch',
      'notification_trigger_rules_json',
      'notification_trigger_activity_log_json',
    ]);
    expect(JSON.parse(stored.notification_trigger_rules_json)).toMatchObject([
      RULE,
      { id: 'rule-2', label: 'org.example.shop', text_contains: 'x y' },
    ]);
    expect((await run(['companion', 'triggers'], { home })).stdout).toMatch(
      /Next: switch them on with .* triggers on\n/,
    );
    await triggers(home, 'disable', 'ada');
    const on = await run(['companion', 'triggers', 'on'], { home });
    expect(on.stdout).toMatch(
      /^Notification triggers are on\.\n {2}ada +off +com\.android\.messaging +Ada writes \(title contains "ada"\)\n/,
    );
    expect((await triggers(home, 'enable', 'ada')).rules[0]).toEqual(RULE);
    const killed = await run(['companion', 'triggers', 'kill'], { home });
    expect(killed.stdout).toMatch(
      /^Notification triggers are stopped by their kill switch\.[\s\S]*Next: .* triggers resume\n/,
    );
    expect((await triggers(home, 'resume')).notification_triggers).toMatchObject({
      notification_triggers_enabled: true,
      notification_triggers_kill_switch: false,
    });
    expect((await triggers(home, 'remove', 'ada')).rules).toHaveLength(1);
    expect((await triggers(home, 'off')).notification_triggers).toMatchObject({ notification_triggers_enabled: false });
  });

  it.each([
    [['add'], 2, /missing --app/],
    [['add', '--app', 'shop'], 2, /--app: must be a package name/],
    [['add', 'a b', '--app', 'a.b'], 2, /cannot be kept: 0\.id/],
    [['add', '--app', 'a.b', '--title', ' '], 2, /--title.*blank/],
    [['add', '--app', 'a.b', '--text', 'x'.repeat(201)], 2, /cannot be kept: 0\.text_contains/],
    [['add', 'a', 'b', '--app', 'a.b'], 2, /unexpected argument 'b'/],
    [['on', '--app', 'a.b'], 2, /--app is of use with add only/],
    [['remove'], 2, /missing <rules>/],
    [['remove', 'bob'], 1, /there is no rule 'bob'\nList the rules with: svc companion triggers\n$/],
    [['kil'], 2, /unknown action 'kil'.*did you mean 'kill'/],
  ])('%j exits with %i, an error and the next step', async (words, code, error) => {
    const result = await run(['companion', 'triggers', ...words], {});
    expect([result.code, result.stdout, result.stderr]).toEqual([code, '', expect.stringMatching(error)]);
    if (code === 2) expect(result.stderr).toMatch(/--help' for help\.\n$/);
  });

  it('keeps malformed rules as they are until they are cleared, and none of them asks', async () => {
    const home = agentHome();
    await triggers(home, 'on');
    const document = await fileOf(home);
    document.notification_triggers.notification_trigger_rules_json = JSON.stringify([{ ...RULE, action: 'tell' }]);
    await writeFile(place(home), JSON.stringify(document));
    const listed = await run(['companion', 'triggers'], { home });
    expect(listed.stdout).toMatch(/malformed, so none of them asks: 0\.action: [\s\S]*Next: .* triggers clear\n$/);
    const refused = await run(['companion', 'triggers', ...ADD], { home });
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringMatching(/malformed.*\nDelete them all with: .*clear\n$/),
    ]);
    expect((await fileOf(home)).notification_triggers).toEqual(document.notification_triggers);
    expect((await triggers(home, 'clear')).problem).toBeNull();
  });
});

describe('a notification on the phone of svc companion run', () => {
  const pending = cleanups();
  let relay: BuiltTarget;
  beforeEach(async () => {
    relay = await startBuiltTarget();
    pending.push(() => relay.stop());
  });
  const replies = async () =>
    (await (await relay.fetch('/phone/replies?timeout=0')).json()).replies as Record<string, unknown>[];
  const note = (title: string) =>
    `${JSON.stringify({ notification: { package_name: 'com.android.messaging', title, text: 'Tea at four?' } })}\n`;

  async function start(...more: string[]) {
    const home = await paired(relay.port);
    await triggers(home, ...ADD);
    await triggers(home, 'on');
    const companion = begin(['companion', 'run', '--json', ...more], { home });
    await companion.prints(/"state":"online"/);
    const rows = (outcome: string) => companion.events('trigger').filter((row) => row.outcome === outcome);
    return { home, companion, rows };
  }

  it('asks, and a yes reaches the agent through the relay, once', async () => {
    const { home, companion, rows } = await start();
    companion.type(note('Bob') + note('Ada Lovelace'));
    await companion.prints(/"event":"confirm"/);
    expect(companion.events('confirm')).toMatchObject([
      {
        verb: 'notification_trigger',
        rule: 'Ada writes',
        detail: 'Ada Lovelace: Tea at four?',
        app: 'Messages (com.android.messaging)',
      },
    ]);
    expect(await replies()).toEqual([]);
    companion.type('{"allow":true,"dont_ask_again":true}\n');
    await companion.prints(/"outcome":"told"/);
    expect(await replies()).toMatchObject([
      {
        text: expect.stringMatching(
          /^My phone shows a notification[\s\S]*not from me:\nTitle: Ada Lovelace\nText: Tea at four\?$/,
        ),
        chat_id: null,
        metadata: { source: 'notification_trigger', rule_id: 'ada', app_package: 'com.android.messaging' },
      },
    ]);
    // It asks each time: there is nothing to trust.
    companion.type(note('Ada'));
    await vi.waitFor(() => expect(companion.events('confirm')).toHaveLength(2));
    companion.type('{"allow":false}\n');
    await vi.waitFor(() => expect(rows('denied')).toHaveLength(1));
    expect(await replies()).toEqual([]);
    companion.type('{"quit":true}\n');
    await companion.ended;
    expect((await triggers(home)).activity).toMatchObject([
      { outcome: 'denied', title: 'Ada' },
      { outcome: 'told', title: 'Ada Lovelace' },
    ]);
    expect(await readFile(place(home), 'utf8')).not.toContain('Tea at four');
  });

  it('settings by their keys count at once, in a question that is open too', async () => {
    const { companion, rows } = await start();
    companion.type(note('Ada'));
    await companion.prints(/"event":"confirm"/);
    const set = (settings: object) => companion.type(`${JSON.stringify({ settings })}\n`);
    set({ notification_triggers: { notification_triggers_kill_switch: true } });
    await vi.waitFor(() => expect(rows('stopped')).toHaveLength(1));
    expect(companion.events('confirmed')).toMatchObject([{ answer: 'gone' }]);
    companion.type(note('Ada'));
    set({ notification_triggers: { notification_triggers_kill_switch: false }, blocklist: ['com.android.messaging'] });
    companion.type(note('Ada'));
    await vi.waitFor(() => expect(rows('blocked')).toHaveLength(1));
    for (const bad of [
      { theme: 'dark' },
      { blocklist: 1 },
      { notification_triggers: { notification_trigger_rules_json: '[' } },
    ]) {
      set(bad);
    }
    companion.type('{"settings":[]}\n{"notification":{"title":"x"}}\n');
    await vi.waitFor(() => expect(companion.events('notice')).toHaveLength(5));
    expect(companion.events('confirm')).toHaveLength(1);
    expect(await replies()).toEqual([]);
  });

  it('nobody to ask is a no', async () => {
    const { companion, rows } = await start('--approve', 'never');
    companion.type(note('Ada'));
    await vi.waitFor(() => expect(rows('denied')).toHaveLength(1));
    expect(await replies()).toEqual([]);
  });
});
