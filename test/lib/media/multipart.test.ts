import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { boundaryOf, createFilePartReader } from '../../../lib/media/multipart.ts';
import { runs } from '../../support/runs.ts';

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('latin1');

/** Feeds a body in pieces, cut at the given places, and returns the file part that was read. */
function read(body: string | Buffer, cuts: number[] = [], boundary = 'b') {
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(body);
  const reader = createFilePartReader(boundary);
  let found: { part?: object; content: string; ended: boolean } = { content: '', ended: false };
  const marks = [0, ...[...cuts].sort((a, b) => a - b).map((cut) => cut % (bytes.length + 1)), bytes.length];
  marks.sort((a, b) => a - b);
  for (let at = 1; at < marks.length; at++) {
    const pieces = reader.push(bytes.subarray(marks[at - 1], marks[at]));
    if (pieces.part) found = { ...found, part: pieces.part };
    found.content += pieces.bytes.map(text).join('');
    found.ended ||= pieces.ended;
  }
  return { ...found, complete: reader.complete() };
}

const partOf = (content: string, head = 'name="file"; filename="a.png"', type = 'content-type: image/png\r\n') =>
  `--b\r\ncontent-disposition: form-data; ${head}\r\n${type}\r\n${content}\r\n`;

describe('multipart (contract 04 §3.5)', () => {
  it.each([
    ['multipart/form-data; boundary=abc', 'abc'],
    ['Multipart/Mixed; charset=x; Boundary="a b"', 'a b'],
  ])('%s', (type, boundary) => expect(boundaryOf(type)).toBe(boundary));

  it.each([
    null,
    '',
    'application/json',
    'multipart/form-data',
    `multipart/form-data; boundary=${'x'.repeat(71)}`,
    'text/multipart; boundary=a',
  ])('refuses %s', (type) => expect(() => boundaryOf(type)).toThrow(expect.objectContaining({ kind: 'invalid' })));

  it('reads the first part named file, wherever it is, and no other', () => {
    const body = `preamble${'\r\n'}${partOf('x', 'name="note"')}${partOf('one')}${partOf('two')}--b--\r\nepilogue: none`;
    expect(read(body)).toEqual({
      part: { fileName: 'a.png', contentType: 'image/png' },
      content: 'one',
      ended: true,
      complete: true,
    });
  });

  it.each([
    ['name="note"', 'none'],
    ['name="audio"', 'audio'],
    ['name="clip"; filename=""', 'file name'],
    ["name=clip; filename*=UTF-8''a.wav", 'file name'],
  ])('takes the part that its caller wants: %s', (head, expected) => {
    let found = 'none';
    const reader = createFilePartReader('b', ({ name, hasFileName }) => {
      if (hasFileName) found = 'file name';
      else if (name === 'audio') found = name;
      return false;
    });
    expect(reader.push(Buffer.from(`${partOf('x', head)}--b--\r\n`)).part).toBeUndefined();
    expect(found).toBe(expected);
  });

  it('returns any bytes unchanged, however they are cut', () => {
    fc.assert(
      fc.property(
        fc.array(fc.oneof(fc.constantFrom('\r', '\n', '--', '--b', '\r\n--', '\r\n--c', '--b--', 'x')), {
          maxLength: 12,
        }),
        fc.array(fc.nat(400), { maxLength: 40 }),
        (words, cuts) => {
          const content = words.join('');
          fc.pre(!`\r\n${content}\r\n`.includes('\r\n--b'));
          const found = read(`${partOf(content)}--b--\r\n`, cuts);
          expect(found).toMatchObject({ content, ended: true, complete: true });
        },
      ),
      { numRuns: runs(2000) },
    );
  });

  it.each([
    ['name=file', { fileName: 'upload.bin' }],
    ['name="file"; filename=""', { fileName: 'upload.bin' }],
    ['name="file"; filename="../../etc/passwd"', { fileName: 'passwd' }],
    ['name="file"; filename="C:\\dir\\a.png"', { fileName: 'a.png' }],
    ['name="file"; filename="日本 Ü.png"', { fileName: '日本 Ü.png' }],
    ['name="file"; filename="a\\"b.png"', { fileName: 'a"b.png' }],
    ['filename="name=file"; name="file"', { fileName: 'name=file' }],
  ])('%s', (head, part) => expect(read(`${partOf('x', head)}--b--`).part).toMatchObject(part));

  it.each([
    ['content-type: nonsense\r\n', 'application/octet-stream'],
    ['', 'application/octet-stream'],
    ['Content-Type: text/plain; charset=utf-8\r\n', 'text/plain; charset=utf-8'],
  ])('type %j', (type, contentType) =>
    expect(read(`${partOf('x', 'name="file"', type)}--b--`).part).toMatchObject({ contentType }),
  );

  it.each([
    ['an endless header', `--b\r\nx: ${'y'.repeat(40_000)}`],
    ['hundreds of headers', `--b\r\n${'x: y\r\n'.repeat(300)}\r\n`],
    ['hundreds of parts', `${partOf('x', 'name="note"').repeat(100)}--b--`],
    ['a malformed header', '--b\r\nno header at all\r\n\r\nx\r\n--b--'],
    ['a name that cannot be decoded', `${partOf('x', `name="file"; filename*=UTF-8''%E0%A4%A`)}--b--`],
  ])('refuses %s', (_name, body) => expect(() => read(body)).toThrow(expect.objectContaining({ kind: 'invalid' })));

  it.each(['', '--b', '--b--x', partOf('cut off'), 'not multipart'])('%j is not complete', (body) =>
    expect(read(body.replace('--b--x', '--c--'))).toMatchObject({ complete: false }),
  );
});
