import { describe, expect, it } from 'vitest';
import type { Mapping } from '../../../lib/kit/yaml.ts';
import { createVoiceCredentials } from '../../../lib/voice/credentials.ts';
import type { OauthStore, OauthToken } from '../../../lib/voice/oauth-store.ts';

type Env = Record<string, string>;

const storeOf = (token?: Partial<OauthToken>): OauthStore => ({
  paths: async () => ['/store'],
  isConfigured: async () => true,
  find: async () => (token ? { secret: 'oauth-token', path: '/store', ...token } : null),
});

const streaming = (provider: string, env: Env, token?: Partial<OauthToken>) =>
  createVoiceCredentials({ env, oauth: storeOf(token) }).streaming(provider);
const basic = (kind: 'tts' | 'stt', provider: string, env: Env, section: Mapping = {}, token?: Partial<OauthToken>) =>
  createVoiceCredentials({ env, oauth: storeOf(token) }).basic(kind, provider, section);

describe('key and URL of a streaming provider (contract 05 §8)', () => {
  it('the first variable that is not blank', async () => {
    expect(await streaming('openai_tts', { VOICE_TOOLS_OPENAI_KEY: ' ', OPENAI_API_KEY: ' key ' })).toEqual({
      secret: 'key',
      baseUrl: 'https://api.openai.com/v1',
      source: 'OPENAI_API_KEY',
    });
    const keys = { OPENAI_REALTIME_API_KEY: 'a', OPENAI_API_KEY: 'b', VOICE_TOOLS_OPENAI_KEY: 'c' };
    expect((await streaming('openai_tts', keys))?.secret).toBe('c');
    expect((await streaming('openai_realtime', keys))?.secret).toBe('a');
    expect((await streaming('xai_realtime', { XAI_EPHEMERAL_TOKEN: 'e' }))?.source).toBe('XAI_EPHEMERAL_TOKEN');
    expect(await streaming('xai_tts', { XAI_EPHEMERAL_TOKEN: 'e' })).toBeNull();
    expect((await streaming('elevenlabs_tts', { VOICE_TOOLS_ELEVENLABS_KEY: 'e' }))?.baseUrl).toBe(
      'https://api.elevenlabs.io',
    );
    expect(await streaming('stub', keys)).toBeNull();
    expect(await streaming('constructor', keys)).toBeNull();
  });

  it('base URLs from the environment, without trailing slashes', async () => {
    const urls = async (provider: string, env: Env) =>
      (await streaming(provider, { OPENAI_API_KEY: 'k', XAI_API_KEY: 'k', ELEVENLABS_API_KEY: 'k', ...env }))?.baseUrl;
    expect(await urls('openai_tts', { OPENAI_BASE_URL: 'http://fake:1/v1//' })).toBe('http://fake:1/v1');
    expect(await urls('openai_realtime', { OPENAI_BASE_URL: 'http://fake:1/v1' })).toBe('ws://fake:1/v1/realtime');
    expect(await urls('openai_realtime', { OPENAI_REALTIME_URL: 'wss://fake/rt/' })).toBe('wss://fake/rt');
    expect(await urls('openai_realtime', {})).toBe('wss://api.openai.com/v1/realtime');
    expect(await urls('xai_realtime', {})).toBe('wss://api.x.ai/v1/realtime');
    expect(await urls('xai_realtime', { XAI_REALTIME_URL: 'http://fake:1/x' })).toBe('ws://fake:1/x');
    expect(await urls('xai_tts', {})).toBe('https://api.x.ai/v1');
    expect(await urls('xai_tts', { XAI_BASE_URL: 'wss://fake/v1/realtime' })).toBe('https://fake/v1');
    expect(await urls('xai_tts', { XAI_BASE_URL: 'http://fake/tts' })).toBe('http://fake/v1');
  });

  it('xAI prefers the OAuth token, which is sent to no other place than its own', async () => {
    const env = { XAI_API_KEY: 'k', XAI_BASE_URL: 'http://env/v1', XAI_REALTIME_URL: 'ws://env/realtime' };
    const token = { baseUrl: 'https://own/v1' };
    expect(await streaming('xai_tts', env, token)).toEqual({
      secret: 'oauth-token',
      baseUrl: 'https://own/v1',
      source: 'oauth',
    });
    expect((await streaming('xai_realtime', env, token))?.baseUrl).toBe('wss://own/v1/realtime');
    expect((await streaming('xai_realtime', env, {}))?.baseUrl).toBe('ws://env/realtime');
    expect((await streaming('openai_tts', { OPENAI_API_KEY: 'k' }, token))?.source).toBe('OPENAI_API_KEY');
  });

  it('a variable that is not a URL is an error that names it, and not its value', async () => {
    for (const value of ['fake', 'ftp://fake', 'https://user:hidden@fake']) {
      const failure = streaming('openai_tts', { OPENAI_API_KEY: 'k', OPENAI_BASE_URL: value });
      await expect(failure).rejects.toThrow(/^OPENAI_BASE_URL is not an http/);
      await expect(failure).rejects.not.toThrow(value);
    }
  });
});

describe('key and URL of a basic provider (contract 05 §8)', () => {
  it('the configuration comes before the environment', async () => {
    const env = { OPENAI_API_KEY: 'env', OPENAI_BASE_URL: 'http://env', STT_OPENAI_BASE_URL: 'http://stt' };
    const section = { provider: 'openai', openai: { api_key: 'own', base_url: 'http://own/' } };
    expect(await basic('tts', 'openai', env, section)).toEqual({
      secret: 'own',
      baseUrl: 'http://own',
      source: 'config',
    });
    expect((await basic('stt', 'openai', env))?.baseUrl).toBe('http://stt');
    expect((await basic('tts', 'nous', env))?.baseUrl).toBe('http://env');
    expect((await basic('tts', 'openai', env, { provider: 'openai', api_key: 'flat' }))?.secret).toBe('flat');
    // A key that is not under its provider's name belongs to the section's own provider.
    expect((await basic('tts', 'openai', env, { provider: 'xai', api_key: 'flat' }))?.secret).toBe('env');
  });

  it('the URLs of every provider', async () => {
    const url = async (kind: 'tts' | 'stt', provider: string, env: Env = {}) =>
      (await basic(kind, provider, env, { [provider]: { api_key: 'k' } }))?.baseUrl;
    expect(await url('stt', 'groq')).toBe('https://api.groq.com/openai/v1');
    expect(await url('tts', 'groq')).toBeUndefined();
    expect(await url('tts', 'gemini')).toBe('https://generativelanguage.googleapis.com/v1beta');
    expect(await url('tts', 'mistral')).toBe('https://api.mistral.ai');
    expect(await url('stt', 'deepinfra')).toBe('https://api.deepinfra.com/v1/openai');
    expect(await url('stt', 'elevenlabs')).toBe('https://api.elevenlabs.io/v1');
    expect(await url('stt', 'elevenlabs', { ELEVENLABS_BASE_URL: 'http://fake/' })).toBe('http://fake/v1');
    expect(
      await url('stt', 'elevenlabs', { ELEVENLABS_BASE_URL: 'http://fake', ELEVENLABS_STT_BASE_URL: 'http://stt/v1/' }),
    ).toBe('http://stt/v1');
    expect(await url('stt', 'xai', { XAI_STT_BASE_URL: 'http://fake' })).toBe('http://fake');
    expect(await url('tts', 'edge')).toBeUndefined();
    const minimax = { minimax: { api_key: 'k', base_url: 'https://fake/t2a?GroupId=7' } };
    expect((await basic('tts', 'minimax', {}, minimax))?.baseUrl).toBe('https://fake/t2a?GroupId=7');
  });

  it('05 §18: none is needed at a loopback or private address, elsewhere it is', async () => {
    const at = (baseUrl: string) => basic('tts', 'openai', {}, { openai: { base_url: baseUrl } });
    for (const local of ['http://localhost:8880/v1', 'http://127.0.0.1:1', 'http://[::1]:1', 'http://192.168.1.5:1']) {
      expect(await at(local)).toEqual({ secret: '', baseUrl: local, source: 'none' });
    }
    for (const other of ['https://tts.test/v1', 'http://8.8.8.8', 'http://[2600::1]'])
      expect(await at(other)).toBeNull();
    expect(await basic('tts', 'openai', {})).toBeNull();
    const keyed = { openai: { base_url: 'http://127.0.0.1:1', api_key: 'own' } };
    expect(await basic('tts', 'openai', {}, keyed)).toMatchObject({ secret: 'own', source: 'config' });
  });

  it('xAI uses the OAuth token last, and not with a configured URL', async () => {
    const section = { xai: { base_url: 'http://own' } };
    expect((await basic('tts', 'xai', { XAI_API_KEY: 'k' }, section, {}))?.secret).toBe('k');
    expect(await basic('tts', 'xai', {}, section, { baseUrl: 'https://stored/v1' })).toEqual({
      secret: 'oauth-token',
      baseUrl: 'https://stored/v1',
      source: 'oauth',
    });
    expect((await basic('tts', 'xai', {}, section, {}))?.baseUrl).toBe('https://api.x.ai/v1');
  });
});

describe('what a client may see of a provider’s words (contract 05 §8)', () => {
  it('no secret of the environment, the configuration or the OAuth store', async () => {
    const credentials = createVoiceCredentials({
      env: { OPENAI_API_KEY: 'sk-env+1/2', UNRELATED_TOKEN: 'other-secret', HOME: '/home/me', X_KEY: 'x' },
      oauth: storeOf({}),
    });
    await credentials.basic('tts', 'openai', { elevenlabs: { api_key: 'el-config' }, openai: { token: 'tok-config' } });
    await credentials.streaming('xai_tts');
    const said = [
      'sk-env+1/2',
      encodeURIComponent('sk-env+1/2'),
      'sk-env+1\\/2',
      'other-secret',
      'el-config',
      'tok-config',
      'oauth-token',
    ].join(' ');
    expect(credentials.redact(`bad key: ${said} x`)).toBe(`bad key: ${'<redacted> '.repeat(7)}x`);
  });

  it('not even the beginning of one, where the text was cut', () => {
    const { redact } = createVoiceCredentials({ env: { OPENAI_API_KEY: 'sk-0123456789abcdef' } });
    expect(redact('bad key sk-0123456789ab')).toBe('bad key');
    expect(redact(`${' '.repeat(64 * 1024 - 12)}sk-0123456789abcdef`)).toBe('');
  });

  it('a secret that contains another is hidden whole', () => {
    const { redact } = createVoiceCredentials({ env: { A_KEY: 'abcd', B_KEY: 'abcdefgh' } });
    expect(redact('abcdefgh abcd')).toBe('<redacted> <redacted>');
  });

  it('one line of at most 300 characters, without host paths', () => {
    const { redact } = createVoiceCredentials({ env: {}, directories: ['/srv-data/agent'] });
    expect(redact('open "/root/.svc/config.yaml": ENOENT, see https://x.ai/home/docs and POST /v1/audio/speech')).toBe(
      'open "<path>": ENOENT, see https://x.ai/home/docs and POST /v1/audio/speech',
    );
    expect(redact('at file:///srv-data/agent/a.ts C:\\Users\\me\\x')).toBe('at <path> <path>');
    expect(redact('a\r\n\tb\u0007\u202ec')).toBe('a bc');
    expect(redact(`${'x'.repeat(299)}😀`)).toHaveLength(300);
    expect(redact('x'.repeat(1000))).toHaveLength(300);
  });
});

describe('servers of the owner (contract 05 §18)', () => {
  const streamingOf = (provider: string, env: Env, sections: { tts?: Mapping; realtime?: Mapping } = {}) =>
    createVoiceCredentials({ env, oauth: storeOf() }).streaming(provider, undefined, sections);

  it('have variables of their own, which win over that for all', async () => {
    const env = {
      OPENAI_API_KEY: 'k',
      OPENAI_BASE_URL: 'http://127.0.0.1:1/v1',
      TTS_OPENAI_BASE_URL: 'http://127.0.0.1:2/v1/',
      STT_OPENAI_BASE_URL: 'http://127.0.0.1:3/v1',
      REALTIME_OPENAI_BASE_URL: 'http://127.0.0.1:4/v1',
    };
    expect((await basic('tts', 'openai', env))?.baseUrl).toBe('http://127.0.0.1:2/v1');
    expect((await basic('stt', 'openai', env))?.baseUrl).toBe('http://127.0.0.1:3/v1');
    expect((await streamingOf('openai_tts', env))?.baseUrl).toBe('http://127.0.0.1:2/v1');
    expect((await streamingOf('openai_realtime', env))?.baseUrl).toBe('ws://127.0.0.1:4/v1/realtime');
    const explicit = { ...env, OPENAI_REALTIME_URL: 'ws://127.0.0.1:5/rt' };
    expect((await streamingOf('openai_realtime', explicit))?.baseUrl).toBe('ws://127.0.0.1:5/rt');
    // The owner's own server gets the URL, and not the key of OpenAI.
    expect(await basic('tts', 'local', env)).toEqual({
      secret: '',
      baseUrl: 'http://127.0.0.1:2/v1',
      source: 'none',
    });
    expect(await streamingOf('local_realtime', env)).toMatchObject({
      secret: '',
      baseUrl: 'ws://127.0.0.1:4/v1/realtime',
    });
    expect(await basic('tts', 'local', { OPENAI_BASE_URL: 'http://127.0.0.1:1' })).toBeNull();
  });

  it('of realtime: base URL and key of the section, and none needed on the own network', async () => {
    const realtime = (local: Mapping) => streamingOf('local_realtime', {}, { realtime: { openai_compatible: local } });
    expect(await realtime({ base_url: 'http://10.0.0.7:8000/v1' })).toEqual({
      secret: '',
      baseUrl: 'ws://10.0.0.7:8000/v1/realtime',
      source: 'none',
    });
    expect(await realtime({ base_url: 'wss://rt.test/v1/realtime', api_key: 'own' })).toEqual({
      secret: 'own',
      baseUrl: 'wss://rt.test/v1/realtime',
      source: 'config',
    });
    expect(await realtime({ base_url: 'https://rt.test/v1' })).toBeNull();
    expect(await realtime({})).toBeNull();
    const openai = { openai: { base_url: 'http://127.0.0.1:8000/v1' } };
    expect(await streamingOf('openai_realtime', {}, { realtime: openai })).toMatchObject({
      secret: '',
      source: 'none',
    });
    const bad = realtime({ base_url: 'http://user:word@127.0.0.1/v1' });
    await expect(bad).rejects.toThrow('realtime.local.base_url is not');
  });

  it('list their models beside their socket', async () => {
    const sections = { realtime: { local: { base_url: 'https://rt.test/v1', api_key: 'own' } } };
    const found = await createVoiceCredentials({ env: {} }).discovery('local_realtime', undefined, sections);
    expect(found?.baseUrl).toBe('https://rt.test/v1');
  });
});
