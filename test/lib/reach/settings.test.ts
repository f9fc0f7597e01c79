import { chmod, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createFiles } from '../../../lib/host/node/files.ts';
import { isId, newId } from '../../../lib/reach/ids.ts';
import { openHostId, readBrokerUrl, readReachSettings } from '../../../lib/reach/settings.ts';
import { temporaryDirectory } from '../../support/temp.ts';

const URL = 'wss://reach.example';
const TOKEN = 'x'.repeat(32);
const ALL = {
  reachEnabled: true,
  secureLinkEnabled: true,
  secureLinkBrokerUrl: URL,
  secureLinkBrokerHostToken: TOKEN,
};

describe('contract 08 §6.1: the broker', () => {
  it.each([
    ['wss://reach.example', 'wss://reach.example'],
    ['wss://reach.example/', 'wss://reach.example'],
    ['WSS://Reach.Example:8443/v1/connect', 'wss://reach.example:8443'],
    ['wss://[::1]:9444', 'wss://[::1]:9444'],
  ])('takes %s', (text, url) => {
    expect(readBrokerUrl(text)).toBe(url);
  });

  it.each([
    'ws://reach.example',
    'https://reach.example',
    'reach.example',
    'wss://',
    'wss://user@reach.example',
    'wss://user:secret@reach.example',
    'wss://reach.example/v1/connect/',
    'wss://reach.example/v1',
    'wss://reach.example/x/..',
    'wss://reach.example?x=1',
    'wss://reach.example/?',
    'wss://reach.example#x',
    'wss://reach.example\\x',
    'wss://reach example',
    'wss:/reach.example',
  ])('refuses %s', (text) => {
    expect(readBrokerUrl(text)).toBeNull();
  });

  it('is ready with flag, URL and token, and disabled without URL and token', () => {
    expect(readReachSettings(ALL)).toEqual({ kind: 'ready', brokerUrl: URL, token: TOKEN });
    const none = { ...ALL, secureLinkBrokerUrl: undefined, secureLinkBrokerHostToken: undefined };
    expect(readReachSettings(none)).toEqual({ kind: 'disabled' });
  });

  it.each([
    [{ reachEnabled: false }, 'RELAY_EXPERIMENTAL_REACH_ENABLED=1'],
    [{ secureLinkEnabled: false }, 'RELAY_SECURE_LINK_ENABLED=1'],
    [{ secureLinkBrokerUrl: undefined }, 'RELAY_SECURE_LINK_BROKER_URL'],
    [{ secureLinkBrokerUrl: 'ws://reach.example' }, 'RELAY_SECURE_LINK_BROKER_URL'],
    [{ secureLinkBrokerHostToken: undefined }, 'RELAY_SECURE_LINK_BROKER_HOST_TOKEN'],
    [{ secureLinkBrokerHostToken: 'x'.repeat(31) }, 'RELAY_SECURE_LINK_BROKER_HOST_TOKEN'],
    [{ secureLinkBrokerHostToken: 'x'.repeat(513) }, 'RELAY_SECURE_LINK_BROKER_HOST_TOKEN'],
  ])('is unavailable with %j, and says why', (change, named) => {
    const settings = readReachSettings({ ...ALL, ...change });
    expect(settings).toMatchObject({ kind: 'unavailable', problem: expect.stringContaining(named) });
    expect(JSON.stringify(settings)).not.toContain('xxxx');
  });
});

describe('contract 08 §2.1, §6.1: the host id', () => {
  const files = createFiles();
  const mode = async (path: string) => (await stat(path)).mode & 0o777;

  async function placed(content: string) {
    const home = await temporaryDirectory({ 'relay-secure-link/host-id': content });
    const path = join(home, 'relay-secure-link/host-id');
    await chmod(path, 0o644);
    await chmod(join(path, '..'), 0o755);
    return { home, path };
  }

  it('is made once, 0600 in 0700', async () => {
    const home = await temporaryDirectory();
    const path = join(home, 'relay-secure-link/host-id');
    const id = await openHostId(path, home, files);
    expect(isId(id)).toBe(true);
    expect(await readFile(path, 'utf8')).toBe(`${id}\n`);
    expect([await mode(path), await mode(join(path, '..'))]).toEqual([0o600, 0o700]);
    expect(await openHostId(path, home, files)).toBe(id);
  });

  it.each(['', '\n', '\r\n'])('is kept as it is, and tightened, with %j at its end', async (end) => {
    const id = newId();
    const { home, path } = await placed(id + end);
    expect(await openHostId(path, home, files)).toBe(id);
    expect(await readFile(path, 'utf8')).toBe(id + end);
    expect([await mode(path), await mode(join(path, '..'))]).toEqual([0o600, 0o700]);
  });

  it.each([
    '',
    'x',
    `${'A'.repeat(21)}B\n`,
    `${'A'.repeat(22)}==`,
    ` ${'A'.repeat(22)}`,
    `${'A'.repeat(22)}\n\n`,
    'A'.repeat(5000),
  ])('is refused and left alone when it is %j', async (content) => {
    const { home, path } = await placed(content);
    await expect(openHostId(path, home, files)).rejects.toThrow(/host id file/);
    expect(await readFile(path, 'utf8')).toBe(content);
    expect(await mode(path)).toBe(0o644);
  });

  it('leaves a directory alone that holds files of others', async () => {
    const directory = await temporaryDirectory();
    await chmod(directory, 0o755);
    await writeFile(join(directory, 'other'), '');
    await openHostId(join(directory, 'my-id'), '/nowhere', files);
    expect(await mode(directory)).toBe(0o755);
  });

  it('tightens a directory elsewhere that holds nothing else', async () => {
    const directory = await temporaryDirectory();
    await chmod(directory, 0o755);
    await openHostId(join(directory, 'my-id'), '/nowhere', files);
    expect(await mode(directory)).toBe(0o700);
  });
});
