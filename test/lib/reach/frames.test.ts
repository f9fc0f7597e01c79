import fc from 'fast-check';
import { expect, it } from 'vitest';
import { digestOf } from '../../../lib/kit/sha256.ts';
import { closeFrame, decodeFrame, MAX_FRAME, MAX_PAYLOAD, windowFrame } from '../../../lib/reach/frames.ts';
import { bytesOfId, idOfBytes, isDigest, isId, isToken, newId, newToken } from '../../../lib/reach/ids.ts';
import { dataFrame } from '../../support/frames.ts';
import { runs } from '../../support/runs.ts';

const anId = fc.uint8Array({ minLength: 16, maxLength: 16 }).map(idOfBytes);

it('08 conventions: an ID is canonical base64url of 16 bytes', () => {
  fc.assert(fc.property(anId, (id) => isId(id) && idOfBytes(bytesOfId(id)) === id));
  for (const id of [newId(), 'A'.repeat(22), `${'-_'.repeat(11).slice(0, 21)}w`]) expect(isId(id)).toBe(true);
  const wrong = ['', 'A'.repeat(21), 'A'.repeat(23), `${'A'.repeat(21)}B`, `${'A'.repeat(22)}=`, `${'A'.repeat(21)}+`];
  for (const id of [...wrong, `${'A'.repeat(22)}\n`, null, 22, ['A'.repeat(22)]]) expect(isId(id)).toBe(false);
  expect(() => bytesOfId(`${'A'.repeat(21)}B`)).toThrow('not an ID');
});

it('08 conventions: a digest is base64url of the SHA-256 of UTF-8 bytes, a token has 32 to 512 characters', () => {
  expect(digestOf('')).toBe('47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU');
  expect(digestOf('Gerät')).toBe(digestOf('Ger\u00e4t'));
  fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => isDigest(digestOf(text))));
  for (const wrong of ['a'.repeat(42), 'a'.repeat(44), `${'a'.repeat(42)}b`, 43]) expect(isDigest(wrong)).toBe(false);
  expect(newToken()).toMatch(/^[\w-]{43}$/);
  expect([31, 32, 512, 513].map((length) => isToken('x'.repeat(length)))).toEqual([false, true, true, false]);
});

it('§6.4: every frame survives encoding and decoding', () => {
  fc.assert(
    fc.property(anId, fc.uint8Array({ minLength: 1, maxLength: 300 }), (streamId, payload) => {
      expect(decodeFrame(dataFrame(streamId, payload), false)).toEqual({ type: 'data', streamId, payload });
      expect(decodeFrame(closeFrame(streamId), false)).toEqual({ type: 'close', streamId });
    }),
  );
  fc.assert(
    fc.property(anId, fc.integer({ min: 1, max: 0xffffffff }), (streamId, credit) => {
      expect(decodeFrame(windowFrame(streamId, credit), true)).toEqual({ type: 'window', streamId, credit });
      expect(decodeFrame(windowFrame(streamId, credit), false)).toEqual({ type: 'bad', reason: 'malformed' });
    }),
  );
  const large = dataFrame(newId(), new Uint8Array(MAX_PAYLOAD));
  expect(large.length).toBe(MAX_FRAME);
  expect(decodeFrame(large, false)).toMatchObject({ type: 'data' });
  for (const credit of [0, -1, 1.5, 2 ** 32]) expect(() => windowFrame(newId(), credit)).toThrow(RangeError);
});

it('§6.4: the layout is version, flags, stream ID, payload', () => {
  const id = idOfBytes(Uint8Array.from({ length: 16 }, (_, index) => index));
  expect([...dataFrame(id, Uint8Array.of(255))]).toEqual([1, 2, ...Array(16).keys(), 255]);
  expect([...closeFrame(id)]).toEqual([1, 4, ...Array(16).keys()]);
  expect([...windowFrame(id, 0x01020304)]).toEqual([1, 8, ...Array(16).keys(), 1, 2, 3, 4]);
});

it('§7.5: wrong sizes and malformed frames are told apart', () => {
  for (const size of [0, 1, 17, MAX_FRAME + 1]) {
    expect(decodeFrame(new Uint8Array(size), true)).toEqual({ type: 'bad', reason: 'size' });
  }
  const frame = (version: number, flags: number, payload: number) =>
    Uint8Array.of(version, flags, ...new Uint8Array(16 + payload));
  const malformed = [frame(0, 2, 1), frame(2, 2, 1), frame(1, 0, 1), frame(1, 1, 1), frame(1, 6, 1), frame(1, 2, 0)];
  for (const bytes of [...malformed, frame(1, 4, 1), frame(1, 8, 4), frame(1, 8, 3), frame(1, 12, 0)]) {
    expect(decodeFrame(bytes, true)).toEqual({ type: 'bad', reason: 'malformed' });
  }
});

it('§6.4: any bytes are a frame that encodes to the same bytes, or are refused', () => {
  const anything = fc.oneof(
    fc.uint8Array({ maxLength: 40 }),
    fc
      .tuple(fc.constantFrom(0, 1, 2), fc.integer({ min: 0, max: 12 }), fc.uint8Array({ minLength: 16, maxLength: 22 }))
      .map(([version, flags, rest]) => Uint8Array.of(version, flags, ...rest)),
  );
  fc.assert(
    fc.property(anything, fc.boolean(), (bytes, flow) => {
      const frame = decodeFrame(bytes, flow);
      if (frame.type === 'bad') return;
      const again = {
        data: () => dataFrame(frame.streamId, (frame as { payload: Uint8Array }).payload),
        close: () => closeFrame(frame.streamId),
        window: () => windowFrame(frame.streamId, (frame as { credit: number }).credit),
      }[frame.type]();
      expect([...again]).toEqual([...bytes]);
    }),
    { numRuns: runs(2000) },
  );
});

it('§6.4: a frame that is a view of a larger buffer is read from its own start', () => {
  const id = newId();
  const buffer = new Uint8Array(100);
  buffer.set(windowFrame(id, 77), 10);
  expect(decodeFrame(buffer.subarray(10, 32), true)).toEqual({ type: 'window', streamId: id, credit: 77 });
});
