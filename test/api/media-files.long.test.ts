import { mkdir, rename, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { registered } from '../support/media.ts';
import { setup } from '../support/media-home.ts';

it('§3.6: a link that is swapped constantly never yields a byte from outside, by token or by path', {
  timeout: 300_000,
}, async () => {
  const { relay, device, workspace, outside, byPath } = await setup({ RELAY_MEDIA_STRICT_SANDBOX: '1' });
  await writeFile(join(outside, 'a.txt'), 'SECRET');
  const at = (name: string) => join(workspace, name);
  await mkdir(at('dir'));
  await writeFile(at('dir/a.txt'), 'inside');
  const token = await registered(relay, at('dir/a.txt'));
  await rename(at('dir'), at('kept'));
  await symlink(outside, at('link'));
  let over = false;
  const swapping = (async () => {
    while (!over) {
      await rename(at('kept'), at('dir'));
      await rename(at('dir'), at('kept'));
      await rename(at('link'), at('dir'));
      await rename(at('dir'), at('link'));
    }
  })();
  const seen = new Map<string, number>();
  for (let round = 0; round < 150; round++) {
    const asked = [1, 2, 3, 4].flatMap(() => [device.get(`/media/${token}`), byPath(at('dir/a.txt'))]);
    for (const response of await Promise.all(asked)) {
      const text = await response.text();
      const outcome = response.status === 200 ? text : String(response.status);
      seen.set(outcome, (seen.get(outcome) ?? 0) + 1);
    }
  }
  over = true;
  await swapping;
  expect([...seen.keys()].filter((outcome) => !['inside', '403', '404'].includes(outcome))).toEqual([]);
});
