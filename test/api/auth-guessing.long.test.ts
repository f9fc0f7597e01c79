import { request } from 'node:http';
import { expect, it } from 'vitest';
import { addressHeaders, attemptFrom, BEHIND_PROXY, describeMatrix, type Target } from '../support/relay.ts';

/** Addresses of one attacker, each in a /64 of its own. */
const network = (index: number) => `2001:db8:${index.toString(16)}::1`;

describeMatrix(
  'a flood of peers (contract 01 §4)',
  (start) => {
    it('ten thousand other addresses do not end a running block', async () => {
      const target = await start(BEHIND_PROXY);
      for (let count = 0; count < 5; count++) await attemptFrom(target, '192.0.2.9', { session_token: 'wrong' });
      expect(await attemptFrom(target, '192.0.2.9', { session_token: 'wrong' })).toBe('429');
      for (let first = 0; first < 10_100; first += 50) {
        await Promise.all(Array.from({ length: 50 }, (_, at) => askForCode(target, network(first + at))));
      }
      expect(await attemptFrom(target, '192.0.2.9', { session_token: 'wrong' })).toBe('429');
    });
  },
  ['node'],
);

/** `POST /pairing` from an address, over plain `node:http`: thousands of `fetch` calls would take their time. */
const askForCode = (target: Target, address: string): Promise<void> =>
  new Promise((resolve, reject) => {
    const sent = request(
      `${target.url}/pairing`,
      { method: 'POST', headers: addressHeaders(target, address) },
      (response) => {
        response.resume();
        response.on('end', resolve);
      },
    );
    sent.on('error', reject);
    sent.end();
  });
