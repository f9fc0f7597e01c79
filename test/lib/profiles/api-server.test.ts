import { describe, expect, it } from 'vitest';
import { apiServerSettings, apiServerUrl } from '../../../lib/profiles/api-server.ts';

describe('apiServerSettings (contract 07 §1.2)', () => {
  it('has defaults', () => {
    expect(apiServerSettings({}, {})).toEqual({
      enabled: false,
      explicitlyEnabled: null,
      host: '127.0.0.1',
      port: 8642,
      keyPresent: false,
      key: '',
    });
  });

  it('is enabled by an explicit switch, else by a key', () => {
    const enabled = (value: unknown, env: Record<string, string> = {}) =>
      apiServerSettings({ api_server: { enabled: value } }, env).enabled;
    for (const value of [true, 'ON', ' yes ', '1', 1, 'true']) expect(enabled(value)).toBe(true);
    for (const value of [false, 'off', 'No', '0', 0, 'FALSE'])
      expect(enabled(value, { API_SERVER_KEY: 'k' })).toBe(false);
    for (const value of [undefined, null, '', ' ', 'maybe', 7, [], {}]) {
      expect(enabled(value)).toBe(false);
      expect(enabled(value, { API_SERVER_KEY: 'k' })).toBe(true);
      expect(enabled(value, { API_SERVER_ENABLED: 'on' })).toBe(true);
      expect(enabled(value, { API_SERVER_ENABLED: 'off', API_SERVER_KEY: 'k' })).toBe(false);
      expect(enabled(value, { API_SERVER_ENABLED: 'maybe', API_SERVER_KEY: 'k' })).toBe(true);
    }
    expect(enabled(true, { API_SERVER_ENABLED: 'off' })).toBe(true);
    expect(apiServerSettings({ api_server: { enabled: false } }, {}).explicitlyEnabled).toBe(false);
  });

  it('prefers extra to the root section to platforms to .env', () => {
    const env = { API_SERVER_HOST: 'env', API_SERVER_PORT: '1' };
    const host = (config: Record<string, unknown>) => apiServerSettings(config, env).host;
    const platforms = { api_server: { host: 'platform' } };
    expect(host({})).toBe('env');
    expect(host({ platforms })).toBe('platform');
    expect(host({ platforms: { 'api-server': { host: 'hyphen' } } })).toBe('hyphen');
    expect(host({ platforms: { api_server: null, 'api-server': { host: 'hyphen' } } })).toBe('hyphen');
    expect(host({ platforms, api_server: { host: 'root' } })).toBe('root');
    expect(host({ platforms, api_server: { port: 2 } })).toBe('platform');
    expect(host({ platforms: { api_server: { extra: { host: 'extra' } } }, api_server: { host: 'root' } })).toBe(
      'extra',
    );
    expect(host({ api_server: { host: 'root', extra: { host: 'extra' } } })).toBe('extra');
    expect(host({ api_server: { host: ' ', extra: 'no mapping' } })).toBe('env');
    expect(host({ api_server: ['no mapping'], platforms: 'no mapping' })).toBe('env');
  });

  it('accepts integer ports from 1 to 65535 only', () => {
    const port = (value: unknown, env?: string) =>
      apiServerSettings({ api_server: { port: value } }, env === undefined ? {} : { API_SERVER_PORT: env }).port;
    for (const value of [9000, '9000', ' 9000 ']) expect(port(value)).toBe(9000);
    for (const value of [0, 65536, -1, 1.5, 'x', '', null, true, [9000], '1e3']) {
      expect(port(value)).toBe(8642);
      expect(port(value, '9001')).toBe(9001);
      expect(port(value, 'x')).toBe(8642);
    }
  });

  it('finds the key in extra.key, key, api_key, .env (contract 01 §5.3)', () => {
    const key = (section: Record<string, unknown>, env = {}) => [
      apiServerSettings({ platforms: { api_server: section } }, env).key,
      apiServerSettings({ platforms: { 'api-server': section } }, env).key,
      apiServerSettings({ api_server: section }, env).key,
    ];
    const all = (value: string) => [value, value, value];
    const env = { API_SERVER_KEY: 'env' };
    expect(key({ extra: { key: 'extra' }, key: 'key', api_key: 'api' }, env)).toEqual(all('extra'));
    expect(key({ extra: {}, key: 'key', api_key: 'api' }, env)).toEqual(all('key'));
    expect(key({ key: ' ', api_key: 'api' }, env)).toEqual(all('api'));
    expect(key({}, env)).toEqual(all('env'));
    expect(key({ key: 123456 })).toEqual(all('123456'));
    expect(key({ key: true, api_key: {} })).toEqual(all(''));
    expect(apiServerSettings({}, { API_SERVER_KEY: '  ' }).keyPresent).toBe(false);
  });
});

describe('apiServerUrl', () => {
  it('replaces a local host by scheme and host of the configured API URL', () => {
    for (const host of ['127.0.0.1', 'localhost', 'LocalHost', '0.0.0.0', '::1', '::', '[::1]']) {
      expect(apiServerUrl({ host, port: 80 }, 'https://user:pass@box.lan:1/path')).toBe('https://box.lan:80');
      expect(apiServerUrl({ host, port: 9 }, 'http://[fd00::1]:8642')).toBe('http://[fd00::1]:9');
    }
  });

  it('keeps any other host, with brackets for IPv6, and refuses invalid ones', () => {
    expect(apiServerUrl({ host: '10.0.0.5', port: 80 }, 'https://box')).toBe('http://10.0.0.5:80');
    expect(apiServerUrl({ host: 'fd00::2', port: 8642 }, 'https://box')).toBe('http://[fd00::2]:8642');
    expect(apiServerUrl({ host: '[fd00::2]', port: 8642 }, 'https://box')).toBe('http://[fd00::2]:8642');
    for (const host of ['a b', 'a/b', 'user@host', 'a?b', 'a#b', 'a:b']) {
      expect(apiServerUrl({ host, port: 1 }, 'http://box')).toBeNull();
    }
  });
});
