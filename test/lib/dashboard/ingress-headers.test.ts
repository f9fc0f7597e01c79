import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  FRAMING_HEADERS,
  HeaderFilter,
  pickHeaders,
  REQUEST_HEADERS,
  RESPONSE_HEADERS,
  readSessionHeader,
} from '../../../lib/dashboard/ingress-headers.ts';

const session = (value: string | string[] | undefined) => readSessionHeader({ 'x-svc-relay-session': value });

describe('the session header (contract 07 §4.3)', () => {
  it.each([undefined, '', '  ', []])('%j counts as missing', (value) => {
    expect(session(value)).toEqual({ status: 401, detail: 'relay session header required' });
  });

  it('has at most 8192 characters', () => {
    expect(session('x'.repeat(8192))).toEqual({ value: 'x'.repeat(8192) });
    expect(session('x'.repeat(8193))).toMatchObject({ status: 400 });
  });

  it.each(['a\rb', 'a\nb', 'a\r\nX-Svc-Operator: 1', 'a\0b', '\u2028x', 'a\x7f'])('%j is refused', (value) => {
    expect(session(value)).toMatchObject({ status: 400 });
  });
});

describe('the headers that pass (contract 07 §4.3)', () => {
  it.each(['cookie', 'authorization', 'host', 'origin', 'x-svc-operator', 'x-svc-operator-key', 'x-forwarded-for'])(
    '%s never reaches the relay',
    (name) => {
      expect(REQUEST_HEADERS).not.toContain(name);
    },
  );

  it('set-cookie, location and access-control headers never reach the client', () => {
    const returned = [...RESPONSE_HEADERS, ...FRAMING_HEADERS];
    for (const name of ['set-cookie', 'location', 'access-control-allow-origin']) expect(returned).not.toContain(name);
  });

  it('only named headers are picked, whatever there is', () => {
    const name = fc.oneof(fc.constantFrom(...REQUEST_HEADERS, 'cookie', 'authorization', '__proto__'), fc.string());
    const headers = fc.dictionary(name, fc.oneof(fc.string(), fc.array(fc.string())));
    fc.assert(
      fc.property(headers, (given) => {
        const picked = pickHeaders(given, REQUEST_HEADERS);
        const names = picked.filter((_, index) => index % 2 === 0);
        expect(names).toEqual(REQUEST_HEADERS.filter((listed) => listed in given));
        expect(picked.every((part) => typeof part === 'string')).toBe(true);
      }),
    );
  });
});

describe('a filter of raw headers', () => {
  it('keeps the named ones, whatever their case, as they were sent', () => {
    const filter = new HeaderFilter(RESPONSE_HEADERS);
    const raw = ['ETag', '"x"', 'Set-Cookie', 'a=b', 'vary', 'accept', 'Vary', 'range', 'Location', '/etag'];
    expect(filter.pick(raw)).toEqual(['ETag', '"x"', 'vary', 'accept', 'Vary', 'range']);
  });
});
