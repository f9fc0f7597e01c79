import { expect, it } from 'vitest';
import { base64url, fromBase64url, utf8ToBytes } from '../../../lib/kit/bytes.ts';
import { isPoint } from '../../../lib/kit/ece.ts';
import { encryptMessage, MAX_PLAINTEXT } from '../../../lib/push/encrypt.ts';

const bytes = (text: string): Uint8Array<ArrayBuffer> => new Uint8Array(fromBase64url(text) as Uint8Array);

/** RFC 8291, section 5 and appendix A. */
const RFC = {
  plaintext: 'When I grow up, I want to be a watermelon',
  asPrivate: 'yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw',
  asPublic: 'BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8',
  uaPublic: 'BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4',
  auth: 'BTBZMqHH6r4Tts7J_aSIgg',
  salt: 'DGv6ra1nlYgDCS1FRnbzlw',
  body:
    'DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A' +
    '_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN',
};

async function senderOfRfc(): Promise<CryptoKeyPair> {
  const curve = { name: 'ECDH', namedCurve: 'P-256' };
  const point = bytes(RFC.asPublic);
  const [x, y] = [point.subarray(1, 33), point.subarray(33)].map(base64url);
  const jwk = { kty: 'EC', crv: 'P-256', x, y, d: RFC.asPrivate };
  const [privateKey, publicKey] = await Promise.all([
    crypto.subtle.importKey('jwk', jwk, curve, true, ['deriveBits']),
    crypto.subtle.importKey('raw', point, curve, true, []),
  ]);
  return { privateKey, publicKey };
}

const receiver = { p256dh: bytes(RFC.uaPublic), auth: bytes(RFC.auth) };

it('RFC 8291, appendix A: encrypts to the very bytes of the example', async () => {
  const ephemeral = { salt: bytes(RFC.salt), pair: await senderOfRfc() };
  expect(base64url(await encryptMessage(utf8ToBytes(RFC.plaintext), receiver, ephemeral))).toBe(RFC.body);
});

it('RFC 8291 §3.1: takes a new salt and key for every message, and fits into what push services accept', async () => {
  const plaintext = new Uint8Array(MAX_PLAINTEXT);
  const [one, two] = [await encryptMessage(plaintext, receiver), await encryptMessage(plaintext, receiver)];
  expect(one.length).toBe(4096);
  expect(base64url(one.slice(0, 86))).not.toBe(base64url(two.slice(0, 86)));
});

it('RFC 8291 §3.1: tells a point of P-256 from other bytes', async () => {
  const offCurve = bytes(RFC.uaPublic);
  offCurve[64] = (offCurve[64] as number) ^ 1;
  const compressed = Uint8Array.of(2, ...receiver.p256dh.subarray(1, 33));
  expect(await isPoint(receiver.p256dh)).toBe(true);
  for (const wrong of [offCurve, compressed, new Uint8Array(65), Uint8Array.of(4), new Uint8Array()]) {
    expect(await isPoint(wrong)).toBe(false);
  }
});
