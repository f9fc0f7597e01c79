import { expect, it } from 'vitest';
import { bearer, describeMatrix, pair, post, type Target } from '../support/relay.ts';
import { startProvider } from '../support/voice/provider.ts';

const SECRET = 'sk-very-secret-value';

async function callerOf(target: Target) {
  const { client, token } = await pair(target);
  const fetch = async (path: string, init: RequestInit = {}) => {
    const response = await target.fetch(path, { ...init, headers: { ...bearer(token), ...init.headers } });
    const text = await response.text();
    expect(text).not.toContain(SECRET);
    return { status: response.status, text };
  };
  const json = async (path: string, init?: RequestInit) => {
    const { status, text } = await fetch(path, init);
    expect([status, text]).toEqual([200, expect.any(String)]);
    return JSON.parse(text);
  };
  return { client, fetch, json };
}

/** A provider that lists voices as xAI and ElevenLabs do, for callers with the key. */
async function startLists() {
  const provider = await startProvider();
  provider.onCall((call) => {
    const key = call.headers.authorization ?? `Bearer ${call.headers['xi-api-key']}`;
    if (key !== `Bearer ${SECRET}`) return call.answer(401, `wrong key ${key}`);
    if (call.path === '/x/v1/tts/voices')
      return call.answer(200, { voices: [{ voice_id: 'eve', name: 'Eve', description: 'Energetic' }] });
    if (call.path === '/x/v1/custom-voices') {
      const isFirst = !call.query.has('pagination_token');
      const page = { custom_voices: [{ voice_id: isFirst ? 'mine' : 'voice/9' }] };
      return call.answer(200, isFirst ? { ...page, pagination_token: 'a b&c' } : page);
    }
    if (call.path === '/v1/voices') return call.answer(200, { voices: [{ voice_id: 'v1', name: 'Ann' }] });
    if (call.path === '/v1/models') return call.answer(200, [{ model_id: 'new', name: 'New' }]);
    return call.answer(404, 'not here');
  });
  const env = {
    XAI_API_KEY: SECRET,
    XAI_BASE_URL: `${provider.url}/x`,
    ELEVENLABS_API_KEY: SECRET,
    ELEVENLABS_BASE_URL: provider.url,
  };
  return { provider, env };
}

describeMatrix('provider options and validation (contract 05 §11)', (start) => {
  it('options of voice output, discovered with the key and cached', async () => {
    const { provider, env } = await startLists();
    const target = await start({ env: { ...env, RELAY_VOICE_OUTPUT_PROVIDER: 'stub' } });
    const { client, json } = await callerOf(target);
    const found = await json('/voice/output/providers/%20xai_tts%20/options?profile=nobody');
    expect(found).toMatchObject({
      success: true,
      mode: 'voice_output',
      protocol: 'svc.voice.output.options.v0',
      schema_version: 1,
      provider_id: 'xai_tts',
      provider: {
        id: 'xai_tts',
        name: 'xAI Grok TTS',
        models: ['xai-tts'],
        voices: ['eve', 'ara', 'rex', 'sal', 'leo', 'mine', 'voice/9'],
        voice_labels: { eve: 'Eve - Energetic', mine: 'Mine (custom)' },
        requires_manual_id: false,
      },
      default_provider: 'stub',
      default_model: 'stub-tone',
      default_voice: 'sine',
      sample_rate: 24_000,
      language: 'en',
      profile: 'nobody',
      config_scope: 'relay',
      fallback_to_global: true,
      dynamic: {
        attempted: true,
        status: 'ok',
        source: 'xai_api',
        voice_count: 3,
        custom_voice_count: 2,
        model_count: 0,
        auth_source: 'XAI_API_KEY',
        cache: 'miss',
        cache_ttl_seconds: 600,
      },
    });
    expect(provider.calls.map(({ query }) => query.get('pagination_token')).filter(Boolean)).toEqual(['a b&c']);
    const calls = provider.calls.length;
    const again = await json('/voice/output/providers/xai_tts/options');
    expect(again).toEqual({
      ...found,
      profile: null,
      fallback_to_global: false,
      dynamic: { ...found.dynamic, cache: 'hit' },
    });
    expect(provider.calls).toHaveLength(calls);
    const elevenlabs = await json('/voice/output/providers/elevenlabs_tts/options');
    expect(elevenlabs.provider.models).toContain('new');
    expect(elevenlabs.dynamic.status).toBe('ok');
    client.terminate();
  });

  it('options of realtime voice', async () => {
    const { env } = await startLists();
    const { client, json } = await callerOf(await start({ env }));
    const found = await json('/voice/realtime/providers/xai_realtime/options');
    expect(found).toMatchObject({
      mode: 'realtime_voice',
      protocol: 'svc.voice.realtime.options.v0',
      default_provider: 'xai_realtime',
      dynamic: { status: 'ok', cache: 'miss' },
    });
    expect(found).not.toHaveProperty('language');
    expect(found.provider.model_voice_compatibility['grok-voice-latest']).toContain('mine');
    client.terminate();
  });

  it('a provider that refuses the key leaves the static lists, and its words unsaid', async () => {
    const { provider, env } = await startLists();
    provider.onCall((call) => call.answer(401, { error: `bad key ${SECRET}` }));
    const target = await start({ env });
    const { client, json } = await callerOf(target);
    const found = await json('/voice/output/providers/xai_tts/options');
    expect(found.dynamic).toMatchObject({ attempted: true, status: 'error', cache_ttl_seconds: 30 });
    expect(found.provider.voices).toHaveLength(26);
    expect(target.log.join('\n')).not.toContain(SECRET);
    client.terminate();
  });

  it('without keys', async () => {
    const { client, json } = await callerOf(await start({ env: { XAI_API_KEY: '', ELEVENLABS_API_KEY: '' } }));
    const status = async (path: string) => (await json(path)).dynamic.status;
    expect(await status('/voice/output/providers/xai_tts/options')).toBe('auth_missing');
    expect(await status('/voice/output/providers/elevenlabs_tts/options')).toBe('auth_missing');
    expect(await status('/voice/output/providers/openai_tts/options')).toBe('static');
    expect(await status('/voice/realtime/providers/openai_realtime/options')).toBe('static');
    client.terminate();
  });

  it('providers that are unknown, or for something else: 400', async () => {
    const { client, fetch } = await callerOf(await start());
    const cases = [
      ['/voice/output/providers/nobody/options', 'unknown voice provider'],
      ['/voice/output/providers/%ff/options', 'unknown voice provider'],
      ['/voice/output/providers/a%2Fb/options', 'unknown voice provider "a/b"'],
      ['/voice/output/providers/openai_realtime/options', 'not a streaming TTS renderer'],
      ['/voice/realtime/providers/nobody/options', 'unknown voice provider'],
      ['/voice/realtime/providers/stub/options', 'not a realtime voice provider'],
      ['/voice/realtime/providers/xai_tts/options', 'not a realtime voice provider'],
    ] as const;
    for (const [path, text] of cases) {
      for (const [each, init] of [[path], [path.replace(/options$/, 'validate'), post({})]] as const) {
        const answer = await fetch(each, init);
        expect(answer).toEqual({ status: 400, text: expect.stringContaining(text) });
      }
    }
    client.terminate();
  });

  it('validates a selection against what the provider has', async () => {
    const { env } = await startLists();
    const { client, json } = await callerOf(await start({ env }));
    const path = '/voice/output/providers/xai_tts/validate';
    const good = await json(path, post({ voice: 'voice/9', profile: 'nobody' }));
    expect(good).toMatchObject({
      success: true,
      mode: 'voice_output',
      protocol: 'svc.voice.output.validate.v0',
      provider_id: 'xai_tts',
      model: 'xai-tts',
      voice: 'voice/9',
      sample_rate: 24_000,
      language: 'en',
      dynamic: { status: 'ok' },
      valid: true,
      summary: 'ok',
    });
    expect(good.checks.map(({ id, status }: { id: string; status: string }) => `${id} ${status}`)).toEqual([
      'model_known ok',
      'voice_known ok',
      'sample_rate_known ok',
      'language_known ok',
    ]);
    const bad = await json(path, post({ model: 'new', voice: 'nobody', sample_rate: 8000, language: 'xx' }));
    expect(bad).toMatchObject({ valid: false, summary: 'invalid', sample_rate: 8000, language: 'xx' });
    // Another provider than the configured one comes with its own defaults.
    const other = await json('/voice/output/providers/openai_tts/validate', post({ language: ' ' }));
    expect(other).toMatchObject({ model: 'gpt-4o-mini-tts', voice: 'coral', language: 'en', valid: true });
    const empty = await json('/voice/output/providers/openai_tts/validate', post({ model: '', voice: ' ' }));
    expect(empty).toMatchObject({ valid: false, model: '', voice: '' });
    expect(empty.checks.slice(0, 2)).toMatchObject([
      { id: 'model_present', status: 'error' },
      { id: 'voice_present', status: 'error' },
    ]);
    const realtime = await json('/voice/realtime/providers/openai_realtime/validate', { method: 'POST' });
    expect(realtime).toMatchObject({ protocol: 'svc.voice.realtime.validate.v0', voice: 'marin', valid: true });
    expect(realtime).not.toHaveProperty('language');
    client.terminate();
  });

  it('a selection that cannot be read: 400', async () => {
    const { client, fetch } = await callerOf(await start());
    const bodies: [unknown, string][] = [
      [{ sample_rate: '24000' }, 'sample_rate'],
      [{ sample_rate: 24_000.5 }, 'sample_rate'],
      [{ model: 7 }, 'model'],
      [{ voice: 'x'.repeat(161) }, 'voice'],
      [[], 'object'],
    ];
    for (const [body, text] of bodies) {
      const answer = await fetch('/voice/output/providers/stub/validate', post(body));
      expect(answer).toEqual({ status: 400, text: expect.stringContaining(text) });
    }
    client.terminate();
  });
});
