import { describe, expect, it } from 'vitest';
import { type CommandRow, createSimulatedPhone } from '../../cli/companion/phone.ts';
import type { OpenQuestion } from '../../cli/companion/questions.ts';
import { createTerminalView } from '../../cli/companion/terminal-view.ts';
import type { CommandContext } from '../../cli/output.ts';
import { ALLOWED, createMemorySettings } from '../lib/companion/support.ts';
import { createTestClock } from '../support/clock.ts';
import { createTestLog } from '../support/log.ts';

/** A terminal view of that width, and its current status line. */
function createView(columns: number, questions: OpenQuestion[] = []) {
  let written = '';
  const context = {
    stdout: { columns, isTTY: true, write: (text: string) => (written += text) },
    env: { NO_COLOR: '1' },
  };
  const settings = createMemorySettings(ALLOWED);
  const clock = createTestClock();
  const view = createTerminalView({
    context: context as unknown as CommandContext,
    clock,
    live: true,
    open: () => questions,
    settings: settings.get,
  });
  const endpoint = { role: 'lan', url: 'ws://192.168.178.20:8767/ws', priority: 0 };
  const relay = { serverVersion: '1', expiresAt: null, grants: {} };
  view.state({ name: 'online', endpoint, since: 0, relay });
  /** The lines at the bottom, as last drawn, with the cursor on the last of them. */
  const footer = () => {
    const drawn = written.split('\u001b[J').at(-1) ?? '';
    return (drawn.split('[?7l')[1] ?? '').replace('\u001b[?7h\r', '').split('\r\n');
  };
  return { view, clock, footer, statusLine: () => footer().at(-1), written: () => written };
}

const question = (clock = createTestClock()): OpenQuestion => ({
  requestId: 'r',
  verb: 'send_sms',
  title: 'Send a text message?',
  detail: 'SMS to +1555: hi',
  subject: { command: 'POST /send_sms', app: 'Messages', effect: 'sends this message' },
  timeoutMs: 28_000,
  deadline: clock.monotonic() + 28_000,
});

describe('the status line', () => {
  it.each([
    [
      120,
      'online: 192.168.178.20:8767 (lan, no TLS) | master ON | grants 10/10 | m master  g grants  v screen  ? help  q quit',
    ],
    [90, 'online: 192.168.178.20:8767 (lan, no TLS) | master ON | grants 10/10 | ? help  q quit'],
    [80, 'lan | master ON | grants 10/10 | m master  g grants  ? help  q quit'],
    [60, 'lan | master ON | grants 10/10 | ? help  q quit'],
    [40, 'lan | master ON | grants 10/10'],
    [30, 'lan | master ON | 10/10'],
    [20, 'lan | master ON | 1'],
  ])('fits into a terminal of %i columns and shows what matters most', (columns, text) => {
    expect(createView(columns).statusLine()).toBe(text);
  });

  it.each([
    [120, 'offline: nothing listens; retrying in 16 s, r now', 'offline: nothing listens; retrying in 4 s, r now'],
    [60, 'offline, r retries (16 s)', 'offline, r retries (4 s)'],
  ])('counts down to the next attempt on %i columns, which a key cuts short', (columns, first, later) => {
    const { view, clock, statusLine } = createView(columns);
    view.state({ name: 'waiting', reason: 'nothing listens', wait: 16_000, rateLimited: false });
    expect(statusLine()).toContain(first);
    clock.advance(12_000);
    expect(statusLine()).toContain(later);
  });

  it.each([
    [100, '? Send a text message?  Messages: SMS to +1555: hi  y allow  n deny  a always  28 s'],
    [80, '? Send a text message?  y allow  n deny  a always  28 s'],
    [40, '? y allow  n deny  a always  28 s'],
  ])('asks on %i columns, above the route', (columns, text) => {
    const { view, footer } = createView(columns, [question()]);
    view.asked(question());
    expect(footer()).toEqual([text, expect.stringMatching(/^(online: .*)?lan.* \| master ON/)]);
  });

  it.each([40, 80])('explains a question in lines of less than %i characters, broken between words', (columns) => {
    const { view, written } = createView(columns);
    const before = written().length;
    const detail = 'SMS to +1555: we shall meet at the usual place, at the usual time, with the usual cake';
    view.asked({ ...question(), detail });
    const lines = written()
      .slice(before)
      .split('\u001b[J')
      .map((part) => (part.split('\u001b[?7l')[0] ?? '').replace(/\r.*/, ''))
      .join('')
      .split('\n');
    for (const line of lines) expect(line.length).toBeLessThan(columns);
    const text = lines
      .map((line) => line.trim())
      .join(' ')
      .replace(/ +/g, ' ');
    expect(text).toContain(`What ${detail} App Messages Command POST /send_sms Allowed it sends this message;`);
  });
});

it('09 §3: shows a freeze in its first line until it ends', () => {
  const { view, footer, written } = createView(100);
  view.frozen({ since: 0, by: 'Pixel\u001b[2J 9', reason: 'lost' });
  expect(footer()[0]).toMatch(/^Frozen by Pixel\[2J 9 for .*: lost \| f ends it$/);
  expect(footer()).toHaveLength(2);
  view.frozen(null);
  expect(footer()).toHaveLength(1);
  expect(written()).toContain('The relay is no longer frozen.');
});

it('shows an auto-return, and marks it as one', async () => {
  const clock = createTestClock();
  const rows: CommandRow[] = [];
  const deps = { clock, log: createTestLog(), name: 'Phone', confirm: async () => true };
  const { phone, trackRows } = createSimulatedPhone({ ...deps, settings: createMemorySettings(ALLOWED) });
  const { stop } = trackRows((row) => rows.push(row));
  const body = { package: 'org.example.notes' };
  await phone.handle({ requestId: 'r', method: 'POST', path: '/open_app', body });
  await clock.advanceAsync(12_000);
  expect(rows).toMatchObject([
    { path: '/return_to_hermes', status: 200, decision: 'executed', summary: 'return_to_hermes (auto-return)' },
  ]);
  stop();
  phone.close();
  expect(clock.pending).toBe(0);
});
