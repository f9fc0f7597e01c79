import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  defaultTriggers,
  matches,
  matchingRule,
  type NotificationTriggers,
  readActivity,
  readRules,
  type TriggerActivity,
  type TriggerRule,
  withActivity,
} from '../../../lib/companion/triggers.ts';

const rule = (change: Partial<TriggerRule> = {}): TriggerRule => ({
  id: 'ada',
  label: 'Ada writes',
  enabled: true,
  app_package: 'com.android.messaging',
  action: 'ask_me',
  require_confirmation: false,
  ...change,
});

const triggers = (rules: unknown, change: Partial<NotificationTriggers> = {}): NotificationTriggers => ({
  ...defaultTriggers(),
  notification_triggers_enabled: true,
  notification_trigger_rules_json: typeof rules === 'string' ? rules : JSON.stringify(rules),
  ...change,
});

const SMS = { packageName: 'com.android.messaging', title: 'Ada Lovelace', text: 'Tea at four?' };

describe('rules of notification triggers (specification 2.1)', () => {
  it.each<[Partial<TriggerRule>, boolean]>([
    [{}, true],
    [{ title_contains: 'ada' }, true],
    [{ title_contains: 'ADA LOVE', text_contains: 'tea' }, true],
    [{ title_contains: null, text_contains: null }, true],
    [{ title_contains: 'ada', text_contains: 'coffee' }, false],
    [{ text_contains: 'ada' }, false],
    [{ enabled: false }, false],
    [{ app_package: 'com.android.messaging2' }, false],
    [{ app_package: 'com.android' }, false],
  ])('%j matches: %s', (change, expected) => {
    expect(matches(rule(change), SMS)).toBe(expected);
  });

  it('match whatever the case and however letters are composed; a missing title contains nothing', () => {
    expect(matches(rule({ title_contains: 'JOSÉ' }), { ...SMS, title: 'Jose\u0301' })).toBe(true);
    expect(matches(rule({ title_contains: 'x' }), { ...SMS, title: null })).toBe(false);
    expect(matches(rule(), { ...SMS, title: null, text: null })).toBe(true);
  });

  it('the first enabled one that matches counts', () => {
    const rules = [
      rule({ id: 'off', enabled: false }),
      rule({ id: 'b', title_contains: 'Bob' }),
      rule({ id: 'c' }),
      rule(),
    ];
    expect(matchingRule(triggers(rules), SMS)?.id).toBe('c');
  });

  it.each<Partial<NotificationTriggers>>([
    { notification_triggers_enabled: false },
    { notification_triggers_kill_switch: true },
    { notification_triggers_enabled: false, notification_triggers_kill_switch: true },
  ])('%j: none matches', (change) => {
    expect(matchingRule(triggers([rule()], change), SMS)).toBeNull();
  });

  it.each<[string, unknown]>([
    ['no JSON', '[{'],
    ['no list', '{"0":{}}'],
    ['null', 'null'],
    ['another action', [rule(), { ...rule(), id: 'b', action: 'tell_always' }]],
    ['no action', [{ ...rule(), action: undefined }]],
    ['no label', [{ ...rule(), label: ' ' }]],
    ['an unusable id', [rule({ id: 'a b' })]],
    ['two of one id', [rule(), rule()]],
    ['no package', [rule({ app_package: 'messaging' })]],
    ['a blank condition, which everything contains', [rule({ title_contains: '  ' })]],
    ['a condition of another type', [{ ...rule(), text_contains: 5 }]],
    ['a condition that is too long', [rule({ text_contains: 'x'.repeat(201) })]],
    ['no decision whether it is enabled', [{ ...rule(), enabled: 'yes' }]],
    ['too many rules', Array.from({ length: 51 }, (_, at) => rule({ id: `r${at}` }))],
    ['too much text', `${' '.repeat(64 * 1024)}[]`],
  ])('%s: no rule counts, and the problem is named', (_name, rules) => {
    const stored = triggers(rules);
    expect(readRules(stored.notification_trigger_rules_json)).toEqual({ rules: [], problem: expect.any(String) });
    expect(matchingRule(stored, SMS)).toBeNull();
  });

  it('any text leaves rules or a problem, never both, and never an error', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.json(),
          fc.jsonValue().map((value) => JSON.stringify([value])),
        ),
        (json) => {
          const { rules, problem } = readRules(json);
          expect(problem === undefined || rules.length === 0).toBe(true);
        },
      ),
    );
  });

  it('a rule matches exactly what its parts are found in', () => {
    const part = fc.string({ minLength: 1, maxLength: 20 }).filter((text) => text.trim() !== '');
    fc.assert(
      fc.property(part, fc.string(), fc.string(), fc.string(), (wanted, before, after, other) => {
        const title = before + wanted + after;
        const only = rule({ title_contains: wanted });
        // Composition at the seams may change letters, as it does for people who read them.
        const fold = (text: string) => text.normalize('NFKC').toLowerCase();
        expect(matches(only, { ...SMS, title })).toBe(fold(title).includes(fold(wanted)));
        expect(matches(only, { ...SMS, title: other })).toBe(fold(other).includes(fold(wanted)));
        expect(matches(only, { ...SMS, packageName: `${SMS.packageName}.x`, title })).toBe(false);
      }),
    );
  });
});

describe('the activity log of the triggers', () => {
  const row = (id: string, outcome: TriggerActivity['outcome'] = 'sending'): TriggerActivity => ({
    id,
    at: 5,
    rule_id: 'ada',
    label: 'Ada writes',
    app_package: 'com.android.messaging',
    title: 'Ada',
    outcome,
  });

  it('keeps the latest 25, newest first, and changes a row in its place', () => {
    let json = '[]';
    for (let at = 1; at <= 30; at++) json = withActivity(json, row(`${at}`));
    expect(readActivity(json).map(({ id }) => id)).toEqual(Array.from({ length: 25 }, (_, at) => `${30 - at}`));
    json = withActivity(json, row('28', 'told'));
    expect(readActivity(json).slice(1, 4)).toEqual([row('29'), row('28', 'told'), row('27')]);
  });

  it('leaves out rows that it cannot read', () => {
    expect(readActivity('nonsense')).toEqual([]);
    expect(readActivity(JSON.stringify([row('a'), { ...row('b'), outcome: 'x' }, null, row('c')]))).toEqual([
      row('a'),
      row('c'),
    ]);
    expect(readActivity(withActivity('{}', row('a')))).toEqual([row('a')]);
  });
});
