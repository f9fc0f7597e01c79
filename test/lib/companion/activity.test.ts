import { describe, expect, it } from 'vitest';
import { createTestPhone } from './support.ts';

const NOTES = { package: 'org.example.notes' };
const COMPANION = 'com.svc.companion';

describe("the phone's activity log (contract 03 §8.8)", () => {
  it('keeps the newest 100 entries, newest first, without the quiet routes', async () => {
    const phone = createTestPhone({}, { autoReturnMs: null });
    const seen: string[] = [];
    const end = phone.phone.onActivity(({ requestId }) => seen.push(requestId));
    for (const path of ['/ping', '/current_app', '/screen_hash', '/events']) await phone.ok('GET', path);
    await phone.ok('POST', '/events/stream', { enabled: true });
    await phone.ok('POST', '/setup');
    expect(phone.phone.activity()).toEqual([]);
    for (let at = 0; at < 105; at++) await phone.ok('POST', '/find_nodes');
    expect(phone.phone.activity().map(({ requestId }) => requestId)).toEqual(seen.slice(-100).reverse());
    end();
    await phone.ok('POST', '/find_nodes');
    expect(seen).toHaveLength(105);
  });

  it('records command and outcome, but no text that was typed, copied or sent', async () => {
    const phone = createTestPhone({}, { autoReturnMs: null });
    await phone.call('POST', '/type', { text: 'hunter2' });
    await phone.call('POST', '/clipboard', { text: 'hunter2' });
    await phone.call('POST', '/send_sms', { to: '+15550100', body: 'hunter2' });
    await phone.settings.update({ masterEnabled: false });
    await phone.call('POST', '/open_app', NOTES);
    await phone.call('POST', `/${'x'.repeat(300)}\u001b[2J`);
    const rows = phone.phone.activity();
    expect(rows).toMatchObject([
      { summary: 'x'.repeat(24), decision: 'unknown-command', status: 403, outcome: 'blocked', own: false },
      { path: '/open_app', summary: 'open_app org.example.notes', decision: 'bridge-disabled', outcome: 'blocked' },
      { summary: 'send_sms +15550100', decision: 'confirmed', status: 200, outcome: 'success' },
      { summary: 'clipboard 7 characters', decision: 'executed', outcome: 'success' },
      { summary: 'type 7 characters', status: 400, outcome: 'failed', resultText: 'no focused text field' },
    ]);
    expect(JSON.stringify(rows)).not.toContain('hunter2');
    for (const { summary, path, resultText = '' } of rows) {
      expect([summary.length <= 80, path.length <= 25, resultText.length <= 140]).toEqual([true, true, true]);
    }
  });
});

describe('auto-return (contract 03 §8.8)', () => {
  const foreground = (phone: ReturnType<typeof createTestPhone>) => phone.device.info().foreground;

  it.each([
    ['/open_app', NOTES],
    ['/send_intent', { action: 'android.intent.action.VIEW', data: 'https://a.example/' }],
    ['/share_media', { text: 'look' }],
    ['/send_mms', { to: '+15550100' }],
  ])('runs 12 s after %s, unless another command arrives', async (path, body) => {
    const phone = createTestPhone();
    await phone.ok('POST', path, body);
    await phone.clock.advanceAsync(11_999);
    expect(foreground(phone)).not.toBe(COMPANION);
    await phone.ok('GET', '/screen');
    await phone.clock.advanceAsync(11_999);
    await phone.ok('GET', '/ping');
    expect(foreground(phone)).not.toBe(COMPANION);
    await phone.clock.advanceAsync(1);
    expect(foreground(phone)).toBe(COMPANION);
    expect(phone.phone.activity()[0]).toMatchObject({ path: '/return_to_hermes', status: 200, own: true });
    expect(phone.clock.pending).toBe(0);
  });

  it('does not run after a failed command, a requested return, or during an open question', async () => {
    const phone = createTestPhone({}, { answer: 'later' });
    await phone.call('POST', '/open_app', { package: 'org.nobody' });
    await phone.ok('POST', '/open_app', NOTES);
    await phone.ok('POST', '/return_to_hermes');
    expect(phone.clock.pending).toBe(0);
    await phone.ok('POST', '/open_app', NOTES);
    const asked = phone.call('POST', '/send_sms', { to: '+15550100', body: 'x' });
    await phone.clock.advanceAsync(20_000);
    expect(foreground(phone)).toBe(NOTES.package);
    phone.person.open[0]?.(true);
    await asked;
    await phone.clock.advanceAsync(12_000);
    expect(foreground(phone)).toBe(COMPANION);
  });

  it('passes the same gates, and is not retried when refused', async () => {
    const phone = createTestPhone();
    await phone.ok('POST', '/open_app', NOTES);
    await phone.settings.update({ capabilities: {} });
    await phone.clock.advanceAsync(60_000);
    expect(foreground(phone)).toBe(NOTES.package);
    expect(phone.phone.activity()).toHaveLength(2);
    expect(phone.clock.pending).toBe(0);
  });

  it('is cancelled with the phone', async () => {
    const phone = createTestPhone();
    await phone.ok('POST', '/open_app', NOTES);
    phone.phone.close();
    expect(phone.clock.pending).toBe(0);
  });
});
