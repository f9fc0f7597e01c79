import { describe, expect, it } from 'vitest';
import { openWithDevice, readReplies } from './device.ts';

describe('long replies that come to the edge (12 §2)', () => {
  it('a reply of a million quotes crosses in pieces', async () => {
    const { world, device } = await openWithDevice();
    device.connect('edge');
    const text = '"'.repeat(1024 * 1024);
    await device.reply('r1', text);
    await world.settle();
    expect(await readReplies(world, 'home')).toEqual([['r1', text]]);
  });

  it('refuses a reply that home could not be given, and drops none', async () => {
    const { world, device } = await openWithDevice();
    await world.cut();
    device.connect('edge');
    const text = 'x'.repeat(1024 * 1024);
    let accepted = 0;
    const refused = async () => {
      for (; accepted < 100; accepted++) await device.reply(`r${accepted}`, text);
    };
    await expect(refused()).rejects.toThrow('too much waits for home: try again later');
    expect(accepted).toBeGreaterThan(30);
    expect(world.edge.mirror.status().waiting).toEqual({ out: accepted, in: 0 });
    expect(world.log.lines.join('\n')).toContain('no more are taken');
    await world.settle();
    const ids = new Set<string>();
    for (const item of world.home.phone.history({ since: 0, limit: 200 }).items) ids.add(item.message_id);
    expect(ids.has(`r${accepted - 1}`)).toBe(true);
    await device.reply(`r${accepted}`, text);
  });
});
