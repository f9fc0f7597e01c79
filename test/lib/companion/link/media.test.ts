import { expect, it } from 'vitest';
import { createMediaClient } from '../../../../lib/companion/link/media.ts';
import { utf8ToBytes } from '../../../../lib/kit/bytes.ts';
import { createTestClock } from '../../../support/clock.ts';
import { createFakeStore } from './support.ts';

it.each([
  [
    503,
    '{"ok":false,"error":"home is off since 2026-11-29T07:00:00.000Z"}',
    ': home is off since 2026-11-29T07:00:00.000Z',
  ],
  [404, '{"ok":false,"error":42}', ''],
  [502, '<html>a proxy</html>', ''],
  [500, '', ''],
  [500, JSON.stringify({ error: 'x'.repeat(5000) }), ''],
])(
  '03 §7: a refused file is an error with the status and the reason of the relay: %i %j',
  async (status, body, reason) => {
    const { fetchMedia } = createMediaClient({
      callRelay: async () => ({ status, headers: {}, bytes: utf8ToBytes(body) }),
      store: createFakeStore().store,
      clock: createTestClock(),
    });
    await expect(fetchMedia({ token: 'a' })).rejects.toMatchObject({
      kind: 'bad-gateway',
      message: `the relay answered ${status}${reason}`,
    });
  },
);
