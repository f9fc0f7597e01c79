import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { correctType, guessType } from '../../../lib/media/content-types.ts';
import { baseName, contentDisposition, mediaType, plainSuffix } from '../../../lib/media/names.ts';

describe('names and types (contract 04 §3.3, §3.8, §3.9)', () => {
  it.each([
    ['/etc/passwd', 'passwd'],
    ['C:\\Users\\me\\a.png', 'a.png'],
    ['a\r\nSet-Cookie: b=c.png', 'aSet-Cookie: b=c.png'],
    ['dir/', null],
    ['', null],
    ['\u0000\u007f\u0085', null],
    ['日本.png', '日本.png'],
  ])('base name of %j: %j', (name, expected) => expect(baseName(name)).toBe(expected));

  it('a base name has at most 255 characters', () => {
    expect(baseName('x'.repeat(300))).toHaveLength(255);
    expect(baseName('😀'.repeat(300))?.length).toBeLessThanOrEqual(255);
  });

  it.each([
    [null, 'inline'],
    ['"\\\r\n', 'inline'],
    ['a b.png', 'inline; filename="a b.png"'],
    ['a";x="b', 'inline; filename="a;x=b"'],
    ['Ü.png', `inline; filename="Ü.png"; filename*=UTF-8''%C3%9C.png`],
    ["Ü'(1)*.png", `inline; filename="Ü'(1)*.png"; filename*=UTF-8''%C3%9C%27%281%29%2A.png`],
  ])('disposition of %j', (name, expected) => expect(contentDisposition(name)).toBe(expected));

  it('no name can escape its quotes or its line', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 30 }), (name) => {
        const text = contentDisposition(name);
        // biome-ignore lint/suspicious/noControlCharactersInRegex: asserts that there are none
        expect(text).not.toMatch(/[\u0000-\u001f\u007f]/);
        expect(text).toMatch(/^inline(?:; filename="[^"\\]+"(?:; filename\*=UTF-8''[!#$&+.^_`|~0-9A-Za-z%-]+)?)?$/);
        expect(baseName(name) ?? '').not.toMatch(/[/\\\r\n]/);
      }),
    );
  });

  it.each([
    ['image/png', 'image/png'],
    [' text/plain; charset=utf-8 ', 'text/plain; charset=utf-8'],
    ['text/plain; name="a b"', 'text/plain; name="a b"'],
    ['image', null],
    ['image/', null],
    ['image/png\r\nx: y', null],
    ['image/png; a', null],
    [`a/${'b'.repeat(260)}`, null],
    ['', null],
  ])('media type %j: %j', (text, expected) => expect(mediaType(text)).toBe(expected));

  it.each([
    ['a.b.png', '.png'],
    ['a', ''],
    ['a.p/g', ''],
    ['a.äö', ''],
    [`a.${'x'.repeat(17)}`, ''],
  ])('suffix of %j: %j', (name, expected) => expect(plainSuffix(name)).toBe(expected));

  it.each([
    ['/a/b.PNG', 'image/png'],
    ['/a/film.mp4', 'video/mp4'],
    ['/a/notes.txt', 'text/plain'],
    ['/a/b.constructor', 'application/octet-stream'],
    ['/a/b', 'application/octet-stream'],
  ])('type of %s: %s', (path, expected) => expect(guessType(path)).toBe(expected));

  it.each([
    ['image/png', 'ffd8ff', 'image/jpeg'],
    ['IMAGE/PNG', '89504e470d0a1a0a', 'IMAGE/PNG'],
    ['image/svg+xml', '474946383961', 'image/gif'],
    ['image/png', '524946460000000057454250', 'image/webp'],
    ['image/png', '3c68746d6c', 'image/png'],
    ['image/png', '', 'image/png'],
    ['text/plain', 'ffd8ff', 'text/plain'],
  ])('%s with bytes %s is served as %s', (declared, hex, expected) =>
    expect(correctType(declared, Buffer.from(hex, 'hex'))).toBe(expected),
  );
});
