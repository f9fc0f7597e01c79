import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { select } from '../../../lib/web/ranges.ts';

const MODIFIED = Date.UTC(2026, 0, 2, 3, 4, 5, 678);
const DATE = 'Fri, 02 Jan 2026 03:04:05 GMT';
const of = (headers: Record<string, string>, size = 10) =>
  select(new Headers(headers), { size, etag: '"tag"', modified: MODIFIED });
const part = (start: number, end: number) => ({ kind: 'part', start, end });
const [whole, unchanged, unsatisfiable] = [{ kind: 'whole' }, { kind: 'unchanged' }, { kind: 'unsatisfiable' }];

describe('ranges and conditions (contract 04 §3.6, RFC 9110)', () => {
  it.each([
    ['bytes=0-0', part(0, 0)],
    ['bytes=3-', part(3, 9)],
    ['bytes=3-99', part(3, 9)],
    ['bytes=-4', part(6, 9)],
    ['bytes=-99', part(0, 9)],
    ['BYTES=1-2', part(1, 2)],
    [`bytes=1-${'9'.repeat(400)}`, part(1, 9)],
    ['bytes=10-', unsatisfiable],
    ['bytes=10-20', unsatisfiable],
    [`bytes=${'9'.repeat(400)}-`, unsatisfiable],
    ['bytes=-0', unsatisfiable],
    ['bytes=5-2', whole],
    ['bytes=0-1,3-4', whole],
    ['bytes=', whole],
    ['bytes=-', whole],
    ['bytes=a-b', whole],
    ['bytes=-1-2', whole],
    ['items=0-1', whole],
  ])('%s', (range, expected) => expect(of({ range })).toEqual(expected));

  it('an empty file has no satisfiable range', () => {
    expect(of({ range: 'bytes=0-' }, 0)).toEqual(unsatisfiable);
    expect(of({ range: 'bytes=-1' }, 0)).toEqual(unsatisfiable);
    expect(of({}, 0)).toEqual(whole);
  });

  it.each<[Record<string, string>, object]>([
    [{ 'if-none-match': '"tag"' }, unchanged],
    [{ 'if-none-match': 'W/"tag"' }, unchanged],
    [{ 'if-none-match': '"other", "tag"' }, unchanged],
    [{ 'if-none-match': '*' }, unchanged],
    [{ 'if-none-match': '"other"' }, whole],
    [{ 'if-none-match': '"other"', 'if-modified-since': DATE }, whole],
    [{ 'if-modified-since': DATE }, unchanged],
    [{ 'if-modified-since': 'Fri, 02 Jan 2026 03:04:04 GMT' }, whole],
    [{ 'if-modified-since': 'nonsense' }, whole],
    [{ 'if-none-match': '"tag"', range: 'bytes=0-1' }, unchanged],
    [{ 'if-range': '"tag"', range: 'bytes=0-1' }, part(0, 1)],
    [{ 'if-range': 'W/"tag"', range: 'bytes=0-1' }, whole],
    [{ 'if-range': '"other"', range: 'bytes=0-1' }, whole],
    [{ 'if-range': DATE, range: 'bytes=0-1' }, part(0, 1)],
    [{ 'if-range': 'Fri, 02 Jan 2026 03:04:06 GMT', range: 'bytes=0-1' }, whole],
    [{ 'if-range': '"other"', range: 'bytes=99-' }, whole],
  ])('%j', (headers, expected) => expect(of(headers)).toEqual(expected));

  it('a part is never outside the file', () => {
    fc.assert(
      fc.property(fc.nat(50), fc.stringMatching(/^bytes=\d{0,3}-\d{0,3}$/), (size, range) => {
        const selection = of({ range }, size);
        if (selection.kind !== 'part') return;
        expect(selection.start).toBeLessThanOrEqual(selection.end);
        expect(selection.start).toBeGreaterThanOrEqual(0);
        expect(selection.end).toBeLessThan(size);
      }),
    );
  });
});
