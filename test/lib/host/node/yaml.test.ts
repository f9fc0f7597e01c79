import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { createYamlThread } from '../../../../lib/host/node/yaml.ts';
import { isMapping } from '../../../../lib/kit/yaml.ts';

const yaml = createYamlThread();
afterAll(() => yaml.close());

/** A text of `count` lines. */
const lines = (count: number, line: (index: number) => string) =>
  Array.from({ length: count }, (_, index) => line(index)).join('');
describe('YAML in a thread (contract 02 §1.1: nothing that one peer sends stalls the others)', () => {
  it('returns plain mappings, whatever their keys', async () => {
    const parsed = await yaml.parseMapping('a: yes\nb: {c: [1.5, .inf, ~]}\n"__proto__": {polluted: 1}\n');
    if (!parsed.ok) throw new Error(parsed.problem);
    expect(isMapping(parsed.mapping)).toBe(true);
    expect(isMapping(parsed.mapping.b)).toBe(true);
    expect(parsed.mapping).toMatchObject({ a: true, b: { c: [1.5, Number.POSITIVE_INFINITY, null] } });
    expect(parsed.mapping.polluted).toBeUndefined();
    expect(await yaml.parseMapping('a: *nothing')).toMatchObject({ ok: false });
  });

  it('answers each of many callers with their own text', async () => {
    const numbers = Array.from({ length: 500 }, (_, index) => index);
    const parsed = await Promise.all(numbers.map((number) => yaml.parseMapping(`a: ${number}`)));
    expect(parsed).toEqual(numbers.map((a) => ({ ok: true, mapping: { a } })));
  });

  it('gives up on a text that takes too long, and reads the next', async () => {
    const hasty = createYamlThread({ timeout: 1 });
    onTestFinished(() => hasty.close());
    const slow = lines(20_000, (at) => `key${at}: value\n`);
    expect(await hasty.parseMapping(slow)).toEqual({ ok: false, problem: 'not valid YAML (it takes too long)' });
    const patient = createYamlThread({ idle: 1 });
    onTestFinished(() => patient.close());
    for (let round = 0; round < 3; round++) {
      expect(await patient.parseMapping('a: 1')).toEqual({ ok: true, mapping: { a: 1 } });
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  });

  it('ends what waits when it is closed, and works again', async () => {
    const thread = createYamlThread();
    onTestFinished(() => thread.close());
    const waiting = [thread.parseMapping('a: 1'), thread.edit('a: 1', [])];
    thread.close();
    expect(await Promise.all(waiting)).toEqual(Array(2).fill({ ok: false, problem: 'not read: the relay stops' }));
    expect(await thread.parseMapping('a: 1')).toEqual({ ok: true, mapping: { a: 1 } });
  });

  it('goes on with the texts of a host when another one that shares it is closed', async () => {
    const thread = createYamlThread();
    onTestFinished(() => thread.close());
    const [leaving, staying] = [thread.share(), thread.share()];
    const ended = [leaving.parseMapping('a: 1'), leaving.parseMapping('a: 2')];
    const kept = [staying.parseMapping('b: 1'), staying.parseMapping('b: 2')];
    leaving.close();
    expect(await Promise.all(ended)).toEqual(Array(2).fill({ ok: false, problem: 'not read: the relay stops' }));
    expect(await Promise.all(kept)).toEqual([1, 2].map((b) => ({ ok: true, mapping: { b } })));
    staying.close();
    expect(await thread.parseMapping('a: 1')).toEqual({ ok: true, mapping: { a: 1 } });
  });
});

describe('editing YAML (contract 05 §10)', () => {
  const edited = async (...args: Parameters<typeof yaml.edit>) => {
    const result = await yaml.edit(...args);
    return result.ok ? result.text : result.problem;
  };

  it('changes single values, and keeps comments and order', async () => {
    const text = '# head\nz: 1 # one\nvoice_output:\n  # who speaks\n  provider: old # was\n  model: m\nflag: yes\n';
    expect(await edited(text, [{ path: ['voice_output', 'provider'], value: 'new' }])).toBe(text.replace('old', 'new'));
    const several = [
      { path: ['voice_output', 'enabled'], value: false },
      { path: ['voice_output', 'model'] },
      { path: ['gone', 'too'] },
      { path: ['realtime_voice', 'xai', 'voice'], value: 'yes' },
    ];
    expect(await edited(text, several)).toBe(
      '# head\nz: 1 # one\nvoice_output:\n  # who speaks\n  provider: old # was\n  enabled: false\nflag: yes\n' +
        'realtime_voice:\n  xai:\n    voice: "yes"\n',
    );
  });

  it.each([
    ['', 'a:\n  b: 1\n'],
    ['# only a comment\n', '# only a comment\n\na:\n  b: 1\n'],
    ['a: text\n', 'a:\n  b: 1\n'],
    ['a:\n', 'a:\n  b: 1\n'],
    ['a: {c: 2}\n', 'a: {c: 2, b: 1}\n'],
    ['x: 1\r\n', 'x: 1\r\na:\r\n  b: 1\r\n'],
  ])('%j', async (before, after) => {
    expect(await edited(before, [{ path: ['a', 'b'], value: 1 }])).toBe(after);
  });

  it('refuses what does not parse, and what would change something else', async () => {
    expect(await edited('a: [', [{ path: ['b'], value: 1 }])).toMatch(/^not valid YAML/);
    const shared = 'a: &a {x: 1}\nb: *a\n';
    const problem = 'cannot be edited without changing something else';
    for (const path of [
      ['a', 'x'],
      ['b', 'x'],
    ]) {
      expect(await edited(shared, [{ path, value: 2 }])).toBe(problem);
    }
    expect(await edited('a: &a\n  b: *a\n', [{ path: ['c'], value: 1 }])).toContain('contains itself');
  });
});
