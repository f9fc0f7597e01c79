import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { redact, summarise } from '../../../lib/bridge/redact.ts';
import { TIMED } from '../../support/limits.ts';
import { runs } from '../../support/runs.ts';

describe('redaction (contract 03 §6)', () => {
  it('private content is counted, not kept, however deep it lies', () => {
    const value = {
      text: 'abc',
      Body: ['abc', { deeper: 'abc', n: 5 }],
      data: { uri: 'abc' },
      extras: 'abcd',
      more: { extras: { a: 1 }, query: 'ab' },
      x: 1,
    };
    const expected = {
      text: '[3 chars]',
      Body: ['[3 chars]', { deeper: '[3 chars]', n: 5 }],
      data: { uri: '[3 chars]' },
      extras: '[4 chars]',
      more: { extras: '[object]', query: '[2 chars]' },
      x: 1,
    };
    expect(redact(value)).toEqual(expected);
    expect(summarise(value, false)).toBe(JSON.stringify(expected));
    expect(value.text).toBe('abc');
  });

  it('nothing under a secret or private key survives, and no record is large', () => {
    const secret = fc.constantFrom('password', 'authToken', 'text', 'query', 'extras', 'api_key', 'BODY');
    const planted = fc.oneof(
      fc.constant('NEEDLE'),
      fc.array(fc.constant('NEEDLE')),
      fc.dictionary(fc.string(), fc.constant('NEEDLE')),
    );
    const { tree } = fc.letrec<{ tree: Record<string, unknown> }>((tie) => ({
      tree: fc.oneof(
        { depthSize: 'small' },
        fc.dictionary(secret, planted),
        fc.dictionary(fc.string(), fc.oneof(fc.jsonValue(), tie('tree'), fc.array(tie('tree')))),
      ) as fc.Arbitrary<Record<string, unknown>>,
    }));
    fc.assert(
      fc.property(tree, (value) => {
        const kept = JSON.stringify(redact(value));
        const summary = summarise(value, false) ?? '';
        expect(kept + summary).not.toContain('NEEDLE');
        expect(summary.length).toBeLessThanOrEqual(500);
        expect(JSON.stringify(value).length > 0).toBe(true);
        if (summary.length < 500) JSON.parse(summary);
      }),
      { numRuns: runs(100) },
    );
  });

  it('a huge result costs no more than its summary', TIMED, () => {
    const huge = { rows: Array.from({ length: 200_000 }, (_, at) => ({ at, note: 'x'.repeat(50) })) };
    const began = performance.now();
    for (let round = 0; round < 1000; round++) expect(summarise(huge, false)).toHaveLength(500);
    expect(performance.now() - began).toBeLessThan(2_000);
    expect(summarise(huge, false)?.endsWith('...')).toBe(true);
    expect(JSON.stringify(redact(huge)).length).toBeLessThan(5_000);
    expect(summarise('x'.repeat(5_000_000), false)).toHaveLength(500);
    expect(summarise(null, true)).toBeNull();
    expect(summarise('abc', true)).toBe('"[3 chars]"');
  });

  it('depth is no problem', () => {
    let deep: unknown = 1;
    for (let at = 0; at < 100_000; at++) deep = [deep];
    expect(summarise(deep, false)).toContain('[array]');
    expect(JSON.stringify(redact({ deep }))).toContain('[array]');
  });
});
