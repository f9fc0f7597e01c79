import { describe, expect, it } from 'vitest';
import { errorResponse, json, jsonText, readText } from '../../../lib/web/json.ts';

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
