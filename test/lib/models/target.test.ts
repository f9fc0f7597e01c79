import { describe, expect, it } from 'vitest';
import { providers } from '../../../lib/models/providers/index.ts';
import type { Target } from '../../../lib/models/providers/provider.ts';
import { type ProfileSettings, targetOf } from '../../../lib/models/target.ts';

function target(key: string, settings: Partial<ProfileSettings>, hasHost = true): Target | null {
  const provider = providers.get(key);
  if (!provider) throw new Error(key);
  return targetOf(key, provider, { env: {}, config: {}, auths: [], ...settings }, { hasHost });
}
const base = (...args: Parameters<typeof target>) => target(...args)?.base ?? null;
const secret = (...args: Parameters<typeof target>) => target(...args)?.secret ?? null;

describe('base URL of a provider (contract 07 §3)', () => {
  it('`.env`, then the provider’s section, then the model’s, then the default', () => {
    const env = { LM_BASE_URL: 'http://env:1/v1/' };
    const config = {
      providers: { lmstudio: { base_url: 'http://section:1/v1' } },
      model: { provider: 'LM-Studio', base_url: 'http://model:1/v1' },
    };
    expect(base('lmstudio', { env, config })).toBe('http://env:1/v1');
    expect(base('lmstudio', { env: { LM_BASE_URL: ' ' }, config })).toBe('http://section:1/v1');
    expect(base('lmstudio', { config: { model: config.model } })).toBe('http://model:1/v1');
    expect(base('lmstudio', { config: { model: { ...config.model, provider: 'ollama' } } })).toBe(
      'http://127.0.0.1:1234/v1',
    );
    expect(base('ollama-cloud', {})).toBe('https://ollama.com/v1');
  });

  it('copilot and codex ignore the base URL of the model section', () => {
    for (const [key, fallback] of [
      ['copilot', 'https://api.githubcopilot.com'],
      ['openai-codex', 'https://chatgpt.com/backend-api/codex'],
    ] as const) {
      const config = { model: { provider: key, base_url: 'http://model:1', api_key: 'k' } };
      expect(target(key, { config })).toEqual({ base: fallback, secret: 'k' });
      expect(base(key, { config: { ...config, providers: { [key]: { base_url: 'https://own/' } } } })).toBe(
        'https://own',
      );
    }
    const env = { GITHUB_COPILOT_BASE_URL: 'https://second', GH_TOKEN: 't' };
    expect(base('copilot', { env })).toBe('https://second');
    expect(base('copilot', { env: { ...env, COPILOT_BASE_URL: 'https://first' } })).toBe('https://first');
  });

  it.each(['ftp://host/v1', 'not a url', 'http://user:pass@host/v1', 'file:///etc/passwd', 'localhost:1234'])(
    '%s: not queried at all, rather than elsewhere',
    (url) => {
      expect(target('lmstudio', { env: { LM_BASE_URL: url } })).toBeNull();
    },
  );

  it('finds a section under an alias', () => {
    expect(base('copilot', { config: { providers: { github: { base_url: 'https://own', key: 'k' } } } })).toBe(
      'https://own',
    );
  });

  it('without a host, LM Studio has no default address', () => {
    expect(target('lmstudio', {}, false)).toBeNull();
    expect(base('lmstudio', { env: { LM_BASE_URL: 'https://lm.example/v1' } }, false)).toBe('https://lm.example/v1');
    expect(base('ollama-cloud', {}, false)).toBe('https://ollama.com/v1');
  });
});

describe('credential of a provider (contract 07 §3)', () => {
  const pool = (...entries: unknown[]) => ({ credential_pool: { copilot: entries } });

  it('takes the first of `.env`, section, model, `auth.json` of the profile, of the root', () => {
    const config = {
      providers: { copilot: { key: 'section key', api_key: 'section' } },
      model: { provider: 'copilot', key: 'model' },
    };
    const auths = [pool({ access_token: 'own pool' }), pool({ access_token: 'root pool' })];
    const env = { COPILOT_GITHUB_TOKEN: 'one', GH_TOKEN: 'two', GITHUB_TOKEN: 'three' };
    expect(secret('copilot', { env, config, auths })).toBe('one');
    expect(secret('copilot', { env: { ...env, COPILOT_GITHUB_TOKEN: '' }, config, auths })).toBe('two');
    expect(secret('copilot', { env: { GITHUB_TOKEN: ' three ' }, config, auths })).toBe('three');
    expect(secret('copilot', { config, auths })).toBe('section');
    expect(secret('copilot', { config: { model: config.model }, auths })).toBe('model');
    expect(secret('copilot', { config: { model: { ...config.model, provider: 'zai' } }, auths })).toBe('own pool');
    expect(secret('copilot', { auths: [{}, pool({ key: 'root pool' })] })).toBe('root pool');
    expect(secret('copilot', { auths: [{ credential_pool: { 'github-copilot': [{ token: 'alias' }] } }] })).toBe(
      'alias',
    );
  });

  it('skips spent credentials, and entries without one', () => {
    const auths = [
      pool(
        { access_token: 'a', last_status: 'dead' },
        { api_key: 'b', last_status: ' Exhausted' },
        'text',
        null,
        {},
        { access_token: 7, api_key: ' ', token: 'good', last_status: 'ok' },
      ),
    ];
    expect(secret('copilot', { auths })).toBe('good');
  });

  it.each([
    { credential_pool: null },
    { credential_pool: [] },
    { credential_pool: { copilot: { access_token: 'x' } } },
    { credential_pool: { copilot: 'x' } },
  ])('%j contains no credential', (auth) => {
    expect(target('copilot', { auths: [auth] })).toBeNull();
  });

  it('ignores a secret that no header can carry', () => {
    expect(secret('copilot', { env: { GH_TOKEN: 'a\r\nx: y', GITHUB_TOKEN: 'good' } })).toBe('good');
    expect(target('copilot', { env: { GH_TOKEN: 'schlüssel' } })).toBeNull();
  });

  it('copilot and codex require one, the others do not', () => {
    expect(target('copilot', {})).toBeNull();
    expect(target('openai-codex', {})).toBeNull();
    expect(target('lmstudio', {})).toEqual({ base: 'http://127.0.0.1:1234/v1', secret: undefined });
    expect(target('ollama-cloud', { env: { OLLAMA_API_KEY: 'k' } })?.secret).toBe('k');
  });
});
