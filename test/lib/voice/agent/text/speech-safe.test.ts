import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isJsonAnswer, MAX_TOOL_ANSWER, speechSafe } from '../../../../../lib/voice/agent/text/speech-safe.ts';

const safe = (answer: string) => speechSafe(answer, MAX_TOOL_ANSWER);

describe('speech-safe text (contract 06 §7.6)', () => {
  it.each([
    ['collapses white space', ' It is\n\n  noon.\t', 'It is noon.'],
    ['drops a list of sources', 'It is noon.\n\nSources:\n- [a](https://a)\n- https://b\n', 'It is noon.'],
    ['drops sources under a heading', 'Noon.\n## References\n1. A book\n2. Another\n\nAnd sunny.', 'Noon. And sunny.'],
    ['drops bold headings of sources', 'Noon.\n**Sources:**\n* a', 'Noon.'],
    ['drops sources in one line', 'Noon.\nSource: https://a.example/b\nSunny.', 'Noon. Sunny.'],
    ['drops marks of citations', 'Noon[1] and sunny【4†source】[^2].', 'Noon and sunny.'],
    ['keeps links', 'See [1](https://a).', 'See [1](https://a).'],
    ['keeps sentences about sources', 'Sources say that it is noon.', 'Sources say that it is noon.'],
    ['keeps an answer that is nothing but sources', 'Sources:\n- a', 'Sources: - a'],
    ['shortens machine-made words', `Key ${'A1'.repeat(100)} ok`, `Key ${'A1'.repeat(11)}A… ok`],
    ['keeps long words of scripts without spaces', '日本'.repeat(100), '日本'.repeat(100)],
    ['is empty for white space', ' \n', ''],
  ])('%s', (_name, answer, expected) => expect(safe(answer)).toBe(expected));

  it.each([
    [{ name: 'Disk', description: 'is full', output: 'x' }, 'Disk: is full'],
    [{ name: 'Disk', output: 'all\nfine' }, 'all fine'],
    [{ output: 'x y '.repeat(200) }, `${'x y '.repeat(175).slice(0, 699)}…`],
    [{ error: 'broken', message: 'x' }, 'broken'],
    [{ error: { message: 'deep' } }, 'deep'],
    [{ message: 'hello' }, 'hello'],
    [{ a: 1, b: 2, c: 3, d: 4, e: 5, f: 6 }, 'A result with a, b, c, d, e, f.'],
    [{ a: 1, b: 2, c: 3, d: 4, e: 5, f: 6, g: 7 }, 'A result with a, b, c, d, e, f and more.'],
    [{}, 'An empty result.'],
    [[1, 2, 3], 'A list of 3 items.'],
  ])('tells JSON %j', (value, expected) => {
    expect(safe(JSON.stringify(value))).toBe(expected);
    expect(safe(` ${JSON.stringify(value, null, 2)}\n`)).toBe(expected);
    expect(safe(`\`\`\`json\n${JSON.stringify(value)}\n\`\`\``)).toBe(expected);
  });

  it.each([
    ['{"a":1}', true],
    ['[]', true],
    ['```\n[1]\n```', true],
    ['{not json}', false],
    ['7', false],
    ['"text"', false],
    ['Text with {"a":1}', false],
  ])('%j is JSON: %s', (answer, expected) => expect(isJsonAnswer(answer)).toBe(expected));

  it('has one line of at most the limit, whatever the answer', () => {
    const parts = ['a ', '\n', 'Sources:', '[1]', '【', '{', '}', '```', '- x\n', '😀', 'x'.repeat(200), ':'];
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...parts)), fc.integer({ min: 1, max: 200 }), (chosen, limit) => {
        const text = speechSafe(chosen.join(''), limit);
        expect(text.length).toBeLessThanOrEqual(limit);
        expect(text).not.toMatch(/[\n\r\t]| {2}/);
      }),
    );
  });

  it.each(['a', ' ', '\n', 'sources', 'sources:\n', '[', '【', '{"a":', '[[', '- \n', '```\n', 'x '])(
    'takes linear time when it repeats %j to 1 MiB',
    (part) => {
      const large = part.repeat(Math.ceil((1024 * 1024) / part.length));
      const start = process.cpuUsage();
      safe(large);
      safe(`\`\`\`json\n${large}`);
      safe(`Sources${large}`);
      const { user, system } = process.cpuUsage(start);
      // Quadratic time would be minutes.
      expect((user + system) / 1000).toBeLessThan(5000);
    },
  );
});
