import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createPublicUrl, readPublicUrl } from '../../../lib/dashboard/public-url.ts';
import { setupQrText } from '../../../lib/dashboard/setup-qr.ts';
import { createFiles } from '../../../lib/host/node/files.ts';
import { createTestClock } from '../../support/clock.ts';
import { temporaryDirectory } from '../../support/temp.ts';

describe('Setup QR (contract 07 §4.1)', () => {
  it.each([
    ['http://127.0.0.1:9119', 'http://127.0.0.1:9119'],
    ['http://127.0.0.1:9119/relay', 'http://127.0.0.1:9119'],
    ['https://home.example/hub/relay/', 'https://home.example/hub'],
    ['https://user:secret@home.example/hub/?token=abc#code=def', 'https://home.example/hub'],
    ['https://home.example/relayed', 'https://home.example/relayed'],
    ['https://home.example:443/', 'https://home.example'],
    ['http://[::1]:9119/relay?x=1', 'http://[::1]:9119'],
  ])('%s gives %s and nothing else', (address, expected) => {
    expect(setupQrText(address)).toBe(JSON.stringify({ dashboard_url: expected }));
  });

  it.each(['', 'home.example', 'ftp://home.example', 'javascript:alert(1)', 'file:///x'])('refuses %j', (address) => {
    expect(() => setupQrText(address)).toThrow(/http/);
  });
});

describe('public URL (contract 07 §4.1)', () => {
  it.each([
    [null, null],
    [undefined, null],
    ['', null],
    ['  ', null],
    ['https://relay.example.com', 'https://relay.example.com'],
    ['https://relay.example.com/', 'https://relay.example.com'],
    [' http://192.168.1.2:8767 ', 'http://192.168.1.2:8767'],
    ['https://[2001:db8::1]:8767', 'https://[2001:db8::1]:8767'],
  ])('%j is read as %j', (value, expected) => expect(readPublicUrl(value)).toBe(expected));

  it.each([
    'relay.example.com',
    'ws://relay.example.com',
    'https://',
    'https://user:pw@relay.example.com',
    'https://@relay.example.com',
    'https://relay.example.com/path',
    'https://relay.example.com?x=1',
    'https://relay.example.com#x',
    'https://relay.example.com:99999',
    `https://${'a'.repeat(3000)}`,
    'https://relay .example.com',
    1,
    {},
  ])('refuses %j', (value) => expect(() => readPublicUrl(value)).toThrow(/url must be/));

  it('pins and clears it in a private file, and takes a damaged file for none', async () => {
    const agentHome = await temporaryDirectory();
    const clock = createTestClock();
    const publicUrl = createPublicUrl({ files: createFiles(), agentHome, clock });
    const path = join(agentHome, 'relay-remote.json');
    expect(await publicUrl.read()).toEqual({ url: null, updated_at: null });
    const pinned = await publicUrl.write('https://relay.example.com');
    expect(pinned).toEqual({ url: 'https://relay.example.com', updated_at: clock.now() / 1000 });
    expect(await publicUrl.read()).toEqual(pinned);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(JSON.parse(await readFile(path, 'utf8'))).toEqual(pinned);
    expect((await publicUrl.write(null)).url).toBeNull();
    expect((await publicUrl.read()).url).toBeNull();
    for (const damaged of ['', '{', '[]', '{"url":"javascript:x"}', '{"url":5}']) {
      await writeFile(path, damaged);
      expect(await publicUrl.read()).toEqual({ url: null, updated_at: null });
    }
  });
});
