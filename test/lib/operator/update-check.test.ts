import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { readConfig } from '../../../lib/config.ts';
import {
  checkForUpdate,
  compareVersions,
  createUpdateCheck,
  latestRelease,
  type UpdateCheckDeps,
} from '../../../lib/operator/update-check.ts';
import { createTestClock } from '../../support/clock.ts';

const partsOf = (feed: string | undefined, home = '/nowhere', version = '1.0.0'): UpdateCheckDeps => ({
  config: readConfig({ RELAY_UPDATE_FEED_URL: feed }, { home, agentHome: home }).config,
  version,
});

/** A loopback server, closed when the test ends. */
async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const serveFeed = (feed: unknown) => serve((_request, response) => void response.end(JSON.stringify(feed)));
const release = (tag_name: unknown, draft: unknown = false) => ({ tag_name, draft });
const failure = (error: string) => ({
  current: '1.0.0',
  latest: null,
  update_available: false,
  update_command: null,
  error,
});

describe('releases (07 §5.3)', () => {
  it.each([
    ['the highest by number', ['server-v1.9.0', 'server-v1.10.0', 'server-v1.2.0'], '1.10.0'],
    ['server before plugin', ['server-v1.0.1', 'plugin-v9.0.0'], '1.0.1'],
    ['plugin when there is no server', ['plugin-v0.9.0', 'plugin-v0.10.1', 'v7.0.0', 'android-v8.0.0'], '0.10.1'],
    ['a suffix', ['server-v1.2.3-beta.4+build'], '1.2.3'],
    ['no triple', ['server-vnext', 'server-v1.2', 'plugin-v0.1.0'], '0.1.0'],
    ['nothing', ['v1.0.0'], null],
    ['nothing at all', [], null],
  ])('picks %s', (_, tags, latest) => {
    expect(latestRelease(tags.map((tag) => release(tag)))).toBe(latest);
  });

  it('skips drafts and malformed entries', () => {
    const feed = [release('server-v3.0.0', true), null, 'server-v4.0.0', release(5), release('server-v2.0.0')];
    expect(latestRelease(feed)).toBe('2.0.0');
  });

  it('calls unparseable versions equal', () => {
    expect(compareVersions('2.0.0', 'dev')).toBe(0);
    expect(compareVersions('dev', '2.0.0')).toBe(0);
    expect(compareVersions('1.10.0', '1.9.9')).toBeGreaterThan(0);
    expect(compareVersions('1.0.0-rc1', '1.0.0')).toBe(0);
    expect(compareVersions('0.9.9', 'v1.0.0')).toBeLessThan(0);
  });
});

describe('checkForUpdate (01 §8.3)', () => {
  it('offers a newer release', async () => {
    const feed = await serveFeed([release('server-v1.1.0'), release('server-v1.2.0', true)]);
    expect(await checkForUpdate(partsOf(feed))).toEqual({
      current: '1.0.0',
      latest: '1.1.0',
      update_available: true,
      update_command: null,
    });
  });

  it('names the command of this installation', async () => {
    const feed = await serveFeed([release('server-v1.1.0')]);
    const updateCommand = (latest: string) => `npm install -g svc-relay@${latest}`;
    const result = await checkForUpdate({ ...partsOf(feed), updateCommand });
    expect(result.update_command).toBe('npm install -g svc-relay@1.1.0');
  });

  it.each([
    ['the same', '1.1.0'],
    ['a newer one', '1.2.0'],
    ['one of no known form', 'dev'],
  ])('offers nothing to %s', async (_, version) => {
    const feed = await serveFeed([release('server-v1.1.0')]);
    expect(await checkForUpdate(partsOf(feed, '/nowhere', version))).toEqual({
      current: version,
      latest: '1.1.0',
      update_available: false,
      update_command: null,
    });
  });

  it.each([
    ['nonsense', 'the release feed must be an https URL'],
    ['http://example.test/feed', 'the release feed must be an https URL'],
    ['http://127.0.0.1.example.test/feed', 'the release feed must be an https URL'],
    ['file:///etc/passwd', 'the release feed must be an https URL'],
    ['http://127.0.0.1:1/', 'the release feed cannot be reached'],
    ['http://user:hunter2@127.0.0.1:1/?key=hunter2', 'the release feed cannot be reached'],
  ])('does not request %s', async (feed, error) => {
    expect(await checkForUpdate(partsOf(feed))).toEqual(failure(error));
  });

  it.each([undefined, ''])('is no failure without a feed (%j)', async (feed) => {
    expect(await checkForUpdate(partsOf(feed))).toEqual({
      current: '1.0.0',
      latest: null,
      update_available: false,
      update_command: null,
    });
  });

  it.each<[string, RequestListener, string]>([
    ['a failing server', (_, response) => void response.writeHead(503).end('[]'), 'the release feed answered 503'],
    ['no JSON', (_, response) => void response.end('<html>'), 'the release feed is not a list of releases'],
    ['no list', (_, response) => void response.end('{}'), 'the release feed is not a list of releases'],
    ['an empty list', (_, response) => void response.end('[]'), 'the release feed lists no release'],
    [
      'a cut answer',
      (_, response) => void response.write('[', () => response.destroy()),
      'the release feed cannot be reached',
    ],
    [
      'a redirect to another scheme',
      (_, response) => void response.writeHead(302, { location: 'https://127.0.0.1:1/' }).end(),
      'the release feed redirects to another scheme',
    ],
    [
      'a redirect away from loopback',
      (_, response) => void response.writeHead(302, { location: 'http://example.test/' }).end(),
      'the release feed must be an https URL',
    ],
    [
      'redirects without end',
      (_, response) => void response.writeHead(307, { location: '/' }).end(),
      'the release feed redirects without end',
    ],
  ])('reports %s', async (_, listener, error) => {
    expect(await checkForUpdate(partsOf(await serve(listener)))).toEqual(failure(error));
  });

  it('stops reading a huge feed', async () => {
    let sent = 0;
    const feed = await serve((_, response) => {
      const chunk = Buffer.alloc(64 * 1024, ' ');
      const more = () => {
        if (response.destroyed) return;
        sent += chunk.length;
        response.write(chunk, more);
      };
      more();
    });
    expect(await checkForUpdate(partsOf(feed))).toEqual(failure('the release feed is too large'));
    expect(sent).toBeLessThan(32 * 1024 * 1024);
  });

  it.each<[string, RequestListener]>([
    ['that says nothing', () => {}],
    ['that stalls in its body', (_, response) => void response.write('[')],
  ])('gives up on a feed %s', async (_, listener) => {
    const feed = await serve(listener);
    expect(await checkForUpdate({ ...partsOf(feed), timeout: 100 })).toEqual(
      failure('the release feed did not answer in time'),
    );
  });

  it('sends credentials of the URL to its own origin only', async () => {
    const seen: (string | undefined)[] = [];
    const other = await serve((request, response) => {
      seen.push(request.headers.authorization);
      response.end(JSON.stringify([release('server-v2.0.0')]));
    });
    const feed = await serve((request, response) => {
      seen.push(request.headers.authorization);
      response.writeHead(302, { location: request.url === '/' ? '/moved' : other }).end();
    });
    const result = await checkForUpdate(partsOf(feed.replace('//', '//me:s%20cret@')));
    expect(result.latest).toBe('2.0.0');
    const basic = `Basic ${btoa('me:s cret')}`;
    expect(seen).toEqual([basic, basic, undefined]);
  });
});

describe('createUpdateCheck', () => {
  const HOUR = 3_600_000;

  /** A check whose feed counts requests. */
  function counting(answer: () => Response) {
    const clock = createTestClock();
    const asked = { count: 0 };
    const check = createUpdateCheck({
      ...partsOf('https://feed.test/'),
      clock,
      fetch: async () => {
        asked.count++;
        await new Promise((resolve) => setTimeout(resolve, 5));
        return answer();
      },
    });
    return { clock, asked, check };
  }
  const good = () => new Response(JSON.stringify([release('server-v1.1.0')]));

  it('keeps a result for an hour', async () => {
    const { clock, asked, check } = counting(good);
    expect(check.checkedAt()).toBeNull();
    const first = await check.result();
    const checkedAt = clock.now() / 1000;
    clock.advance(HOUR - 1);
    expect(await check.result()).toEqual(first);
    expect(check.checkedAt()).toBe(checkedAt);
    expect(asked.count).toBe(1);
    clock.advance(1);
    await check.result();
    expect(asked.count).toBe(2);
    expect(check.checkedAt()).toBe(clock.now() / 1000);
  });

  it('keeps a failure for five minutes', async () => {
    const { clock, asked, check } = counting(() => new Response('', { status: 500 }));
    expect(await check.result()).toEqual(failure('the release feed answered 500'));
    clock.advance(299_999);
    await check.result();
    expect(asked.count).toBe(1);
    clock.advance(1);
    await check.result();
    expect(asked.count).toBe(2);
  });

  it('refreshes at most once a minute', async () => {
    const { clock, asked, check } = counting(good);
    await check.result(true);
    clock.advance(59_999);
    await check.result(true);
    expect(asked.count).toBe(1);
    clock.advance(1);
    await check.result(true);
    expect(asked.count).toBe(2);
  });

  it('shares one request among waiting callers', async () => {
    const { asked, check } = counting(good);
    const results = await Promise.all([check.result(), check.result(true), check.result()]);
    expect(asked.count).toBe(1);
    expect(new Set(results).size).toBe(1);
  });
});
