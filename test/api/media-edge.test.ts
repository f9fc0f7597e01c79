import { expect, it } from 'vitest';
import { form, mediaDevice } from '../support/media.ts';
import { describeMatrix, post } from '../support/relay.ts';

describeMatrix(
  'media at the edge',
  (start) => {
    it('larger than one part of the object store: comes back whole, by ranges too', async () => {
      const device = await mediaDevice(await start());
      const bytes = Buffer.alloc(6 * 1024 * 1024 + 17, 'abcdefghijk');
      const token = await device.put(bytes, 'film.mp4', 'video/mp4');
      const got = await device.get(`/media/${token}`);
      expect(Buffer.from(await got.arrayBuffer()).equals(bytes)).toBe(true);
      const part = await device.get(`/media/${token}`, { headers: { range: 'bytes=5242870-5242890' } });
      expect(Buffer.from(await part.arrayBuffer()).equals(bytes.subarray(5242870, 5242891))).toBe(true);
    });

    it('what is refused leaves no object', async () => {
      const target = await start({ env: { RELAY_MEDIA_MAX_SIZE_MB: '6' } });
      const device = await mediaDevice(target);
      const large = await device.upload(form(Buffer.alloc(7 * 1024 * 1024 - 1000)));
      expect([large.status, (await large.json()).ok]).toEqual([413, false]);
      expect((await device.upload(form(Buffer.from('x'), 'a', 'a/b', 'other'))).status).toBe(400);
      expect(await target.objects?.()).toEqual([]);
    });

    it('the least recently used goes when there are too many, with its object', async () => {
      const target = await start({ env: { RELAY_MEDIA_LRU_CAP: '2' } });
      const device = await mediaDevice(target);
      const tokens = [];
      for (const name of ['a', 'b', 'c']) tokens.push(await device.put(Buffer.from(name), name));
      const statuses = await Promise.all(tokens.map(async (token) => (await device.get(`/media/${token}`)).status));
      expect(statuses).toEqual([404, 200, 200]);
      expect(await target.objects?.()).toHaveLength(2);
    });

    it('files of a host are not to be had', async () => {
      const target = await start();
      const device = await mediaDevice(target);
      const answers = [
        await target.operator('/media/register', post({ path: '/tmp/a', content_type: 'a/b' })),
        await device.get('/media/by-path?path=/tmp/a'),
      ];
      for (const answer of answers) expect([answer.status, (await answer.json()).ok]).toEqual([501, false]);
    });
  },
  ['edge'],
);
