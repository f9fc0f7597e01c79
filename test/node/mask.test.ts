import { readdir, readFile } from 'node:fs/promises';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { mask, unmask } from '../../cli/runtime/node/mask.ts';

/** A buffer that begins anywhere in its memory, so that its words are aligned in every way. */
const bytesAnywhere = fc
  .tuple(fc.uint8Array({ maxLength: 600 }), fc.nat(7))
  .map(([bytes, at]) => new Uint8Array([...new Uint8Array(at), ...bytes]).subarray(at));
const anyMask = fc.uint8Array({ minLength: 4, maxLength: 4 });

const masked = (bytes: Uint8Array, key: Uint8Array) => bytes.map((byte, at) => byte ^ (key[at % 4] as number));

it('unmask: each byte by its place in the payload, however the payload is aligned (RFC 6455 §5.3)', () => {
  fc.assert(
    fc.property(bytesAnywhere, anyMask, (bytes, key) => {
      const expected = masked(bytes, key);
      unmask(bytes, key);
      expect(bytes).toEqual(expected);
    }),
  );
});

it('mask: only the bytes from the offset on, and leaves the source as it was', () => {
  fc.assert(
    fc.property(bytesAnywhere, anyMask, fc.nat(16), fc.nat(8), (bytes, key, offset, rest) => {
      const source = bytes.slice();
      const output = new Uint8Array(offset + bytes.length + rest).fill(1);
      mask(bytes, key, output, offset, bytes.length);
      expect(bytes).toEqual(source);
      expect(output.subarray(offset, offset + bytes.length)).toEqual(masked(source, key));
      expect([...output.subarray(0, offset), ...output.subarray(offset + bytes.length)]).toEqual(
        new Array(offset + rest).fill(1),
      );
    }),
  );
});

it('mask: in place', () => {
  const bytes = new Uint8Array(301).map((_, at) => at);
  const expected = masked(bytes, Uint8Array.of(1, 2, 3, 4));
  mask(bytes, Uint8Array.of(1, 2, 3, 4), bytes, 0, bytes.length);
  expect(bytes).toEqual(expected);
});

it('the bundle has it in the place of `bufferutil`', async () => {
  // Folders of earlier builds may lie beside the present one.
  const [, folder] = /\.\.\/(\w+)\//.exec(await readFile('dist/cli/svc.js', 'utf8')) as RegExpExecArray;
  const files = (await readdir(`dist/${folder}`)).filter((name) => name.endsWith('.js'));
  const texts = await Promise.all(files.map((name) => readFile(`dist/${folder}/${name}`, 'utf8')));
  const ofWs = texts.filter((text) => text.includes('websocketMask'));
  expect(ofWs.map((text) => text.includes('maskWord('))).toEqual([true]);
});
