import { describe, expect, it } from 'vitest';
import type { OpenQuestion } from '../../cli/companion-ask.ts';
import { createPhoneBehind } from '../../cli/companion-phone.ts';
import { createScreen } from '../../cli/companion-screen.ts';
import type { CommandRow } from '../../cli/companion-view.ts';
import type { CommandContext } from '../../cli/output.ts';
import { ALLOWED, createMemorySettings } from '../lib/companion/support.ts';
import { createTestClock } from '../support/clock.ts';
import { createTestLog } from '../support/log.ts';

/** A screen of that width, and what its bottom line says now. */
function screenOf(columns: number, questions: OpenQuestion[] = []) {
  let written = '';
  const context = {
    stdout: { columns, isTTY: true, write: (text: string) => (written += text) },
    env: { NO_COLOR: '1' },
  };
  const settings = createMemorySettings(ALLOWED);
  const clock = createTestClock();
  const screen = createScreen({
    context: context as unknown as CommandContext,
    clock,
    live: true,
    open: () => questions,
    settings: settings.get,
  });
  const endpoint = { role: 'lan', url: 'ws://192.168.178.20:8767/ws', priority: 0 };
  const relay = { serverVersion: '1', expiresAt: null, grants: {} };
  screen.state({ name: 'online', endpoint, since: 0, relay });
  return { screen, clock, written: () => written, bottom: () => written.split('\u001b[2K').at(-1) ?? '' };
}

const question = (clock = createTestClock()): OpenQuestion => ({
  requestId: 'r',
  verb: 'send_sms',
  title: 'Send a text message?',
  detail: 'SMS to +1555: hi',
  timeoutMs: 28_000,
  deadline: clock.monotonic() + 28_000,
});

describe('the bottom line', () => {
  it.each([
    [120, 'online: 192.168.178.20:8767 (lan, no TLS) | master ON | grants 10/10 | m master  g grants  ? help  q quit'],
    [90, 'online: 192.168.178.20:8767 (lan, no TLS) | master ON | grants 10/10 | ? help  q quit'],
    [80, 'online | master ON | grants 10/10 | m master  g grants  ? help  q quit'],
    [60, 'online | master ON | grants 10/10 | ? help  q quit'],
    [40, 'online | master ON | grants 10/10'],
    [20, 'online | master ON |'.slice(0, 19)],
  ])('of a terminal of %i columns fits into it and says what counts', (columns, text) => {
    expect(screenOf(columns).bottom()).toBe(text);
  });

  it.each([
    [80, '? Send a text message?  y allow  n deny  a always  28 s'],
    [40, '? y allow  n deny  a always  28 s'],
  ])('asks on %i columns', (columns, text) => {
    const { screen, bottom } = screenOf(columns, [question()]);
    screen.asked(question());
    expect(bottom()).toBe(text);
  });
});

it('what the phone does by itself is shown, and said to be that', async () => {
  const clock = createTestClock();
  const rows: CommandRow[] = [];
  const parts = { clock, log: createTestLog(), name: 'Phone', confirm: async () => true };
  const { phone, rows: watch } = createPhoneBehind({ ...parts, settings: createMemorySettings(ALLOWED) });
  const { end } = watch((row) => rows.push(row));
  const body = { package: 'org.example.notes' };
  await phone.handle({ requestId: 'r', method: 'POST', path: '/open_app', params: {}, body });
  await clock.advanceAsync(12_000);
  expect(rows).toMatchObject([
    { path: '/return_to_hermes', status: 200, decision: 'executed', summary: 'return_to_hermes (by itself)' },
  ]);
  end();
  phone.close();
  expect(clock.pending).toBe(0);
});
