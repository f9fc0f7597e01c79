import { describe, expect, test } from 'vitest';
import { isHost, isLoopbackName, isWildcard, splitUrl } from '../../../lib/kit/addresses.ts';
import { type ApiOverrides, lanForm, readApiOverrides, resolveApiTarget } from '../../../lib/pairing/api-target.ts';
import { configOf, type FakeHostOptions, fakeHost, fakeLog } from './fixtures.ts';

const CONFIG = 'config.yaml';

async function resolve(
  overrides: ApiOverrides = {},
  { env = {}, ...options }: FakeHostOptions & { env?: Record<string, string> } = {},
) {
  const host = await fakeHost(options);
  const { log, lines } = fakeLog();
  const api = await resolveApiTarget(overrides, { config: configOf(env, host), host, log });
  return { api, lines };
}

const webapi = (url: string) => ({ env: { RELAY_WEBAPI_URL: url } });

describe('host, port and TLS of the API server (contract 01 §5.3)', () => {
  test('defaults: loopback becomes the LAN address', async () => {
    expect((await resolve()).api).toEqual({ host: '192.168.1.20', port: 8642, tls: false, key: '' });
  });

  test.each([
    ['http://127.0.0.1:8642', '192.168.1.20', 8642, false],
    ['http://[::1]:9000/base', '192.168.1.20', 9000, false],
    ['https://api.example', 'api.example', 443, true],
    ['HTTPS://Api.example:8443', 'Api.example', 8443, true],
    ['https://api.example:443', 'api.example', 443, true],
    ['http://api.example', 'api.example', 8642, false],
    ['http://api.example:80', 'api.example', 80, false],
    ['http://u:p@10.0.0.5:81/x', '10.0.0.5', 81, false],
    ['http://[fd00::5]:8642', 'fd00::5', 8642, false],
  ])('%s', async (url, host, port, tls) => {
    expect((await resolve({}, webapi(url))).api).toMatchObject({ host, port, tls });
  });

  test.each([
    ['localhost', '192.168.1.20'],
    ['LOCALHOST', '192.168.1.20'],
    ['0.0.0.0', '192.168.1.20'],
    ['::', '192.168.1.20'],
    ['[::1]', '192.168.1.20'],
    ['10.1.1.1', '10.1.1.1'],
    ['box.example', 'box.example'],
  ])('a request for %s', async (host, expected) => {
    expect((await resolve(readApiOverrides({ host }))).api?.host).toBe(expected);
  });

  test('without a LAN address, loopback is kept and a wildcard refused', async () => {
    expect((await resolve({}, { lan: null })).api?.host).toBe('127.0.0.1');
    await expect(resolve({ host: '0.0.0.0' }, { lan: null })).rejects.toThrow(/host/);
  });

  test.each(['http://0.0.0.0:8642', 'http://[::]:8642'])('%s without a host in the request is refused', async (url) => {
    const refusal = expect.objectContaining({ kind: 'invalid', message: expect.stringContaining('host') });
    await expect(resolve({}, webapi(url))).rejects.toThrow(refusal);
    expect((await resolve({ host: '10.0.0.1' }, webapi(url))).api?.host).toBe('10.0.0.1');
  });

  test('the request takes precedence', async () => {
    expect((await resolve({ host: 'h', port: 1, tls: true, key: 'mine' })).api).toEqual({
      host: 'h',
      port: 1,
      tls: true,
      key: 'mine',
    });
  });

  test.each<[string, unknown[]]>([
    [
      'host',
      [
        '',
        ' ',
        5,
        true,
        [],
        'a b',
        'http://h',
        'h:8642',
        '1.2.3.4:80',
        'h/x',
        'u@h',
        'h?x',
        'fe80::1%eth0',
        'a'.repeat(254),
      ],
    ],
    ['port', [0, 65536, -1, 1.5, true, '', ' 80', '80 ', '+80', '1e3', '0x50', '99999', 'http', [], {}]],
    ['tls', [0, 1, 'true', '', [], {}]],
    ['api_key', [5, true, [], {}, 'a\nb', 'a\r', 'tab\t', 'schlüssel', '\u007f']],
  ])('refuses a bad %s', (field, values) => {
    for (const value of values) {
      const refusal = expect.objectContaining({ kind: 'invalid', message: expect.stringContaining(field) });
      expect(() => readApiOverrides({ [field]: value }), JSON.stringify(value)).toThrow(refusal);
    }
  });

  test('accepts valid overrides', () => {
    expect(readApiOverrides({})).toEqual({});
    expect(readApiOverrides({ host: null, port: null, tls: null })).toEqual({});
    expect(readApiOverrides({ host: ' [fd00::1] ', port: '8642', tls: false, api_key: 'k~ k' })).toEqual({
      host: 'fd00::1',
      port: 8642,
      tls: false,
      key: 'k~ k',
    });
    expect(readApiOverrides({ api_key: null })).toEqual({ key: '' });
    expect(readApiOverrides({ api_key: '' })).toEqual({ key: '' });
  });
});

describe('key of the API server (contract 01 §5.3)', () => {
  const env = { API_SERVER_KEY: 'from-process' };
  const dotenv = { '.env': 'API_SERVER_KEY="from-dotenv"\n' };
  const key = async (content: Record<string, string>, overrides: ApiOverrides = {}) =>
    (await resolve(overrides, { env, content })).api?.key;

  test.each([
    ['extra.key', 'platforms: {api_server: {extra: {key: a}, key: b, api_key: c}}', 'a'],
    ['key', 'platforms: {api_server: {extra: {}, key: b, api_key: c}}', 'b'],
    ['api_key', 'platforms: {api_server: {api_key: c}}', 'c'],
    ['api-server', 'platforms: {api-server: {key: d}}', 'd'],
    ['root api_server', 'api_server: {extra: {key: e}}', 'e'],
    ['a key of digits', 'api_server: {key: 12345}', '12345'],
    ['white space around it', 'api_server: {key: " k "}', 'k'],
    ['a blank one does not count', 'platforms: {api_server: {key: " "}}\napi_server: {key: e}', 'e'],
  ])('agent configuration: %s', async (_, yaml, expected) => {
    expect(await key({ [CONFIG]: yaml, ...dotenv })).toBe(expected);
  });

  test('then .env, then the environment, then none', async () => {
    expect(await key({ [CONFIG]: '', ...dotenv })).toBe('from-dotenv');
    expect(await key({ [CONFIG]: 'platforms: 7\napi_server: [1]' })).toBe('from-process');
    expect((await resolve()).api?.key).toBe('');
  });

  test('the request takes precedence, also with open access', async () => {
    expect(await key(dotenv, { key: 'mine' })).toBe('mine');
    expect(await key(dotenv, { key: '' })).toBe('');
  });

  test('an unreadable source is logged without its content and counts as empty', async () => {
    const { api, lines } = await resolve({}, { content: { [CONFIG]: 'api_server: {key: "hush-hush\n\t]', ...dotenv } });
    expect(api?.key).toBe('from-dotenv');
    expect(lines).toEqual([expect.stringContaining('[WARNING]')]);
    expect(lines.join()).not.toContain('hush');
  });

  test('a key that a header cannot carry is left out with a warning', async () => {
    const { api, lines } = await resolve({}, { content: { [CONFIG]: 'api_server: {key: "geheim-ü"}' } });
    expect(api?.key).toBe('');
    expect(lines).toEqual([expect.stringContaining('[WARNING]')]);
    expect(lines.join()).not.toContain('geheim');
  });

  test('a failing disk is logged and counts as empty', async () => {
    const fail = () => Promise.reject(Object.assign(new Error('input/output error'), { code: 'EIO' }));
    const { api, lines } = await resolve({}, { env, files: { read: fail, readText: fail } });
    expect(api?.key).toBe('from-process');
    expect(lines).toHaveLength(2);
  });

  test('an alias bomb is not a configuration', async () => {
    const levels = Array.from(
      { length: 12 },
      (_, level) => `l${level + 1}: &l${level + 1} [${Array(9).fill(`*l${level}`)}]`,
    );
    const { api, lines } = await resolve({}, { content: { [CONFIG]: ['l0: &l0 [x]', ...levels].join('\n') } });
    expect(api?.key).toBe('');
    expect(lines).toHaveLength(1);
  });
});

describe('disabled API server (contract 01 §5.4)', () => {
  test.each([
    ['environment 0', { env: { API_SERVER_ENABLED: '0' } }, true],
    ['environment off', { env: { API_SERVER_ENABLED: 'Off' } }, true],
    ['environment empty', { env: { API_SERVER_ENABLED: '' } }, false],
    ['environment 1', { env: { API_SERVER_ENABLED: '1' } }, false],
    ['environment nonsense', { env: { API_SERVER_ENABLED: 'maybe' } }, false],
    [
      'environment 0 against yaml true',
      { env: { API_SERVER_ENABLED: '0' }, content: { [CONFIG]: 'api_server: {enabled: true}' } },
      true,
    ],
    ['.env', { content: { '.env': 'API_SERVER_ENABLED=no' } }, true],
    ['yaml false', { content: { [CONFIG]: 'platforms: {api_server: {enabled: false}}' } }, true],
    ['yaml off', { content: { [CONFIG]: 'platforms: {api_server: {enabled: off}}' } }, true],
    ['yaml "no"', { content: { [CONFIG]: 'platforms: {api_server: {enabled: "no"}}' } }, true],
    ['yaml 0', { content: { [CONFIG]: 'platforms: {api_server: {enabled: 0}}' } }, true],
    ['yaml null', { content: { [CONFIG]: 'platforms: {api_server: {enabled: }}' } }, false],
    ['yaml true', { content: { [CONFIG]: 'platforms: {api_server: {enabled: yes}}' } }, false],
  ])('%s', async (_, options, disabled) => {
    expect((await resolve({}, options)).api === null).toBe(disabled);
    expect((await resolve({ tls: true }, options)).api === null).toBe(disabled);
  });

  test.each<[string, ApiOverrides]>([
    ['host', { host: '10.0.0.1' }],
    ['port', { port: 1 }],
    ['api_key', { key: '' }],
  ])('not when the request gives %s', async (_, overrides) => {
    expect((await resolve(overrides, { env: { API_SERVER_ENABLED: '0' } })).api).not.toBeNull();
  });

  test('a disabled one may be configured on a wildcard', async () => {
    const env = { API_SERVER_ENABLED: '0', RELAY_WEBAPI_URL: 'http://0.0.0.0:1' };
    expect((await resolve({}, { env })).api).toBeNull();
  });
});

describe('at the edge', () => {
  const atEdge = (overrides: ApiOverrides, env: Record<string, string> = {}) =>
    resolveApiTarget(overrides, { config: configOf(env), log: fakeLog().log });

  test('disabled unless the request or the configuration names a host', async () => {
    expect(await atEdge({})).toBeNull();
    expect(await atEdge({ key: 'k', port: 1 })).toBeNull();
    expect(await atEdge({ host: 'api.example' })).toMatchObject({ host: 'api.example', port: 8642 });
    expect(await atEdge({}, { RELAY_WEBAPI_URL: 'https://api.example', API_SERVER_KEY: 'k' })).toEqual({
      host: 'api.example',
      port: 443,
      tls: true,
      key: 'k',
    });
    expect(await atEdge({}, { RELAY_WEBAPI_URL: 'https://api.example', API_SERVER_ENABLED: 'off' })).toBeNull();
  });
});

describe('addresses', () => {
  test('loopback and wildcard in every spelling', async () => {
    for (const name of [
      'localhost',
      'localhost.',
      'a.localhost',
      '127.0.0.1',
      '127.9.9.9',
      '127.1',
      '::1',
      '0:0::1',
      '::ffff:127.0.0.1',
    ])
      expect(isLoopbackName(name), name).toBe(true);
    for (const name of ['localhost.example', '128.0.0.1', '::2', '', 'fd00::1'])
      expect(isLoopbackName(name), name).toBe(false);
    for (const name of ['0.0.0.0', '::', '[::]', '0', '0::0']) expect(isWildcard(name), name).toBe(true);
    for (const name of ['', '10.0.0.0', '::1']) expect(isWildcard(name), name).toBe(false);
    expect(isHost('')).toBe(false);
    expect(await lanForm('[fd00::1]', undefined)).toBe('fd00::1');
    expect(await lanForm('127.0.0.1', undefined)).toBe('127.0.0.1');
  });

  test('splitting a URL keeps its spelling', () => {
    expect(splitUrl('ws://H:80/a')).toEqual({ scheme: 'ws', host: 'H', port: 80, rest: '/a' });
    expect(splitUrl('wss://[::1]?q')).toEqual({ scheme: 'wss', host: '::1', port: undefined, rest: '?q' });
    for (const text of ['', 'h', 'ws://', 'ws://h:x', 'ws://a b', 'ws://[::1']) expect(splitUrl(text), text).toBeNull();
  });
});
