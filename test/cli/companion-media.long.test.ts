import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { begin, paired } from '../support/companion-cli.ts';
import { bearer, pair, post } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

const pending = cleanups();

/** A relay with a companion that allows everything, and the headers of a paired tool. */
async function withCompanion() {
  const relay = await startBuiltTarget();
  pending.push(() => relay.stop());
  const home = await paired(relay.port);
  const companion = begin(['companion', 'run', '--json', '--master', 'on', '--grant', 'all', '--approve', 'always'], {
    home,
  });
  await companion.prints(/"name":"online"|"state":"online"/);
  const headers = bearer((await pair(relay)).token);
  await vi.waitFor(async () => expect((await relay.fetch('/ping', { headers })).status).toBe(200));
  return { relay, headers };
}

it('a screenshot travels from the phone to a host tool, byte for byte (contract 03 §7)', async () => {
  const { relay, headers } = await withCompanion();
  const answer = await relay.fetch('/screenshot', { headers });
  expect(answer.status).toBe(200);
  const { media } = await answer.json();
  expect(media).toMatch(/^MEDIA:svc-relay:\/\/[A-Za-z0-9_-]{22}$/);
  const token = media.slice('MEDIA:svc-relay://'.length);
  const picture = await relay.fetch(`/media/${token}`, { headers });
  expect([picture.status, picture.headers.get('content-type')]).toEqual([200, 'image/png']);
  expect(picture.headers.get('content-disposition')).toMatch(/^inline; filename="svc-screenshot-\d+\.png"$/);
  const bytes = Buffer.from(await picture.arrayBuffer());
  expect(bytes.subarray(0, 8).toString('latin1')).toBe('\x89PNG\r\n\x1a\n');
  expect(bytes.subarray(-8).toString('latin1')).toContain('IEND');
  // The host may mark it as sensitive before it shows it.
  expect((await relay.operator(`/media/${token}/sensitive`, post({}))).status).toBe(200);
  const again = await relay.fetch(`/media/${token}`, { headers });
  expect(again.headers.get('x-media-sensitive')).toBe('1');
});

it('the phone fetches the files it shares: by token and by path', async () => {
  const { relay, headers } = await withCompanion();
  const path = join(await temporaryDirectory(), 'Grüße.txt');
  await writeFile(path, 'hello');
  const { token } = await (
    await relay.operator('/media/register', post({ path, content_type: 'text/plain', file_name: 'note.txt' }))
  ).json();
  const share = (attachments: unknown[]) => relay.fetch('/share_media', { ...post({ attachments }), headers });
  const shared = await share([{ media: `MEDIA:svc-relay://${token}` }, { path }]);
  expect(shared.status).toBe(200);
  expect(await shared.json()).toMatchObject({ attachments: 2, content_types: ['text/plain', 'text/plain'] });
  const refused = await share([{ path: '/etc/passwd' }]);
  expect([refused.status, (await refused.json()).reason]).toEqual([400, 'media_fetch_failed']);
});
