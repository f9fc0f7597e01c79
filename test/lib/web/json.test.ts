import { describe, expect, it } from 'vitest';
import { createReadBudgets } from '../../../lib/kit/byte-budget.ts';
import { errorResponse, json, jsonText, readText } from '../../../lib/web/json.ts';
import { createTestClock } from '../../support/clock.ts';

const seen = async (response: Response) => [
  response.status,
  response.headers.get('content-type'),
  response.headers.get('cache-control'),
  await response.text(),
];

describe('json() (contract 01, conventions)', () => {
  it('is not cached unless the caller overrides it', async () => {
    expect(await seen(json({ a: 1 }))).toEqual([200, 'application/json', 'no-store', '{"a":1}']);
    expect(await seen(json({}, 202, { 'cache-control': 'private, max-age=60' }))).toEqual([
      202,
      'application/json',
      'private, max-age=60',
      '{}',
    ]);
  });

  it('forbids sniffing', () => {
    expect(json({}).headers.get('x-content-type-options')).toBe('nosniff');
  });

  it('passes JSON text through, and statuses without a body', async () => {
    const charset = { 'content-type': 'application/json; charset=utf-8' };
    expect(await seen(jsonText('[ 1 ]', 200, charset))).toEqual([200, charset['content-type'], 'no-store', '[ 1 ]']);
    expect(await seen(jsonText(null, 204))).toEqual([204, 'application/json', 'no-store', '']);
  });

  it('answers errors in the shape of every area', async () => {
    const response = errorResponse(429, 'too many', { 'retry-after': '5' }, { error_code: 'busy' });
    expect(response.headers.get('retry-after')).toBe('5');
    expect(await seen(response)).toEqual([
      429,
      'application/json',
      'no-store',
      '{"ok":false,"error":"too many","error_code":"busy"}',
    ]);
  });
});

describe('readText()', () => {
  const announced = (length: number, body: string) =>
    new Request('http://localhost', { method: 'POST', body, headers: { 'content-length': String(length) } });

  it('reads bodies with and without an announced length', async () => {
    expect(await readText(announced(3, 'a\u00fc'), 3)).toBe('a\u00fc');
    expect(await readText(new Request('http://localhost', { method: 'POST', body: 'abc' }), 3)).toBe('abc');
  });

  it('refuses a body over the limit, and one shorter than announced', async () => {
    await expect(readText(announced(4, 'abcd'), 3)).rejects.toMatchObject({ kind: 'too-large' });
    await expect(readText(announced(4, ''), 4)).rejects.toMatchObject({ kind: 'invalid' });
  });
});

describe('long bodies that arrive while others wait', () => {
  const MiB = 1024 * 1024;

  /** Long bodies within a budget of 1 MiB, each with the means to send it. */
  function setUp() {
    const clock = createTestClock();
    const budgets = createReadBudgets(MiB, clock);
    function post(length: number, isAnnounced = true) {
      let sender!: ReadableStreamDefaultController<Uint8Array>;
      const body = new ReadableStream<Uint8Array>({
        start(controller) {
          sender = controller;
        },
      });
      const headers: HeadersInit = isAnnounced ? { 'content-length': String(length) } : {};
      const init = { method: 'POST', body, headers, duplex: 'half' } as RequestInit;
      const outcome = readText(Object.assign(new Request('http://localhost', init), { budgets }), 4 * MiB).then(
        ({ length }) => length,
        ({ kind }) => kind,
      );
      const send = (bytes: number) => sender.enqueue(new Uint8Array(bytes).fill(0x20));
      return { outcome, send, end: () => sender.close() };
    }
    return { clock, budgets, post };
  }

  it.each([
    ['that is silent', true, 0],
    ['that stops', true, 300 * 1024],
    ['of unknown length that stops', false, 300 * 1024],
  ])('one %s is given up after two periods', async (_, isAnnounced, sent) => {
    const { clock, budgets, post } = setUp();
    const slow = post(MiB, isAnnounced);
    if (sent > 0) slow.send(sent);
    await clock.advanceAsync(60_000);
    const next = post(300 * 1024);
    next.send(300 * 1024);
    next.end();
    await clock.advanceAsync(29_999);
    expect(budgets.reading.waiting).toBe(1);
    await clock.advanceAsync(1);
    expect(budgets.reading.waiting).toBe(0);
    expect([await slow.outcome, await next.outcome]).toEqual(['timeout', 300 * 1024]);
    expect([budgets.reading.used, clock.pending]).toEqual([0, 0]);
  });

  it('one that receives 1 MiB per period is read to its end', async () => {
    const { clock, budgets, post } = setUp();
    const long = post(4 * MiB);
    await clock.advanceAsync(0);
    const next = post(300 * 1024);
    next.send(300 * 1024);
    next.end();
    for (let period = 0; period < 4; period++) {
      long.send(MiB);
      await clock.advanceAsync(15_000);
    }
    expect(budgets.reading.waiting).toBe(1);
    long.end();
    expect([await long.outcome, await next.outcome]).toEqual([4 * MiB, 300 * 1024]);
  });
});
