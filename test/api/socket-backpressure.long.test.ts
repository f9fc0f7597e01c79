import { expect, it, vi } from 'vitest';
import type { Channel } from '../../lib/socket/channel.ts';
import { KiB, MiB, start } from '../support/backpressure.ts';

it('contract 02 §1.6: more than 256 queued messages pause reading of that socket only, and none is lost', async () => {
  const order: number[] = [];
  const waiting: (() => void)[] = [];
  let released = false;
  const probe: Channel = {
    async message(_connection, { payload }) {
      if (payload.index === undefined) return;
      if (!released) await new Promise<void>((resolve) => waiting.push(resolve));
      order.push(payload.index as number);
    },
  };
  const { join } = await start(probe);
  const client = await join();
  const other = await join();
  const filler = 'x'.repeat(32 * KiB);
  const total = 2000;
  for (let index = 0; index < total; index++) client.send('probe', 'work', { index, filler });
  await vi.waitFor(() => expect(waiting).toHaveLength(1));
  // 64 MB exceed the kernel's buffers: they stay with the client, while others are served.
  for (let round = 0; round < 20; round++) {
    other.send('system', 'ping', {}, `o${round}`);
    await other.next({ id: `o${round}` });
  }
  expect(client.socket.bufferedAmount).toBeGreaterThan(16 * MiB);
  released = true;
  waiting[0]?.();
  await vi.waitFor(() => expect(order).toHaveLength(total));
  expect(order).toEqual(Array.from({ length: total }, (_, index) => index));
  client.send('system', 'ping', {}, 'after');
  await client.next({ id: 'after' });
});
