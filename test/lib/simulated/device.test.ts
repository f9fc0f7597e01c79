import { describe, expect, it } from 'vitest';
import { APPS } from '../../../lib/simulated/apps/index.ts';
import { createTestPhone } from '../companion/support.ts';

type Entry = { event_type: string; package_name?: string; text?: string; class_name?: string };
type Node = { nodeId: string; text: string | null; clickable: boolean; bounds: Record<string, number> };

/** A phone that streams events; `news` returns those since the last call. */
async function watched() {
  const phone = createTestPhone();
  await phone.ok('POST', '/events/stream', { enabled: true });
  let since = 0;
  return {
    ...phone,
    async news(): Promise<string[]> {
      const { entries } = await phone.ok('GET', '/events', { since, limit: 500 });
      since = phone.clock.now();
      phone.clock.advance(200);
      return (entries as Entry[]).map(({ event_type, package_name }) => `${event_type} ${package_name}`);
    },
  };
}

describe('the simulated phone is consistent', () => {
  it.each(APPS.filter(({ launchable }) => launchable !== false).map((app) => app.package))('%s', async (name) => {
    const phone = createTestPhone({ blocklist: [] });
    await phone.ok('POST', '/open_app', { package: name });
    const screen = await phone.ok('GET', '/screen');
    expect(screen.packageName).toBe(name);
    expect(await phone.ok('GET', '/current_app')).toEqual({ package: name });
    const { hash, node_count } = await phone.ok('GET', '/screen_hash');
    expect(node_count).toBe(screen.nodeCount);
    expect(await phone.ok('POST', '/diff_screen', { previous_hash: hash })).toMatchObject({ changed: false, hash });
    expect((await phone.ok('POST', '/find_nodes', { limit: 512 })).matches).toEqual(screen.nodes);
    for (const node of screen.nodes as Node[]) {
      const described = await phone.ok('POST', '/describe_node', { nodeId: node.nodeId });
      expect(described).toMatchObject({ text: node.text, clickable: node.clickable, bounds: node.bounds });
    }
    // Reading changes nothing.
    expect((await phone.ok('GET', '/screen_hash')).hash).toBe(hash);
  });

  it('taps, typing, scrolling and keys show in the screen, the hash and the events', async () => {
    const phone = await watched();
    let { hash } = await phone.ok('GET', '/screen_hash');
    const changed = async () => {
      const diff = await phone.ok('POST', '/diff_screen', { previous_hash: hash });
      hash = diff.hash;
      return diff.changed;
    };
    await phone.ok('POST', '/tap_text', { text: 'Settings' });
    expect([await changed(), await phone.news()]).toEqual([
      true,
      ['click com.android.launcher3', 'window_state_changed com.android.settings'],
    ]);
    await phone.ok('POST', '/scroll', { direction: 'down' });
    expect([await changed(), await phone.news()]).toEqual([true, ['scroll com.android.settings']]);
    await phone.ok('POST', '/scroll', { direction: 'up' });
    await phone.ok('POST', '/scroll', { direction: 'up' });
    expect([await changed(), (await phone.news()).length]).toEqual([true, 1]);
    const { matches } = await phone.ok('POST', '/find_nodes', { class_name: 'android.widget.EditText' });
    await phone.ok('POST', '/tap', { nodeId: (matches as Node[])[0]?.nodeId });
    expect(await phone.news()).toEqual(['click com.android.settings']);
    await phone.ok('POST', '/type', { text: 'bat' });
    expect([await changed(), await phone.news()]).toEqual([
      true,
      ['text_changed com.android.settings', 'window_content_changed com.android.settings'],
    ]);
    expect(await phone.ok('POST', '/find_nodes', { text: 'Sound' })).toMatchObject({ count: 0 });
    await phone.ok('POST', '/tap_text', { text: 'Battery' });
    expect(await phone.ok('POST', '/find_nodes', { text: '87%' })).toMatchObject({ count: 1 });
    await phone.ok('POST', '/press_key', { key: 'back' });
    await phone.ok('POST', '/press_key', { key: 'home' });
    expect(await phone.ok('GET', '/current_app')).toEqual({ package: 'com.android.launcher3' });
  });

  it('a password shows as bullets on the screen, and in no event or log', async () => {
    const phone = createTestPhone({ blocklist: [] });
    await phone.ok('POST', '/events/stream', { enabled: true });
    await phone.ok('POST', '/open_app', { package: 'com.chase.sig.android' });
    const { matches } = await phone.ok('POST', '/find_nodes', { class_name: 'android.widget.EditText' });
    await phone.ok('POST', '/tap', { nodeId: (matches as Node[])[0]?.nodeId });
    await phone.ok('POST', '/type', { text: 'hunter2' });
    const all = [await phone.ok('GET', '/screen'), await phone.ok('GET', '/events'), phone.phone.activity()];
    expect(JSON.stringify(all)).not.toContain('hunter2');
    expect(JSON.stringify(all[0])).toContain('•••••••');
    expect([...phone.log.lines, JSON.stringify(phone.phone.status())].join('\n')).not.toContain('hunter2');
  });

  it('a sent message shows in its thread, a received one raises a notification', async () => {
    const phone = createTestPhone();
    await phone.ok('POST', '/send_sms', { to: '+15550101', body: 'On my way' });
    await phone.ok('POST', '/open_app', { package: 'com.android.messaging' });
    expect(await phone.ok('POST', '/find_nodes', { text: 'On my way' })).toMatchObject({ count: 1 });
    phone.device.receiveSms('+15550120', 'Another moth');
    await phone.ok('POST', '/press_key', { key: 'notifications' });
    await phone.ok('POST', '/tap_text', { text: 'Another moth' });
    expect(await phone.ok('GET', '/current_app')).toEqual({ package: 'com.android.messaging' });
  });

  it('bounds every list', async () => {
    const phone = createTestPhone();
    const VIEW = 'android.intent.action.VIEW';
    for (let at = 0; at < 250; at++) {
      await phone.device.sendSms(`+1555${at % 230}`, `${at}`);
      await phone.device.call(`+1555${at}`);
      await phone.device.notify('title', `${at}`);
      await phone.ok('POST', '/broadcast', { action: `a${at}` });
      await phone.ok('POST', '/send_intent', { action: VIEW, data: `https://a.example/${at}` });
      await phone.device.share({ text: `${at}`, title: '', package: '', files: [] });
    }
    const { outbox, threads, calls, notifications, broadcasts, intents, shares } = phone.system;
    for (const list of [outbox, threads, calls, notifications, broadcasts, intents]) expect(list).toHaveLength(200);
    expect(shares.map(({ text }) => text)).toEqual(Array.from({ length: 10 }, (_, at) => `${240 + at}`));
    expect(calls[0]?.number).toBe('+1555249');
    expect(outbox.at(-1)?.text).toBe('249');
    // So is the back stack.
    for (let at = 0; at < 50; at++) await phone.ok('POST', '/press_key', { key: 'back' });
    expect(await phone.ok('GET', '/current_app')).toEqual({ package: 'com.android.launcher3' });
  });
});
