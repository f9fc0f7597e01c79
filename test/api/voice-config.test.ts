import { chmod, mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { isOwners, streamingProviders } from '../../lib/voice/registry.ts';
import { bearer, describeMatrix, pair, type Target } from '../support/relay.ts';

const SECRET = 'sk-very-secret-value';
const OAUTH_SECRET = 'oauth-very-secret-value';
/** Every source of a key at once: none may show in any response or log line. */
const ENV = { OPENAI_API_KEY: SECRET, XAI_API_KEY: SECRET, XAI_EPHEMERAL_TOKEN: SECRET, GROQ_API_KEY: ' ' };

const patch = (body: unknown): RequestInit => ({ method: 'PATCH', body: JSON.stringify(body) });

async function write(target: Target, files: Record<string, string>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    const path = join(target.agentHome, name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text);
  }
}

/** A paired caller. `json` expects a status and returns the body. */
async function callerOf(target: Target, policy?: Record<string, unknown>) {
  const { client, token } = await pair(target, { policy });
  const fetch = (path: string, init: RequestInit = {}) =>
    target.fetch(path, { ...init, headers: { ...bearer(token), ...init.headers } });
  const json = async (path: string, init?: RequestInit, status = 200) => {
    const response = await fetch(path, init);
    const text = await response.text();
    expect(text).not.toContain(SECRET);
    expect(text).not.toContain(OAUTH_SECRET);
    expect([response.status, text]).toEqual([status, expect.any(String)]);
    return JSON.parse(text);
  };
  const refused = async (path: string, init: RequestInit = {}) => {
    const response = await fetch(path, init);
    return { status: response.status, type: response.headers.get('content-type'), text: await response.text() };
  };
  return { client, fetch, json, refused };
}

const RENDERERS = ['elevenlabs_tts', 'openai_tts', 'stub', 'xai_tts'];

describeMatrix('voice settings (contract 05)', (start, runtime) => {
  const hasHost = runtime === 'node';

  it('§2: each route wants its own grant', async () => {
    const target = await start();
    const { client, refused } = await callerOf(target, { without: ['voice:config', 'voice:tts', 'voice:realtime'] });
    const routes: [string, string, RequestInit?][] = [
      ['/voice/config', 'voice:config'],
      ['/voice/output/config', 'voice:tts'],
      ['/voice/output/config', 'voice:tts', patch({ voice: 'x' })],
      ['/voice/output/providers/stub/options', 'voice:tts'],
      ['/voice/output/providers/stub/validate', 'voice:tts', { method: 'POST' }],
      ['/voice/realtime/config', 'voice:realtime'],
      ['/voice/realtime/config', 'voice:realtime', patch({ voice: 'x' })],
      ['/voice/realtime/providers/xai_realtime/options', 'voice:realtime'],
      ['/voice/realtime/providers/xai_realtime/validate', 'voice:realtime', { method: 'POST' }],
    ];
    for (const [path, grant, init] of routes) {
      expect(await refused(path, init)).toMatchObject({ status: 403, text: expect.stringContaining(grant) });
      expect((await target.fetch(path, init)).status).toBe(401);
    }
    client.terminate();
  });

  it('§5: nothing configured', async () => {
    const target = await start({ env: { OPENAI_API_KEY: '', XAI_API_KEY: ' ' } });
    const { client, json } = await callerOf(target);
    expect(await json('/voice/config')).toEqual({
      success: true,
      profile: null,
      config_scope: 'global',
      config_path: null,
      fallback_to_global: false,
      tts: {
        provider: null,
        voice_id: null,
        voice: null,
        model: null,
        enabled: false,
        available: false,
        enhanced: null,
      },
      stt: { provider: null, model: null, enabled: false, available: false },
      requirements: {
        available: false,
        stt_available: false,
        tts_available: false,
        missing: [expect.stringContaining('no API key available'), expect.stringContaining('no API key available')],
        details: expect.stringContaining('no API key available'),
      },
    });
    expect(await json('/voice/config?profile=%20work%20')).toMatchObject({
      profile: 'work',
      config_scope: 'global',
      config_path: null,
      fallback_to_global: true,
    });
    client.terminate();
  });

  it('§5: a key in the environment is enough', async () => {
    const target = await start({ env: { XAI_API_KEY: SECRET } });
    const { client, json } = await callerOf(target);
    const { requirements, tts } = await json('/voice/config');
    expect(requirements).toMatchObject({ available: true, missing: [] });
    expect(tts).toMatchObject({ provider: null, enabled: false, available: true });
    client.terminate();
  });

  it('§10: settings of voice output', async () => {
    const target = await start({ env: { ...ENV, RELAY_VOICE_OUTPUT_PROVIDER: 'openai' } });
    const { client, json } = await callerOf(target);
    const body = await json('/voice/output/config');
    expect(body).toEqual({
      success: true,
      enabled: true,
      protocol: 'svc.voice.output.v0',
      config_path: hasHost ? join(target.agentHome, '.svc-relay/config.yaml') : null,
      default_provider: 'openai_tts',
      default_model: 'gpt-4o-mini-tts',
      default_voice: 'coral',
      provider: 'openai_tts',
      model: 'gpt-4o-mini-tts',
      voice: 'coral',
      models: ['gpt-4o-mini-tts', 'tts-1', 'tts-1-hd'],
      voices: expect.arrayContaining(['alloy', 'cedar']),
      languages: ['en'],
      sample_rates: [24_000],
      sample_rate: 24_000,
      language: 'en',
      codec: 'pcm',
      optimize_streaming_latency: 1,
      text_normalization: false,
      fallback_enabled: true,
      auto_speech_tags: false,
      fallback_provider: 'legacy_svc_tts',
      providers: expect.any(Array),
      auth: {
        xai_env: true,
        xai_env_names: ['XAI_API_KEY'],
        xai_oauth: false,
        xai_oauth_source: null,
        openai_env: true,
        openai_env_names: ['OPENAI_API_KEY'],
      },
      profile: null,
      config_scope: 'relay',
      fallback_to_global: false,
    });
    expect(body.providers.map(({ id }: { id: string }) => id)).toEqual(RENDERERS);
    expect(await json('/voice/output/config?profile=nobody')).toMatchObject({
      profile: 'nobody',
      config_scope: 'relay',
      fallback_to_global: true,
    });
    client.terminate();
  });

  it('§10: a provider that nobody knows has no lists', async () => {
    const target = await start({ env: { RELAY_VOICE_OUTPUT_PROVIDER: 'Other', RELAY_VOICE_OUTPUT_ENABLED: 'no' } });
    const { client, json } = await callerOf(target);
    expect(await json('/voice/output/config')).toMatchObject({
      enabled: false,
      provider: 'Other',
      models: [],
      voices: [],
      languages: [],
      sample_rates: [],
    });
    client.terminate();
  });

  it('§14: settings of realtime voice, also while it is disabled', async () => {
    const target = await start({ env: { ...ENV, RELAY_REALTIME_VOICE_ENABLED: '0' } });
    const { client, json } = await callerOf(target);
    const body = await json('/voice/realtime/config');
    const paths = ['.svc-relay/auth/xai-oauth.json', 'auth.json'].map((name) => join(target.agentHome, name));
    expect(body).toEqual({
      success: true,
      enabled: false,
      protocol: 'svc.voice.realtime.v0',
      config_path: hasHost ? join(target.agentHome, '.svc-relay/config.yaml') : null,
      default_provider: 'xai_realtime',
      default_model: 'grok-voice-latest',
      default_voice: 'eve',
      provider: 'xai_realtime',
      model: 'grok-voice-latest',
      voice: 'eve',
      models: ['grok-voice-latest', 'grok-voice-think-fast-1.0'],
      voices: ['eve', 'ara', 'rex', 'sal', 'leo'],
      languages: [],
      sample_rates: [24_000],
      sample_rate: 24_000,
      providers: streamingProviders.filter((each) => !isOwners(each)).map(({ info }) => info),
      auth: {
        xai_env: true,
        xai_env_names: ['XAI_API_KEY', 'XAI_EPHEMERAL_TOKEN'],
        xai_oauth: false,
        xai_oauth_source: null,
        openai_env: true,
        openai_env_names: ['OPENAI_API_KEY'],
        xai_oauth_path: hasHost ? paths[0] : null,
        xai_oauth_paths: hasHost ? paths : [],
      },
      profile: null,
      config_scope: 'relay',
      fallback_to_global: false,
    });
    client.terminate();
  });

  it('§10: a bad PATCH is one line of text, and changes nothing', async () => {
    const target = await start();
    const { client, refused, json } = await callerOf(target);
    const cases: [unknown, string][] = [
      [{}, 'nothing to change'],
      [null, 'nothing to change'],
      [{ tempo: 1 }, 'unsupported: tempo'],
      [{ provider: 'nobody' }, 'unknown voice provider'],
      [{ provider: 'openai_realtime' }, 'not a streaming TTS renderer'],
      [{ sample_rate: 1 }, 'sample_rate'],
    ];
    for (const [body, text] of cases) {
      const answer = await refused('/voice/output/config', patch(body));
      expect(answer).toMatchObject({ status: 400, type: expect.stringContaining('text/plain') });
      expect(answer.text).toContain(text);
    }
    for (const body of ['{', '[1]', '7']) {
      expect((await refused('/voice/realtime/config', { method: 'PATCH', body })).status).toBe(400);
    }
    expect(await refused('/voice/realtime/config', { method: 'PATCH', body: '{' })).toMatchObject({
      text: 'invalid JSON body',
    });
    expect((await refused('/voice/realtime/config', patch({ promotion_enabled: true }))).text).toContain('unsupported');
    expect((await refused('/voice/output/config', { method: 'DELETE' })).status).toBe(405);
    expect((await json('/voice/output/config')).provider).toBe('xai_tts');
    client.terminate();
  });

  it('§3: a profile of more than 1024 characters is 400', async () => {
    const { json, refused } = await callerOf(await start({ env: ENV }));
    const name = 'p'.repeat(1024);
    expect(await json(`/voice/config?profile=${name}`)).toMatchObject({ profile: name, fallback_to_global: true });
    expect(await refused(`/voice/config?profile=${name}p`)).toMatchObject({ status: 400 });
    const init = { method: 'POST', body: JSON.stringify({ provider: 'stub', profile: `${name}p` }) };
    expect(await refused('/voice/output/session', init)).toMatchObject({ status: 400 });
  });

  it('§3: a body over 2 MiB is 413', async () => {
    const target = await start();
    const { client, refused } = await callerOf(target);
    const body = JSON.stringify({ voice: 'x'.repeat(2 * 1024 * 1024) });
    expect((await refused('/voice/output/config', { method: 'PATCH', body })).status).toBe(413);
    client.terminate();
  });

  if (!hasHost) {
    it('without a host, settings cannot be changed: 501', async () => {
      const { client, refused } = await callerOf(await start());
      for (const path of ['/voice/output/config', '/voice/realtime/config?profile=work']) {
        expect((await refused(path, patch({ voice: 'x' }))).status).toBe(501);
      }
      client.terminate();
    });
    return;
  }

  it('§5: sections of the root and of profiles, without keys and URLs', async () => {
    const target = await start({ env: { GEMINI_API_KEY: SECRET } });
    const { client, json } = await callerOf(target);
    await write(target, {
      'config.yaml': `tts: {provider: OpenAI, speed: 1.2, openai: {voice: coral, model_id: m1, api_key: ${SECRET}, base_url: "https://u:${SECRET}@host/"}}
stt: {provider: groq, model: whisper, enabled: off, groq: {api_key: ${SECRET}}}
`,
      'profiles/work/config.yaml': `tts:
  provider: gemini
  gemini: {voice: Kore, model: gemini-2.5-flash-preview-tts, audio_tags: {enabled: yes}, persona_prompt_file: prompts/me.txt}
`,
      'profiles/tags/config.yaml': `tts: {provider: xai, speech_tags: "on", voice_id: v1, xai: {api_key: ${SECRET}}}\n`,
      'profiles/none/config.yaml': 'model: x\n',
    });
    const root = await json('/voice/config');
    // A base URL with a password is refused, so that there is no provider to call.
    expect(root.tts).toMatchObject({
      provider: 'openai',
      voice: 'coral',
      model: 'm1',
      enabled: true,
      available: false,
    });
    expect(root.stt).toEqual({ provider: 'groq', model: 'whisper', enabled: false, available: true });
    expect(root.requirements).toMatchObject({
      available: false,
      missing: [expect.stringContaining('tts.openai.base_url')],
    });

    const work = await json('/voice/config?profile=work');
    expect(work).toMatchObject({
      profile: 'work',
      config_scope: 'profile',
      config_path: join(target.agentHome, 'profiles/work/config.yaml'),
      fallback_to_global: false,
      stt: { provider: 'groq' },
    });
    expect(work.tts).toMatchObject({ provider: 'gemini', voice: 'Kore', available: true });
    expect(work.tts.enhanced).toEqual({
      provider: 'gemini',
      supported: true,
      voices: expect.arrayContaining(['Zephyr', 'Sulafat']),
      // Those of the SDK, and the configured one, which no longer exists.
      models: [
        'gemini-3.1-flash-tts-preview',
        'gemini-3.8-flash-tts',
        'gemini-3.8-flash-lite-tts',
        'gemini-2.5-flash-preview-tts',
      ],
      audio_tag_models: ['gemini-3.1-flash-tts-preview'],
      audio_tags_enabled: true,
      audio_tags_label: expect.any(String),
      supports_persona: true,
      supports_language: false,
      persona_prompt_file: 'prompts/me.txt',
      overrides: ['voice', 'model', 'audio_tags', 'persona_prompt'],
    });
    expect(new Set(work.tts.enhanced.voices).size).toBe(30);

    const tags = await json('/voice/config?profile=tags');
    expect(tags.tts).toMatchObject({ voice_id: 'v1', voice: null, available: true });
    expect(tags.tts.enhanced).toMatchObject({
      voices: [],
      models: [],
      audio_tags_enabled: true,
      supports_persona: false,
      supports_language: true,
      persona_prompt_file: null,
      overrides: ['voice', 'audio_tags', 'language'],
    });
    expect(await json('/voice/config?profile=none')).toMatchObject({
      config_scope: 'global',
      config_path: null,
      fallback_to_global: true,
      tts: { provider: 'openai' },
    });
    expect(target.log.join('\n')).not.toContain(SECRET);
    client.terminate();
  });

  it('§13: the token store of xAI is named, its tokens are not', async () => {
    const target = await start();
    const { client, json } = await callerOf(target);
    const store = JSON.stringify({ tokens: { access_token: OAUTH_SECRET, expires_at_ms: Date.now() + 3_600_000 } });
    await write(target, { 'auth.json': store });
    const path = join(target.agentHome, 'auth.json');
    expect((await json('/voice/output/config')).auth).toMatchObject({ xai_oauth: true, xai_oauth_source: path });
    expect((await json('/voice/realtime/config')).auth).toMatchObject({ xai_oauth: true, xai_oauth_source: path });
    expect((await json('/voice/config')).requirements.available).toBe(true);
    expect(target.log.join('\n')).not.toContain(OAUTH_SECRET);
    client.terminate();
  });

  it('§10: PATCH writes the relay’s file in place, counts at once and after a restart', async () => {
    const target = await start({ env: { RELAY_VOICE_OUTPUT_LANGUAGE: 'fr' } });
    const { client, json } = await callerOf(target);
    const path = join(target.agentHome, '.svc-relay/config.yaml');
    await write(target, {
      '.svc-relay/config.yaml':
        '# mine\nrealtime_voice:\n  promotion_enabled: true  # agent\nvoice_output:\n  voice: "ara" # hers\n  run_dir: /tmp/runs\n',
    });
    await chmod(path, 0o640);
    const changed = await json(
      '/voice/output/config',
      patch({ voice: 'rex', language: ' de ', auto_speech_tags: 'yes' }),
    );
    expect(changed).toMatchObject({
      updated: ['auto_speech_tags', 'language', 'voice'],
      config_path: path,
      voice: 'rex',
      default_voice: 'rex',
      language: 'de',
      auto_speech_tags: true,
    });
    expect(await json('/voice/realtime/config', patch({ sample_rate: 16_000 }))).toMatchObject({
      updated: ['sample_rate'],
      sample_rate: 16_000,
    });
    expect(await readFile(path, 'utf8')).toBe(
      '# mine\nrealtime_voice:\n  promotion_enabled: true  # agent\n  sample_rate: 16000\nvoice_output:\n' +
        '  voice: "rex" # hers\n  run_dir: /tmp/runs\n  language: de\n  auto_speech_tags: true\n',
    );
    expect((await stat(path)).mode & 0o777).toBe(0o640);
    await target.restart();
    expect(await json('/voice/output/config')).toMatchObject({ voice: 'rex', language: 'fr', auto_speech_tags: true });
    client.terminate();
  });

  it('§10: PATCH of a profile writes its file; without one it is 404 with the name', async () => {
    const target = await start();
    const { client, json, refused } = await callerOf(target);
    await write(target, { 'profiles/work/config.yaml': 'model: x # kept\n' });
    const path = join(target.agentHome, 'profiles/work/config.yaml');
    expect(
      await json('/voice/output/config?profile=work', patch({ provider: 'stub', profile: 'other' })),
    ).toMatchObject({
      config_path: path,
      config_scope: 'profile',
      profile: 'work',
      provider: 'stub',
      model: 'stub-tone',
      voice: 'sine',
    });
    expect(await json('/voice/realtime/config', patch({ voice: 'leo', profile: 'work' }))).toMatchObject({
      voice: 'leo',
    });
    expect(await readFile(path, 'utf8')).toBe(
      'model: x # kept\nvoice_output:\n  provider: stub\nrealtime_voice:\n  voice: leo\n',
    );
    for (const profile of ['nobody', 'default', '../work']) {
      const answer = await refused(
        `/voice/output/config?profile=${encodeURIComponent(profile)}`,
        patch({ voice: 'x' }),
      );
      expect(answer).toMatchObject({ status: 404, text: expect.stringContaining(profile) });
    }
    client.terminate();
  });

  it('§10: a file that cannot be parsed is left alone: 500', async () => {
    const target = await start();
    const { client, json, refused } = await callerOf(target);
    const text = `voice_output: {voice: ${SECRET}\n`;
    await write(target, { '.svc-relay/config.yaml': text });
    const answer = await refused('/voice/output/config', patch({ voice: 'x' }));
    expect(answer).toMatchObject({ status: 500, text: expect.stringContaining('not valid YAML') });
    expect(answer.text).not.toContain(SECRET);
    expect(answer.text).not.toContain(target.agentHome);
    expect(await readFile(join(target.agentHome, '.svc-relay/config.yaml'), 'utf8')).toBe(text);
    expect((await json('/voice/output/config')).voice).toBe('eve');
    client.terminate();
  });

  it('§10: a file that cannot be written is left alone: 500 with the reason, without its path', async () => {
    const target = await start();
    const { client, json, refused } = await callerOf(target);
    const path = join(target.agentHome, '.svc-relay/config.yaml');
    await mkdir(path, { recursive: true });
    const answer = await refused('/voice/output/config', patch({ voice: 'x' }));
    expect(answer).toMatchObject({ status: 500, text: expect.stringContaining('(EISDIR)') });
    expect(answer.text).not.toContain(target.agentHome);
    expect((await json('/voice/output/config')).voice).toBe('eve');
    client.terminate();
  });
});
