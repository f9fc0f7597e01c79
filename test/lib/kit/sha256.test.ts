import fc from 'fast-check';
import { expect, it } from 'vitest';
import { digestOf } from '../../../lib/kit/sha256.ts';
import { webDigestOf } from '../../../lib/kit/web-sha256.ts';

it('hashes a text to base64url alike in a page and in the relay', async () => {
  expect(digestOf('')).toBe('47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU');
  await fc.assert(
    fc.asyncProperty(fc.string({ unit: 'binary' }), async (text) => (await webDigestOf(text)) === digestOf(text)),
  );
});
