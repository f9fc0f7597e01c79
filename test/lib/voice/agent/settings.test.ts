import { mkdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { readConfig } from '../../../../lib/config.ts';
import { extraHeaders, keepsAudio, realtimeAgent } from '../../../../lib/voice/agent/settings.ts';
import { tuningIn } from '../../../../lib/voice/agent/tuning.ts';
import { createVoiceConfig } from '../../../../lib/voice/config.ts';
import { createVoiceScopes } from '../../../../lib/voice/scope.ts';
import { createTestHost } from '../../../support/host.ts';
import { createTestLog } from '../../../support/log.ts';
import { temporaryDirectory } from '../../../support/temp.ts';

/** Configuration below a new home: `agent/` is the agent's, `relay/` the relay's own. */
async function setUp(files: Record<string, string> = {}, env: Record<string, string> = {}) {
  const home = await temporaryDirectory(files);
  const agentHome = join(home, 'agent');
  await mkdir(agentHome, { recursive: true });
  const log = createTestLog();
  const { config } = readConfig({ SVC_RELAY_HOME: join(home, 'relay'), ...env }, { home, agentHome });
  const host = createTestHost({ agentHome, env: {} });
  onTestFinished(() => host.yaml.close());
  const voice = createVoiceConfig({ host, config, scopes: createVoiceScopes(host, config), log });
  return { home, log, voice, read: (name: string) => readFile(join(home, name), 'utf8') };
}

const relay = (yaml: string) => ({ 'relay/config.yaml': `realtime_voice: ${yaml}\n` });
const settingsOf = async (yaml: string) => (await (await setUp(relay(yaml))).voice.agent(null)).settings;

const DEFAULTS = {
  enabled: true,
  provider: 'xai_realtime',
  model: 'grok-voice-latest',
  voice: 'eve',
  sampleRate: 24_000,
  promotionEnabled: true,
  promoteAfterMs: 6000,
  backgroundDefaultMode: 'promote',
  spokenHandoff: true,
  progressSpokenAfterMs: 0,
  progressRepeatMs: 30_000,
  resultDelivery: 'speak_verbatim',
  maxBackgroundRuns: 1,
};

describe('06 §2.1: what a file sets', () => {
  it('nothing: the defaults', async () => {
    expect(await settingsOf('{}')).toEqual(DEFAULTS);
  });

  it('all of it, integers as text too', async () => {
    const yaml =
      '{enabled: "off", provider: openai-realtime, model: m, voice: v, sample_rate: "16000", promotion_enabled: no, ' +
      'promote_after_ms: "250", background_default_mode: Foreground, spoken_handoff: 0, progress_spoken_after_ms: 10, ' +
      'progress_repeat_ms: 20, result_delivery: visual_only, max_background_runs: 4}';
    expect(await settingsOf(yaml)).toEqual({
      enabled: false,
      provider: 'openai_realtime',
      model: 'm',
      voice: 'v',
      sampleRate: 16_000,
      promotionEnabled: false,
      promoteAfterMs: 250,
      backgroundDefaultMode: 'foreground',
      spokenHandoff: false,
      progressSpokenAfterMs: 10,
      progressRepeatMs: 20,
      resultDelivery: 'visual_only',
      maxBackgroundRuns: 4,
    });
  });

  it.each([
    ['xai', 'xai_realtime'],
    ['grok', 'xai_realtime'],
    ['OpenAI', 'openai_realtime'],
    ['xai-realtime', 'xai_realtime'],
    ['stub', 'stub'],
  ])('the provider %s is %s', async (name, id) => {
    expect((await settingsOf(`{provider: ${name}}`)).provider).toBe(id);
  });

  it.each([
    ['sample_rate: 7999'],
    ['sample_rate: true'],
    ['promote_after_ms: 120001'],
    ['promote_after_ms: 1.5'],
    ['progress_repeat_ms: soon'],
    ['max_background_runs: 0'],
    ['max_background_runs: 5'],
    ['background_default_mode: sometimes'],
    ['result_delivery: shout'],
    ['promotion_enabled: perhaps'],
    ['provider: nobody'],
    ['provider: xai_tts'],
    [`model: ${'x'.repeat(161)}`],
  ])('%s is ignored, with one warning', async (line) => {
    const { voice, log } = await setUp(relay(`{${line}}`));
    for (const _ of [1, 2]) expect((await voice.agent(null)).settings).toEqual(DEFAULTS);
    const warnings = log.lines.filter((text) => text.includes('is not valid, and is ignored'));
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toContain(`realtime_voice.${line.split(':')[0]} in `);
  });

  it('negative times count as 0', async () => {
    const yaml = '{promote_after_ms: -1, progress_spoken_after_ms: "-5", progress_repeat_ms: -3}';
    const { voice, log } = await setUp(relay(yaml));
    expect((await voice.agent(null)).settings).toMatchObject({
      promoteAfterMs: 0,
      progressSpokenAfterMs: 0,
      progressRepeatMs: 0,
    });
    expect(log.lines).toEqual([]);
  });

  it('the model and the voice of a provider that is ignored are, too', async () => {
    expect(await settingsOf('{provider: openai_tts, model: tts-1, voice: nova, sample_rate: 16000}')).toEqual({
      ...DEFAULTS,
      sampleRate: 16_000,
    });
  });

  it('what is nested for the chosen provider comes after the own scalars of the section', async () => {
    const yaml = '{provider: openai, voice: own, openai_realtime: {voice: nested, model: m}, xai: {model: other}}';
    expect(await settingsOf(yaml)).toMatchObject({ provider: 'openai_realtime', voice: 'own', model: 'm' });
  });

  it('variables come before the file, and a PATCH before both', async () => {
    const { voice } = await setUp(relay('{voice: file, promote_after_ms: 1}'), {
      RELAY_REALTIME_VOICE_VOICE: 'variable',
      RELAY_REALTIME_VOICE_SAMPLE_RATE: '7',
      RELAY_REALTIME_VOICE_PROVIDER: 'nobody',
    });
    expect((await voice.agent(null)).settings).toEqual({ ...DEFAULTS, voice: 'variable', promoteAfterMs: 1 });
    await voice.changeAgent(null, { voice: 'patched' });
    expect((await voice.agent(null)).settings.voice).toBe('patched');
    // The lab has the same section.
    expect((await voice.realtime(null)).settings.voice).toBe('patched');
  });
});

describe('06 §2.1: which file decides', () => {
  const files = {
    ...relay('{voice: relay}'),
    'agent/config.yaml': 'realtime_voice: {voice: root, promote_after_ms: 3}\n',
    'agent/profiles/work/config.yaml': 'realtime_voice: {voice: work, promotion_enabled: false}\n',
    'agent/profiles/plain/config.yaml': 'model: x\n',
    'agent/profiles/bad/config.yaml': 'realtime_voice: {sample_rate: 1}\n',
  };

  it.each([
    [null, 'relay', 'relay', false, 'relay/config.yaml'],
    ['work', 'work', 'profile', false, 'agent/profiles/work/config.yaml'],
    ['default', 'root', 'profile', false, 'agent/config.yaml'],
    ['plain', 'relay', 'relay', true, 'relay/config.yaml'],
    ['bad', 'relay', 'relay', true, 'relay/config.yaml'],
    ['missing', 'root', 'global', true, 'agent/config.yaml'],
    ['../work', 'root', 'global', true, 'agent/config.yaml'],
    ['..', 'root', 'global', true, 'agent/config.yaml'],
  ])('of the profile %s: %s', async (profile, chosen, configScope, fallbackToGlobal, path) => {
    const { home, voice } = await setUp(files);
    const { settings, ...effective } = await voice.agent(profile);
    expect([settings.voice, effective.configScope, effective.fallbackToGlobal, effective.configPath]).toEqual([
      chosen,
      configScope,
      fallbackToGlobal,
      join(home, path),
    ]);
    expect(effective.profile).toBe(profile);
  });

  it('without a section in the root, a missing profile has the relay-owned one', async () => {
    const { voice } = await setUp(relay('{voice: relay}'));
    expect(await voice.agent('missing')).toMatchObject({ configScope: 'relay', fallbackToGlobal: true });
  });

  it('the run directory has a name of its own, unless a variable or the section names it', async () => {
    const own = await setUp();
    expect((await own.voice.agent(null)).runDir).toBe(join(own.home, 'relay/realtime-agent-runs'));
    expect((await own.voice.realtime(null)).runDir).toBe(join(own.home, 'relay/realtime-voice-runs'));
    const named = await setUp(relay('{run_dir: /var/runs}'));
    expect((await named.voice.agent(null)).runDir).toBe('/var/runs');
    const variable = await setUp(relay('{run_dir: /var/runs}'), { RELAY_REALTIME_VOICE_RUN_DIR: '/srv/runs' });
    expect((await variable.voice.agent(null)).runDir).toBe('/srv/runs');
  });
});

describe('06 §3.1: PATCH', () => {
  it('writes every field, in place and private', async () => {
    const { home, voice, read } = await setUp({
      'relay/config.yaml': '# mine\nother: {a: 1}\nrealtime_voice:\n  voice: eve # nice\n  run_dir: /x\n',
    });
    const body = {
      enabled: 'no',
      provider: 'openai',
      model: 'gpt-realtime-2',
      voice: 'marin',
      sample_rate: '24000',
      promotion_enabled: 1,
      promote_after_ms: '0',
      background_default_mode: 'foreground',
      spoken_handoff: 'off',
      progress_spoken_after_ms: 600_000,
      progress_repeat_ms: 0,
      result_delivery: 'notify_then_speak',
      max_background_runs: '4',
      profile: 'ignored',
    };
    const { updated, configPath, effective } = await voice.changeAgent(null, body);
    expect(updated).toEqual(
      Object.keys(body)
        .filter((name) => name !== 'profile')
        .sort(),
    );
    expect(configPath).toBe(join(home, 'relay/config.yaml'));
    expect(effective.settings).toEqual({
      enabled: false,
      provider: 'openai_realtime',
      model: 'gpt-realtime-2',
      voice: 'marin',
      sampleRate: 24_000,
      promotionEnabled: true,
      promoteAfterMs: 0,
      backgroundDefaultMode: 'foreground',
      spokenHandoff: false,
      progressSpokenAfterMs: 600_000,
      progressRepeatMs: 0,
      resultDelivery: 'notify_then_speak',
      maxBackgroundRuns: 4,
    });
    const text = await read('relay/config.yaml');
    for (const kept of ['# mine', 'other: {a: 1}', '# nice', 'run_dir: /x', 'sample_rate: 24000']) {
      expect(text).toContain(kept);
    }
  });

  it('makes a missing file private', async () => {
    const { home, voice } = await setUp();
    await voice.changeAgent(null, { voice: 'ara' });
    expect((await stat(join(home, 'relay/config.yaml'))).mode & 0o777).toBe(0o600);
  });

  it.each([
    [{}, /nothing to change/],
    [{ profile: 'x' }, /nothing to change/],
    [{ tempo: 1, run_dir: '/x', voice: 'ara' }, /^unsupported realtime agent config field\(s\): run_dir, tempo$/],
    [{ debug_audio_tap: true }, /unsupported/],
    [{ provider: 'nobody' }, /unknown voice provider/],
    [{ provider: 'xai_tts' }, /^xai_tts is not a native realtime-agent provider$/],
    [{ provider: '' }, /provider/],
    [{ model: 'x'.repeat(161) }, /model/],
    [{ voice: 7 }, /voice/],
    [{ enabled: 'perhaps' }, /enabled/],
    [{ enabled: 2 }, /enabled/],
    [{ sample_rate: 96_001 }, /sample_rate/],
    [{ sample_rate: true }, /sample_rate/],
    [{ sample_rate: 24_000.5 }, /sample_rate/],
    [{ promote_after_ms: -1 }, /promote_after_ms/],
    [{ promote_after_ms: 120_001 }, /promote_after_ms/],
    [{ promote_after_ms: null }, /promote_after_ms/],
    [{ progress_spoken_after_ms: 600_001 }, /progress_spoken_after_ms/],
    [{ progress_repeat_ms: '1e3' }, /progress_repeat_ms/],
    [{ max_background_runs: 5 }, /max_background_runs/],
    [{ background_default_mode: 'durable' }, /background_default_mode/],
    [{ result_delivery: '' }, /result_delivery/],
    [{ spoken_handoff: null }, /spoken_handoff/],
  ])('refuses %j, and writes nothing', async (body, message) => {
    const { voice, read } = await setUp(relay('{voice: eve}'));
    const before = await read('relay/config.yaml');
    await expect(voice.changeAgent(null, body)).rejects.toMatchObject({
      kind: 'invalid',
      message: expect.stringMatching(message),
    });
    expect(await read('relay/config.yaml')).toBe(before);
  });

  it('with a profile writes its file, and 404s without one', async () => {
    const { voice, read } = await setUp({ 'agent/profiles/work/config.yaml': 'model: x\n' });
    await voice.changeAgent('work', { promote_after_ms: 5 });
    expect(await read('agent/profiles/work/config.yaml')).toContain('promote_after_ms: 5');
    expect(await voice.agent('work')).toMatchObject({ configScope: 'profile', settings: { promoteAfterMs: 5 } });
    await expect(voice.changeAgent('missing', { promote_after_ms: 5 })).rejects.toMatchObject({ kind: 'not-found' });
  });

  it('two at the same time both land', async () => {
    const { voice } = await setUp();
    await Promise.all([
      voice.changeAgent(null, { promote_after_ms: 5 }),
      voice.changeRealtime(null, { voice: 'ara' }),
      voice.changeAgent(null, { progress_repeat_ms: 6 }),
    ]);
    expect((await voice.agent(null)).settings).toMatchObject({ promoteAfterMs: 5, voice: 'ara', progressRepeatMs: 6 });
  });

  it('05 §14: the lab still knows none of the further keys', async () => {
    const { voice } = await setUp();
    for (const { names } of Object.values(realtimeAgent.fields).slice(5)) {
      await expect(voice.changeRealtime(null, { [names[0]]: 1 })).rejects.toThrow(`unsupported: ${names[0]}`);
    }
  });
});

describe('06 §9: headers from the configuration', () => {
  it('go only to the provider that they are nested for', async () => {
    const { voice } = await setUp({
      ...relay('{provider: openai, openai: {extra_headers: {OpenAI-Organization: org, X-Own: relay}}}'),
      'agent/profiles/work/config.yaml':
        'realtime_voice: {provider: xai, openai_realtime: {extra_headers: {x-own: work}}}',
    });
    const { settings, headersFor } = await voice.agent('work');
    expect(settings.provider).toBe('xai_realtime');
    expect(headersFor('xai_realtime')).toEqual({});
    expect(headersFor('openai_realtime')).toEqual({ 'openai-organization': 'org', 'x-own': 'work' });
  });

  it('cannot replace those of the relay, or break the request', () => {
    const given = {
      Authorization: 'Bearer other',
      Host: 'x',
      'Sec-WebSocket-Protocol': 'x',
      'x y': 'z',
      'x-break': 'a\r\nb: c',
      'x-long': 'x'.repeat(1025),
      'x-list': [1, 2],
      'x-empty': '',
      'x-good': 7,
    };
    expect(extraHeaders([{ extra_headers: given }])).toEqual({ 'x-good': '7' });
    expect(extraHeaders([{}, { extra_headers: 'x' }])).toEqual({});
    const many = Object.fromEntries(Array.from({ length: 40 }, (_, at) => [`x-${at}`, 'v']));
    expect(Object.keys(extraHeaders([{ extra_headers: many }]))).toHaveLength(16);
  });
});

describe('optional settings of a provider', () => {
  it('are those that files nest for it, the profile after the relay, without what makes no sense', async () => {
    const { voice } = await setUp({
      ...relay('{openai: {noise_reduction: near_field, speed: 1.2, truncation: auto, transcription_language: German}}'),
      'agent/profiles/work/config.yaml': 'realtime_voice: {openai_realtime: {truncation: 0.8, speed: "1.1"}}',
    });
    const { tuningFor } = await voice.agent('work');
    expect(tuningFor('openai_realtime')).toEqual({ noiseReduction: 'near_field', speed: 1.1, truncation: 0.8 });
    expect(tuningFor('xai_realtime')).toEqual({});
  });

  it.each([
    ['noise_reduction', ['near_field', 'far_field'], ['far', 1, '']],
    ['transcription_language', ['de', 'pt-BR', 'yue'], ['german', 'd', 5, 'de; x']],
    ['speed', [0.25, 1.5, '1'], [0.2, 1.6, 'fast', '', Number.NaN]],
    ['truncation', ['auto', 'disabled', 0.5, 1], [0, 1.1, 'never', true]],
  ])('%s', (name, good, bad) => {
    const invalid: string[] = [];
    for (const value of good)
      expect(Object.values(tuningIn([{ [name]: value }], (n) => invalid.push(n)))).toHaveLength(1);
    expect(invalid).toEqual([]);
    for (const value of bad) expect(tuningIn([{ [name]: value }], (n) => invalid.push(n))).toEqual({});
    expect(invalid).toEqual(bad.map(() => name));
  });

  it.each(['noise_reduction', 'transcription_language', 'speed', 'truncation'])('%s is no mapping or list', (name) => {
    const invalid: string[] = [];
    for (const value of [{ toString: null }, [[{ valueOf: 1, toString: 1 }]], {}, [], [0.5]])
      expect(tuningIn([{ [name]: value }], (n) => invalid.push(n))).toEqual({});
    expect(invalid).toHaveLength(5);
  });
});

it('06 §2.1: debug_audio_tap', () => {
  expect(keepsAudio({ debug_audio_tap: { toString: null } })).toBe(false);
  expect([{}, { debug_audio_tap: true }, { debug_audio_tap: 'on' }, { debug_audio_tap: 'x' }].map(keepsAudio)).toEqual([
    false,
    true,
    true,
    false,
  ]);
});

it('06 §2.2: the timers, and the hints of long tools', () => {
  const read = (env: Record<string, string>) => readConfig(env, { home: '/h', agentHome: '/h/a' }).config;
  expect(read({})).toMatchObject({
    voiceResumeTtlMs: 30_000,
    voiceBackgroundDetachedMaxMs: 360_000,
    voiceBackgroundRunMaxMs: 300_000,
    voiceUnattachedTtlMs: 120_000,
    voiceProgressIntervalMs: 5000,
    voicePlaybackDrainMs: 2500,
    voiceRunLeadMs: 750,
    voiceFloorWaitMs: 12_000,
    voiceInputQuietMs: 1500,
    voiceDeliveryConfirmMs: 30_000,
    voiceLongToolQuickFinishMs: 1500,
    voiceTranscriptWaitMs: 8000,
    voiceLongToolHints: ['cron', 'desktop_', 'browser', 'execute_code', 'terminal', 'spawn'],
  });
  for (const bad of ['0', '-1', 'soon', '']) expect(read({ RELAY_VOICE_RUN_LEAD_MS: bad }).voiceRunLeadMs).toBe(750);
  expect(read({ RELAY_VOICE_LONG_TOOL_HINTS: '' }).voiceLongToolHints).toEqual([]);
  expect(read({ RELAY_VOICE_LONG_TOOL_HINTS: ' Deploy,,x_ ' }).voiceLongToolHints).toEqual(['deploy', 'x_']);
});
