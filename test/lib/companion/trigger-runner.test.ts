import { describe, expect, it, vi } from 'vitest';
import { createTriggerRunner } from '../../../lib/companion/trigger-runner.ts';
import {
  defaultTriggers,
  type PostedNotification,
  readActivity,
  type TriggerActivity,
} from '../../../lib/companion/triggers.ts';
import type { Decision } from '../../../lib/companion/types.ts';
import { RelayError } from '../../../lib/errors.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { createMemorySettings, createPerson } from './support.ts';

const RULE = { id: 'ada', label: 'Ada writes', enabled: true, app_package: 'com.android.messaging', action: 'ask_me' };
const SMS: PostedNotification = { packageName: 'com.android.messaging', title: 'Ada Lovelace', text: 'Tea?\nNow' };

function setup(answer: Decision | 'later' = true, tell?: (text: string) => string) {
  const settings = createMemorySettings({
    triggers: {
      ...defaultTriggers(),
      notification_triggers_enabled: true,
      notification_trigger_rules_json: JSON.stringify([RULE]),
    },
  });
  const person = createPerson(answer);
  const told: [text: string, metadata: Record<string, string>][] = [];
  const rows: TriggerActivity[] = [];
  const runner = createTriggerRunner({
    settings,
    confirm: person.confirm,
    sendToAgent(text, metadata) {
      told.push([text, metadata]);
      return tell ? tell(text) : `m${told.length}`;
    },
    appName: async (name) => `Messages (${name})`,
    clock: createTestClock(),
    log: createTestLog(),
    onActivity: (row) => rows.push(row),
  });
  const stored = () => readActivity(settings.get().triggers.notification_trigger_activity_log_json);
  const until = (count: number) => vi.waitFor(() => expect(rows).toHaveLength(count));
  return { settings, person, told, rows, runner, stored, until };
}

describe('what a matching notification does (specification 2.1: ask_me)', () => {
  it('asks the owner, and on yes tells the agent, marked as the words of the app', async () => {
    const { person, told, rows, runner, stored, until } = setup();
    runner.posted(SMS);
    runner.posted({ ...SMS, packageName: 'org.example.notes' });
    await until(1);
    expect(person.asked).toMatchObject([
      {
        verb: 'notification_trigger',
        detail: 'Ada Lovelace: Tea? Now',
        subject: {
          rule: 'Ada writes',
          app: 'Messages (com.android.messaging)',
          effect: expect.stringMatching(/agent/),
        },
        timeoutMs: 30_000,
      },
    ]);
    expect(told).toEqual([
      [
        'My phone shows a notification of com.android.messaging, which my rule "Ada writes" is about.\n' +
          'What follows is from that app, not from me:\nTitle: Ada Lovelace\nText: Tea? Now',
        { source: 'notification_trigger', rule_id: 'ada', app_package: 'com.android.messaging' },
      ],
    ]);
    expect(stored()).toMatchObject([{ id: 'm1', rule_id: 'ada', title: 'Ada Lovelace', outcome: 'sending' }]);
    // The log keeps no text of a notification.
    expect(JSON.stringify(stored())).not.toContain('Tea');
    expect([runner.acknowledged('other'), runner.acknowledged('m1'), runner.acknowledged('m1')]).toEqual([
      false,
      true,
      false,
    ]);
    expect(rows.map(({ outcome }) => outcome)).toEqual(['sending', 'told']);
    expect(stored()).toMatchObject([{ id: 'm1', outcome: 'told' }]);
  });

  it.each<Decision>([false, { allowed: false }])('a no (%j) tells nobody', async (answer) => {
    const { told, rows, runner, until } = setup(answer);
    runner.posted(SMS);
    await until(1);
    expect([told, rows]).toEqual([[], [expect.objectContaining({ outcome: 'denied' })]]);
  });

  it.each([
    ['kill switch', { triggers: { notification_triggers_kill_switch: true } }, 'stopped', true],
    ['toggle', { triggers: { notification_triggers_enabled: false } }, 'stopped', true],
    ['rule', { triggers: { notification_trigger_rules_json: '[]' } }, 'stopped', false],
    ['damaged rules', { triggers: { notification_trigger_rules_json: '[' } }, 'stopped', false],
    ['blocklist', { blocklist: ['com.android.messaging'] }, 'blocked', false],
  ])('the %s counts even while the question is open', async (_name, change, outcome, isWithdrawn) => {
    const { settings, person, told, rows, runner, until } = setup('later');
    runner.posted(SMS);
    await vi.waitFor(() => expect(person.open).toHaveLength(1));
    await settings.update(change);
    expect(person.asked[0]?.gone?.aborted).toBe(isWithdrawn);
    person.open[0]?.(true);
    await until(1);
    expect([told, rows]).toEqual([[], [expect.objectContaining({ outcome })]]);
  });

  it('an app on the blocklist is not asked about', async () => {
    const { settings, person, rows, runner, until } = setup();
    await settings.update({ blocklist: ['com.android.messaging'] });
    runner.posted(SMS);
    await until(1);
    expect([person.asked, rows]).toEqual([[], [expect.objectContaining({ outcome: 'blocked' })]]);
  });

  it('at most three questions are open, and closing withdraws them', async () => {
    const { person, told, rows, runner, until } = setup('later');
    for (let count = 0; count < 5; count++) runner.posted(SMS);
    await until(2);
    expect(rows.map(({ outcome }) => outcome)).toEqual(['busy', 'busy']);
    expect(new Set(person.asked.map(({ requestId }) => requestId)).size).toBe(3);
    runner.close();
    expect(person.asked.every(({ gone }) => gone?.aborted)).toBe(true);
    for (const answer of person.open) answer(true);
    await until(5);
    expect([told, rows.at(-1)]).toEqual([[], expect.objectContaining({ outcome: 'stopped' })]);
  });

  it('records what could not be sent', async () => {
    const full = () => {
      throw new RelayError('conflict', 'too many replies are waiting for the relay');
    };
    const { rows, runner, until } = setup(true, full);
    runner.posted(SMS);
    await until(1);
    expect(rows).toMatchObject([{ outcome: 'failed' }]);
  });
});
