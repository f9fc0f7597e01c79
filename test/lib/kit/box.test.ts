import fc from 'fast-check';
import { expect, it } from 'vitest';
import {
  type BoxKey,
  exportBoxKey,
  importBoxKey,
  keyIdOf,
  MAX_RECEIVERS,
  MAX_SEALED,
  newBoxKey,
  open,
  readSealed,
  type Sealed,
  seal,
} from '../../../lib/kit/box.ts';
import { base64url, fromBase64url, utf8ToBytes } from '../../../lib/kit/bytes.ts';
import { decryptRecord, encryptRecord } from '../../../lib/kit/ece.ts';

const bytes = (text: string): Uint8Array => fromBase64url(text) as Uint8Array;

it('RFC 8188 §3.1: encrypts to the very bytes of the example, and decrypts them', async () => {
  const secret = bytes('yqdlZ-tYemfogSmv7Ws5PQ');
  const salt = bytes('I1BsxtFttlv3u_Oo94xnmw');
  const record = await encryptRecord(utf8ToBytes('I am the walrus'), {
    secret,
    salt,
    keyId: new Uint8Array(),
    recordSize: 4096,
  });
  expect(base64url(record)).toBe('I1BsxtFttlv3u_Oo94xnmwAAEAAA-NAVub2qFgBEuQKRapoZu-IxkIva3MEB1PD-ly8Thjg');
  expect(new TextDecoder().decode(await decryptRecord(record, { secret }))).toBe('I am the walrus');
});

const people = Promise.all([newBoxKey(), newBoxKey(), newBoxKey(false), newBoxKey()]);
const context = 'to-device\nm1';
const sealTo = (text: string, from: BoxKey, ...to: BoxKey[]) =>
  seal(
    utf8ToBytes(text),
    from,
    to.map(({ point }) => ({ point, context })),
  );
const read = async (sealed: Sealed, as: BoxKey, from: BoxKey, of = context) =>
  new TextDecoder().decode(await open(sealed, as, { from: from.point, context: of }));

it('every receiver opens it, also with a key that cannot be exported; nobody else does', async () => {
  const [home, phone, browser, stranger] = await people;
  const sealed = await sealTo('Lunch?', home, phone, browser);
  expect(readSealed(JSON.parse(JSON.stringify(sealed)))).toEqual(sealed);
  expect(await read(sealed, phone, home)).toBe('Lunch?');
  expect(await read(sealed, browser, home)).toBe('Lunch?');
  await expect(read(sealed, stranger, home)).rejects.toThrow('not sealed for this key');
  await expect(read(sealed, phone, stranger)).rejects.toThrow('another key');
  expect(JSON.stringify(sealed)).not.toContain('Lunch');
});

it('who has no private key of the sender cannot seal in its name, not even a receiver', async () => {
  const [home, phone, browser, stranger] = await people;
  for (const forger of [stranger, browser]) {
    const forged = await sealTo('Yes', forger, phone);
    forged.by = await keyIdOf(home.point);
    await expect(read(forged, phone, home)).rejects.toThrow();
    const withPoint = await sealTo('Yes', { ...forger, point: home.point }, phone);
    await expect(read(withPoint, phone, home)).rejects.toThrow();
  }
});

it('what a receiver was given does not open as what it has sent', async () => {
  const [home, phone] = await people;
  const sealed = await sealTo('Yes', phone, home);
  await expect(read({ ...sealed, by: await keyIdOf(home.point) }, phone, home)).rejects.toThrow();
});

it('any changed, cut or longer part, another context, and parts of two texts are refused', async () => {
  const [home, phone] = await people;
  const other = await sealTo('Another text', home, phone);
  await fc.assert(
    fc.asyncProperty(
      fc.string(),
      fc.string(),
      fc.nat(),
      fc.integer({ min: 1, max: 255 }),
      async (text, of, at, flip) => {
        const own = await keyIdOf(phone.point);
        const sealed = await seal(utf8ToBytes(text), home, [{ point: phone.point, context: of }]);
        const key = sealed.keys[own] as string;
        expect(await read(sealed, phone, home, of)).toBe(text.toWellFormed());
        const changed = (encoded: string) => {
          const parts = Uint8Array.from(bytes(encoded));
          const place = at % parts.length;
          parts[place] = (parts[place] as number) ^ flip;
          return base64url(parts);
        };
        const cut = (encoded: string) => base64url(bytes(encoded).subarray(0, at % bytes(encoded).length));
        const longer = (encoded: string) => base64url(Uint8Array.from([...bytes(encoded), flip]));
        for (const change of [changed, cut, longer]) {
          await expect(read({ ...sealed, content: change(sealed.content) }, phone, home, of)).rejects.toThrow();
          await expect(read({ ...sealed, keys: { [own]: change(key) } }, phone, home, of)).rejects.toThrow();
        }
        await expect(read(sealed, phone, home, `${of}x`)).rejects.toThrow();
        await expect(read({ ...sealed, content: other.content }, phone, home, of)).rejects.toThrow();
        await expect(read({ ...sealed, keys: other.keys }, phone, home, of)).rejects.toThrow();
      },
    ),
    { numRuns: 10 },
  );
});

it('has bounds, and reads nothing else from the wire', async () => {
  const [home, phone] = await people;
  const receiver = { point: phone.point, context };
  await expect(seal(new Uint8Array(MAX_SEALED + 1), home, [receiver])).rejects.toThrow('too long');
  await expect(seal(new Uint8Array(), home, Array(MAX_RECEIVERS + 1).fill(receiver))).rejects.toThrow('too many');
  await expect(seal(new Uint8Array(), home, [{ ...receiver, point: new Uint8Array(65) }])).rejects.toThrow();
  const sealed = await sealTo('x', home, phone);
  for (const wrong of [
    null,
    {},
    { ...sealed, keys: {} },
    { ...sealed, keys: { x: 'y' } },
    { ...sealed, by: 'me' },
    { ...sealed, content: 7 },
    { ...sealed, keys: { [await keyIdOf(phone.point)]: 'short' } },
  ]) {
    expect(readSealed(wrong)).toBeUndefined();
  }
});

it('a key survives its export, and no other point goes with it', async () => {
  const [home, phone] = await people;
  const copy = await importBoxKey(await exportBoxKey(phone), phone.point);
  expect(await read(await sealTo('x', home, phone), copy, home)).toBe('x');
  await expect(importBoxKey(await exportBoxKey(phone), home.point)).rejects.toThrow();
  await expect(importBoxKey('AAAA', phone.point)).rejects.toThrow();
});
