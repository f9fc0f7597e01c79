import { expect, it, vi } from 'vitest';
import { eventsUntil, send, setUp } from '../support/chat.ts';
import { describeMatrix } from '../support/relay.ts';

describeMatrix(
  'chat on a host (contract 02 §1)',
  (start) => {
    it('§1.7: a slow client pauses the upstream and loses nothing', async () => {
      const { api, client } = await setUp(start);
      const total = 1024;
      const delta = 'x'.repeat(64 * 1024);
      let written = 0;
      api.onStream(async (exchange) => {
        exchange.open();
        for (; written < total && !exchange.abandoned; written++)
          await exchange.event({ type: 'assistant.delta', delta });
        exchange.end();
      });
      client.socket.pause();
      send(client, 'c1');
      // It is paused when it has not moved for a second.
      let last = -1;
      await vi.waitFor(
        () => {
          const moved = written !== last || written === 0;
          last = written;
          expect(moved).toBe(false);
        },
        { interval: 1000 },
      );
      // Of 64 MiB only what fits into the kernel's buffers and the relay's 1 MiB.
      expect(written).toBeLessThan(400);
      client.socket.resume();
      const events = await eventsUntil(client, 'c1', 'done');
      expect(events.map(({ seq }) => seq)).toEqual(Array.from({ length: total + 1 }, (_, index) => index + 1));
    });
  },
  ['node'],
);
