import { expect, it } from 'vitest';
import { reconnect, startPhone } from '../support/phone.ts';
import { bearer, describeMatrix, pair, post } from '../support/relay.ts';

describeMatrix(
  'the bridge at the edge',
  (start) => {
    // One sleep for both channels that remember phones: it takes long.
    it('phones are there again after a sleep of the object, as they were, and still subscribed to messages', {
      timeout: 60_000,
    }, async () => {
      const target = await start();
      const first = await startPhone(target, { device: { device_id: 'id-1', device_name: 'First' } });
      const status = { battery: 7, bridge: { device_control_supported: true } };
      const second = await startPhone(target, { device: { device_id: 'id-2', device_name: 'Second' }, status });
      const store = { bridge: { device_control_supported: false }, filler: 'x'.repeat(100_000) };
      const third = await startPhone(target, { device: { device_id: 'id-3', device_name: 'Third' }, status: store });
      const older = await startPhone(target, { device: { device_id: 'id-4', device_name: 'Fourth' } });
      const newer = await reconnect(target, older);
      const silent = await startPhone(target, { device: { device_id: 'id-5' }, status: null });
      const caller = await pair(target);
      const message = async (id: string) =>
        (await target.operator('/phone/message', post({ text: 'x', message_id: id }))).json();
      for (const { client } of [first, third, second]) {
        client.send('proactive', 'proactive.subscribe');
        await client.next({ type: 'proactive.subscribed' });
      }
      third.client.send('proactive', 'proactive.unsubscribe');
      await third.settled();
      await target.operator('/bridge/select-active', post({ device: 'second' }));
      await target.fetch('/ping', { headers: bearer(caller.token) });

      // The local runtime puts an idle object with sleeping sockets away after about ten seconds without events.
      await new Promise((resolve) => setTimeout(resolve, 13_000));

      const { activity } = await (await target.operator('/bridge/activity')).json();
      expect(activity, 'the object has slept').toEqual([]);
      const devices = await (await target.operator('/bridge/devices')).json();
      expect(devices).toMatchObject({ count: 4, active_device_id: 'id-2', most_recent_device_id: 'id-4' });
      const get = (path: string) => target.fetch(path, { headers: bearer(caller.token) });
      expect((await get('/screen')).status).toBe(200);
      expect(second.commands).toHaveLength(2);
      expect(await (await target.operator('/bridge/status')).json()).toMatchObject({ ...status, active: true });
      expect((await get('/screen?device=third')).status).toBe(403);
      expect((await get('/ping?device=third')).status).toBe(200);
      expect((await get('/ping?device=first')).status).toBe(200);
      await older.report();
      expect((await get('/ping?device=fourth')).status).toBe(200);
      expect([first, third, older, newer, silent].map(({ commands }) => commands.length)).toEqual([1, 1, 0, 1, 0]);

      expect(await message('m1')).toMatchObject({ delivered: true });
      await second.client.next({ id: 'm1' });
      second.client.send('proactive', 'proactive.unsubscribe');
      second.client.send('proactive', 'proactive.reply', { text: 'x' }, 'r1');
      await second.client.next({ id: 'r1' });
      expect(await message('m2')).toMatchObject({ delivered: true });
      await first.client.next({ id: 'm2' });

      second.client.close();
      await expect.poll(async () => (await (await target.operator('/bridge/devices')).json()).count).toBe(3);
    });
  },
  ['edge'],
);
