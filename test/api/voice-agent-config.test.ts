import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { bearer, describeMatrix, pair, post, type Target } from '../support/relay.ts';
import { startProvider } from '../support/voice/provider.ts';

const SECRET = 'sk-very-secret-value';
const BASE = '/voice/realtime-agent';
const TOOLS = ['svc_run_task', 'svc_get_status', 'svc_cancel', 'svc_confirm'];

const patch = (body: unknown): RequestInit => ({ method: 'PATCH', body: JSON.stringify(body) });

async function write(target: Target, name: string, text: string): Promise<void> {
  const path = join(target.agentHome, name);
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, text);
}

/** A paired caller, and its requests below `/voice/realtime-agent`. */
async function callerOf(target: Target, policy?: Record<string, unknown>) {
  const { client, token } = await pair(target, { policy });
  const call = async (path: string, init: RequestInit = {}) => {
    const response = await target.fetch(BASE + path, { ...init, headers: { ...bearer(token), ...init.headers } });
    const text = await response.text();
    expect(text).not.toContain(SECRET);
    return { status: response.status, type: response.headers.get('content-type'), text };
  };
  const json = async (path: string, init?: RequestInit) => {
    const { status, text } = await call(path, init);
    expect([status, text]).toEqual([200, expect.any(String)]);
    return JSON.parse(text);
  };
  return { client, call, json };
}

/** No member anywhere is null, but those that the contract says may be. */
function expectNoNull(value: unknown, path = ''): void {
  if (path.endsWith('.profile')) return;
  expect([path, value]).not.toEqual([path, null]);
  if (typeof value === 'object' && value !== null) {
    for (const [name, member] of Object.entries(value)) expectNoNull(member, `${path}.${name}`);
  }
}

describeMatrix('settings of the realtime agent (contract 06 §2, §3)', (start, runtime) => {
  const hasHost = runtime === 'node';

  it('§1: want voice:realtime', async () => {
    const target = await start();
    const { client, call } = await callerOf(target, { without: ['voice:realtime'] });
    const routes: [string, RequestInit?][] = [
      ['/config'],
      ['/config', patch({ voice: 'x' })],
      ['/providers/xai_realtime/options'],
      ['/providers/xai_realtime/validate', { method: 'POST' }],
    ];
    for (const [path, init] of routes) {
      expect(await call(path, init)).toMatchObject({
        status: 403,
        type: expect.stringContaining('text/plain'),
        text: expect.stringContaining('voice:realtime'),
      });
      expect((await target.fetch(BASE + path, init)).status).toBe(401);
    }
    client.terminate();
  });

  it('§3.1: the settings', async () => {
    const target = await start({ env: { XAI_API_KEY: SECRET, OPENAI_API_KEY: ' ' } });
    const { client, json } = await callerOf(target);
    const body = await json('/config');
    expect(body).toEqual({
      success: true,
      enabled: true,
      available: true,
      experimental: true,
      mode: 'realtime_agent',
      stable_engine: 'svc_voice_output',
      protocol: 'svc.voice.realtime_agent.v0',
      config_path: hasHost ? join(target.agentHome, '.svc-relay/config.yaml') : '',
      default_provider: 'xai_realtime',
      default_model: 'grok-voice-latest',
      default_voice: 'eve',
      sample_rate: 24_000,
      providers: expect.any(Array),
      auth: {
        xai_env: true,
        xai_env_names: ['XAI_API_KEY'],
        xai_oauth: false,
        xai_oauth_configured: false,
        xai_oauth_path: hasHost ? join(target.agentHome, '.svc-relay/auth/xai-oauth.json') : '',
        openai_env: false,
        openai_env_names: [],
      },
      profile: null,
      config_scope: 'relay',
      fallback_to_global: false,
      tool_surface: TOOLS,
      promotion: {
        enabled: true,
        promote_after_ms: 6000,
        background_default_mode: 'promote',
        spoken_handoff: true,
        progress_spoken_after_ms: 0,
        progress_repeat_ms: 30_000,
        result_delivery: 'speak_verbatim',
        max_background_runs: 1,
      },
      limits: [expect.any(String), expect.any(String), expect.any(String)],
    });
    expectNoNull(body);
    client.terminate();
  });

  it('§3.1: the providers and what they can do', async () => {
    const { client, json } = await callerOf(await start());
    const { providers } = await json('/config');
    const flags = (id: string) => {
      const provider = providers.find((one: { id: string }) => one.id === id);
      return Object.keys(provider)
        .filter((name) => provider[name] === true)
        .map((name) => name.slice(9));
    };
    expect(providers.map(({ id }: { id: string }) => id)).toEqual([
      'elevenlabs_tts',
      'openai_realtime',
      'openai_tts',
      'stub',
      'xai_realtime',
      'xai_tts',
    ]);
    const native = ['tts', 'speech_to_speech', 'tool_use', 'realtime', 'expression', 'realtime_agent_native'];
    expect(flags('openai_realtime').sort()).toEqual([...native].sort());
    expect(flags('xai_realtime').sort()).toEqual([...native, 'interruption'].sort());
    expect(flags('stub').sort()).toEqual(['expression', 'speech_to_speech', 'stt', 'tts']);
    expect(flags('xai_tts').sort()).toEqual(['expression', 'tts']);
    client.terminate();
  });

  it('§3.1: a PATCH is checked in full, and answers in one line of text', async () => {
    const { client, call, json } = await callerOf(await start());
    const cases: [unknown, string][] = [
      [{}, 'nothing to change'],
      [{ profile: 'x' }, 'nothing to change'],
      [{ tempo: 1, audio: 2, voice: 'ara' }, 'unsupported realtime agent config field(s): audio, tempo'],
      [{ provider: 'nobody' }, 'unknown voice provider'],
      [{ provider: 'openai_tts' }, 'openai_tts is not a native realtime-agent provider'],
      [{ sample_rate: 1 }, 'sample_rate'],
      [{ promote_after_ms: 'soon' }, 'promote_after_ms'],
    ];
    for (const [body, text] of cases) {
      const answer = await call('/config', patch(body));
      expect(answer).toMatchObject({ status: 400, type: expect.stringContaining('text/plain') });
      expect(answer.text).toContain(text);
    }
    const bodies: [string, string][] = [
      ['{', 'invalid JSON body'],
      ['[1]', 'JSON body must be an object'],
    ];
    for (const [body, text] of bodies) {
      expect(await call('/config', { method: 'PATCH', body })).toMatchObject({ status: 400, text });
    }
    expect((await json('/config')).default_voice).toBe('eve');
    client.terminate();
  });

  if (hasHost) {
    it('§3.1: a PATCH counts at once, and survives a restart', async () => {
      const target = await start();
      const { client, call, json } = await callerOf(target);
      const changes = { promote_after_ms: '9000', background_default_mode: 'foreground', enabled: 'off' };
      const body = await json('/config', patch(changes));
      expect(body).toMatchObject({
        updated: ['background_default_mode', 'enabled', 'promote_after_ms'],
        config_path: join(target.agentHome, '.svc-relay/config.yaml'),
        enabled: false,
        available: false,
        promotion: { promote_after_ms: 9000, background_default_mode: 'foreground' },
      });
      expect(await readFile(body.config_path, 'utf8')).toContain('promote_after_ms: 9000');
      await target.restart();
      const { client: again, json: later } = await callerOf(target);
      expect((await later('/config')).promotion.promote_after_ms).toBe(9000);
      expect((await call('/config?profile=nobody', patch({ voice: 'x' }))).status).toBe(404);
      client.terminate();
      again.terminate();
    });

    it('§2.1: profiles, by the query before the body', async () => {
      const target = await start();
      await write(target, 'config.yaml', 'realtime_voice: {voice: rex}\n');
      await write(target, 'profiles/work/config.yaml', 'realtime_voice: {provider: openai}\n');
      const { client, json } = await callerOf(target);
      expect(await json('/config?profile=work')).toMatchObject({
        profile: 'work',
        config_scope: 'profile',
        fallback_to_global: false,
        config_path: join(target.agentHome, 'profiles/work/config.yaml'),
        default_provider: 'openai_realtime',
        default_model: 'gpt-realtime-2.1',
      });
      expect(await json('/config?profile=gone')).toMatchObject({
        profile: 'gone',
        config_scope: 'global',
        fallback_to_global: true,
        default_voice: 'rex',
      });
      const init = patch({ profile: 'gone', voice: 'verse' });
      expect(await json('/config?profile=work', init)).toMatchObject({ profile: 'work', default_voice: 'verse' });
      client.terminate();
    });

    it('§3.1: an xAI token is named, and never shown', async () => {
      const target = await start();
      const { client, json } = await callerOf(target);
      const token = (expires: number) => JSON.stringify({ access_token: SECRET, expires_at_ms: expires });
      await write(target, '.svc-relay/auth/xai-oauth.json', token(Date.now() - 1000));
      expect((await json('/config')).auth).toMatchObject({ xai_oauth: false, xai_oauth_configured: true });
      await write(target, 'auth.json', token(Date.now() + 3_600_000));
      expect((await json('/config')).auth).toMatchObject({
        xai_oauth: true,
        xai_oauth_configured: true,
        xai_oauth_source: join(target.agentHome, 'auth.json'),
      });
      client.terminate();
    });
  } else {
    it('§3.1: at the edge there is no file to change', async () => {
      const { client, call } = await callerOf(await start());
      expect((await call('/config', patch({ voice: 'ara' }))).status).toBe(501);
      client.terminate();
    });
  }

  it('§3.2: options', async () => {
    const { client, json } = await callerOf(await start());
    const body = await json('/providers/openai_realtime/options?profile=p');
    expect(body).toMatchObject({
      success: true,
      mode: 'realtime_agent',
      protocol: 'svc.voice.realtime_agent.options.v0',
      schema_version: 1,
      provider_id: 'openai_realtime',
      provider: {
        id: 'openai_realtime',
        supports_realtime_agent_native: true,
        supports_tool_use: true,
        recommended_voices: ['marin', 'cedar', 'coral'],
        requires_manual_id: false,
      },
      default_provider: 'xai_realtime',
      default_model: 'grok-voice-latest',
      default_voice: 'eve',
      sample_rate: 24_000,
      profile: 'p',
      config_scope: 'relay',
      fallback_to_global: true,
      dynamic: { attempted: false, status: 'static', source: 'openai_docs' },
      tool_surface: TOOLS,
    });
    expect(Object.keys(body.provider.model_voice_compatibility)).toEqual(body.provider.models);
    expectNoNull(body);
    expect((await json('/providers/stub/options')).provider).toMatchObject({ id: 'stub', voices: ['sine'] });
    const xai = await json('/providers/xai_realtime/options');
    expect(xai.dynamic).toMatchObject({ attempted: false, status: 'auth_missing' });
    expectNoNull(xai);
    client.terminate();
  });

  it('§3.2: options of other providers are refused', async () => {
    const { client, call } = await callerOf(await start());
    for (const [id, text] of [
      ['nobody', 'unknown voice provider'],
      ['xai_tts', 'xai_tts is not a realtime voice provider'],
    ]) {
      for (const [action, init] of [['options'], ['validate', { method: 'POST' }]] as const) {
        const answer = await call(`/providers/${id}/${action}`, init);
        expect(answer).toMatchObject({ status: 400, text: expect.stringContaining(text as string) });
      }
    }
    client.terminate();
  });

  it('§3.2: voices of xAI are discovered with the key, cached, and a failure is told', async () => {
    const provider = await startProvider();
    let isBroken = false;
    provider.onCall((call) => {
      if (isBroken) return call.answer(500, `no ${SECRET}`);
      if (call.path === '/v1/tts/voices') return call.answer(200, [{ voice_id: 'eve', name: 'Eve' }, { id: 'nova' }]);
      return call.answer(call.headers.authorization === `Bearer ${SECRET}` ? 200 : 401, {
        custom_voices: [{ voice: 'mine', name: 'Mine' }],
      });
    });
    const target = await start({
      env: { XAI_API_KEY: SECRET, XAI_BASE_URL: provider.url, RELAY_PROVIDER_OPTIONS_CACHE_SECONDS: '60' },
    });
    const { client, json } = await callerOf(target);
    const found = await json('/providers/xai_realtime/options');
    expect(found.provider.voices).toEqual(['eve', 'ara', 'rex', 'sal', 'leo', 'nova', 'mine']);
    expect(found.provider.voice_labels.mine).toBe('Mine (custom)');
    expect(found.dynamic).toMatchObject({
      attempted: true,
      status: 'ok',
      voice_count: 3,
      custom_voice_count: 1,
      auth_source: 'XAI_API_KEY',
      cache_ttl_seconds: 60,
    });
    expect((await json('/providers/xai_realtime/options')).dynamic.cache).toBe('hit');
    expect(await json('/providers/xai_realtime/validate', post({ voice: 'mine' }))).toMatchObject({ valid: true });
    client.terminate();
    isBroken = true;
    const broken = await start({ env: { XAI_API_KEY: SECRET, XAI_BASE_URL: provider.url } });
    const second = await callerOf(broken);
    expect((await second.json('/providers/xai_realtime/options')).dynamic).toMatchObject({ status: 'error' });
    second.client.terminate();
  });

  it('§3.2: validation', async () => {
    const { client, call, json } = await callerOf(await start());
    const validate = async (id: string, body: object) => {
      const answer = await json(`/providers/${id}/validate`, post(body));
      expect(answer).toMatchObject({
        success: true,
        mode: 'realtime_agent',
        protocol: 'svc.voice.realtime_agent.validate.v0',
        provider_id: id,
        summary: answer.valid ? 'ok' : 'invalid',
      });
      expectNoNull(answer);
      return {
        ...answer,
        checks: answer.checks.map(({ id: check, status }: { id: string; status: string }) => `${check} ${status}`),
      };
    };
    expect(await validate('openai_realtime', {})).toMatchObject({
      model: 'gpt-realtime-2.1',
      voice: 'marin',
      sample_rate: 24_000,
      valid: true,
      checks: ['model_known ok', 'voice_known ok', 'sample_rate_known ok'],
    });
    expect(await validate('openai_realtime', { model: 'future', voice: 'future', sample_rate: '24000' })).toMatchObject(
      {
        valid: true,
        checks: ['model_known warning', 'voice_known warning', 'sample_rate_known ok'],
      },
    );
    expect(await validate('openai_realtime', { voice: 'eve', sample_rate: 16_000 })).toMatchObject({
      valid: false,
      checks: ['model_known ok', 'voice_compatible error', 'sample_rate_known error'],
    });
    expect(await validate('openai_realtime', { model: '', voice: ' ' })).toMatchObject({
      valid: false,
      checks: ['model_present error', 'voice_present error', 'sample_rate_known ok'],
    });
    expect(await validate('stub', {})).toMatchObject({ model: 'stub-tone', voice: 'sine', valid: true });
    for (const body of [{ sample_rate: 1.5 }, { sample_rate: true }, { model: 7 }]) {
      expect((await call('/providers/stub/validate', post(body))).status).toBe(400);
    }
    client.terminate();
  });

  it('§1: settings can be read and changed while the agent is disabled', async () => {
    const { client, json } = await callerOf(await start({ env: { RELAY_REALTIME_VOICE_ENABLED: '0' } }));
    expect(await json('/config')).toMatchObject({ enabled: false, available: false });
    expect((await json('/providers/stub/validate', post({}))).valid).toBe(true);
    client.terminate();
  });
});
