import { describe, expect, it } from 'vitest';
import { image, PNG, setup } from './support.ts';

const MiB = 1024 * 1024;

describe('clipboard inbox (04 §6)', () => {
  it('accepts 25 MiB and not a byte more', async () => {
    const { inbox } = await setup();
    const largest = Buffer.alloc(25 * MiB);
    PNG.copy(largest);
    expect((await inbox.put(image('png', largest))).sizeBytes).toBe(25 * MiB);
    await expect(inbox.put(image('png', Buffer.concat([largest, Buffer.alloc(1)])))).rejects.toMatchObject({
      kind: 'too-large',
    });
  });

  it('checks the base64 before the size', async () => {
    const { inbox } = await setup();
    const huge = 'A'.repeat(36 * MiB - 4);
    await expect(inbox.put({ format: 'png', bytesBase64: `${huge}AA A` })).rejects.toMatchObject({ kind: 'invalid' });
    await expect(inbox.put({ format: 'png', bytesBase64: huge })).rejects.toMatchObject({ kind: 'too-large' });
  });
});
