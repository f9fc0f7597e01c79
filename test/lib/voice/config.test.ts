import { chmod, mkdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import { readConfig } from '../../../lib/config.ts';
import { createVoiceConfig } from '../../../lib/voice/config.ts';
import { createVoiceScopes } from '../../../lib/voice/scope.ts';
import { createTestHost } from '../../support/host.ts';
import { createTestLog } from '../../support/log.ts';
import { runs } from '../../support/runs.ts';
import { temporaryDirectory, writeFiles } from '../../support/temp.ts';

interface Options {
  files?: Record<string, string>;
  env?: Record<string, string>;
}

/** Configuration below a new home: `agent/` is the agent's, `relay/` the relay's own. */
async function setUp({ files = {}, env = {} }: Options = {}) {
  const home = await temporaryDirectory(files);
  await mkdir(join(home, 'agent'), { recursive: true });
  const agentHome = join(home, 'agent');
  const log = createTestLog();
  const start = (more: Record<string, string> = {}) => {
    const { config } = readConfig({ SVC_RELAY_HOME: join(home, 'relay'), ...env, ...more }, { home, agentHome });
    const host = createTestHost({ agentHome, env: {} });
    onTestFinished(() => host.yaml.close());
    return createVoiceConfig({ host, config, scopes: createVoiceScopes(host, config), log });
  };
  return { home, start, log, voice: start(), read: (name: string) => readFile(join(home, name), 'utf8') };
}

it('05 §18: voice output has the tts section of its profile, else of the root', async () => {
  const { voice } = await setUp({
    files: {
      'agent/config.yaml': 'tts: {provider: openai, base_url: "http://127.0.0.1:1/v1"}\n',
      'agent/profiles/work/config.yaml': 'tts: {provider: openai, base_url: "http://127.0.0.1:2/v1"}\n',
    },
  });
  expect((await voice.output(null)).servers.tts?.base_url).toBe('http://127.0.0.1:1/v1');
  expect((await voice.output('work')).servers.tts?.base_url).toBe('http://127.0.0.1:2/v1');
});

it('05 §18: model and voice of a provider’s section hold for streaming, unless the settings name others', async () => {
  const { voice } = await setUp({
    files: {
      'agent/config.yaml':
        'tts: {openai: {model: kokoro, voice: af}, local: {base_url: "http://127.0.0.1:1", voice: own}}\n',
      'relay/config.yaml': [
        'voice_output: {provider: openai, voice: nova}',
        'realtime_voice: {provider: local}',
        'realtime: {local: {base_url: "http://127.0.0.1:2/v1", model: home}}',
      ].join('\n'),
      'agent/profiles/work/config.yaml': 'voice_output: {provider: local}\nrealtime: {local: {voice: work}}\n',
    },
  });
  const output = await voice.output(null);
  expect(output.settings).toMatchObject({ provider: 'openai_tts', model: 'kokoro', voice: 'nova' });
  // A section of `tts:` is that of the root, where the profile has none.
  expect((await voice.output('work')).settings).toMatchObject({ provider: 'local_tts', model: 'tts-1', voice: 'own' });
  for (const read of [voice.realtime, voice.agent]) {
    expect((await read(null)).settings).toMatchObject({ provider: 'local_realtime', model: 'home', voice: 'alloy' });
    expect((await read('work')).servers.realtime).toEqual({
      local: { base_url: 'http://127.0.0.1:2/v1', model: 'home', voice: 'work' },
    });
  }
});

const word = fc.constantFrom('a', 'b', 'c', 'd');

const DEFAULTS = {
  enabled: true,
  provider: 'xai_tts',
  model: 'xai-tts',
  voice: 'eve',
  sampleRate: 24_000,
  language: 'en',
  codec: 'pcm',
  optimizeStreamingLatency: 1,
  textNormalization: false,
  autoSpeechTags: false,
  fallbackEnabled: true,
};

describe('which file applies (contract 05 §4)', () => {
  const files = {
    'agent/config.yaml': 'tts: {provider: openai, voice: root}\nvoice_output: {voice: from-root}\n',
    'agent/profiles/work/config.yaml': 'tts: {provider: xai}\nvoice_output: {voice: from-work}\n',
    'agent/profiles/bare/notes.txt': '',
    'agent/profiles/empty/config.yaml': 'model: x\n',
    'agent/profiles/broken/config.yaml': 'tts: [unclosed\n',
    'outside/config.yaml': 'tts: {provider: outside}\nvoice_output: {voice: outside}\n',
  };
  const facts = async (voice: Awaited<ReturnType<typeof setUp>>['voice'], profile: string | null) => {
    const [basic, output] = await Promise.all([voice.basic(profile), voice.output(profile)]);
    return [
      [basic.configScope, basic.fallbackToGlobal, basic.tts.provider],
      [output.configScope, output.fallbackToGlobal, output.settings.voice],
    ];
  };

  it('no profile: the root for the basic path, the relay’s own file for the rest', async () => {
    const { voice, home } = await setUp({ files });
    expect(await facts(voice, null)).toEqual([
      ['global', false, 'openai'],
      ['relay', false, 'eve'],
    ]);
    expect((await voice.basic(null)).configPath).toBeNull();
    expect((await voice.output(null)).configPath).toBe(join(home, 'relay/config.yaml'));
  });

  it('`default` and a profile with a file are scopes of their own', async () => {
    const { voice, home } = await setUp({ files });
    expect(await facts(voice, 'default')).toEqual([
      ['profile', false, 'openai'],
      ['profile', false, 'from-root'],
    ]);
    expect(await facts(voice, 'work')).toEqual([
      ['profile', false, 'xai'],
      ['profile', false, 'from-work'],
    ]);
    const path = join(home, 'agent/profiles/work/config.yaml');
    expect([(await voice.basic('work')).configPath, (await voice.output('work')).configPath]).toEqual([path, path]);
  });

  it.each(['bare', 'empty', 'broken', 'nobody', '.', '..', '../profiles/work', 'work/', 'wo\0rk', 'a\\b', '.hidden'])(
    'profile %j falls back',
    async (profile) => {
      const { voice, home } = await setUp({ files });
      expect(await facts(voice, profile)).toEqual([
        ['global', true, 'openai'],
        ['relay', true, 'eve'],
      ]);
      expect((await voice.output(profile)).configPath).toBe(join(home, 'relay/config.yaml'));
    },
  );

  it('a link that leads out of profiles/ is no profile, one within it is', async () => {
    const { voice, home } = await setUp({ files });
    const profiles = join(home, 'agent/profiles');
    await symlink(join(home, 'outside'), join(profiles, 'linked'));
    await mkdir(join(profiles, 'file-link'));
    await symlink(join(home, 'outside/config.yaml'), join(profiles, 'file-link/config.yaml'));
    await mkdir(join(profiles, 'shared'));
    await symlink(join(profiles, 'work/config.yaml'), join(profiles, 'shared/config.yaml'));
    for (const profile of ['linked', 'file-link']) {
      expect((await voice.basic(profile)).configScope).toBe('global');
      expect((await voice.output(profile)).fallbackToGlobal).toBe(true);
      await expect(voice.changeOutput(profile, { voice: 'x' })).rejects.toThrow(profile);
    }
    expect((await voice.output('shared')).settings.voice).toBe('from-work');
    expect(await readFile(join(home, 'outside/config.yaml'), 'utf8')).toBe(files['outside/config.yaml']);
  });

  it('whatever name a client gives: only a profile’s own file is read or written', async () => {
    const secret = 'outside: secret\nvoice_output: {voice: outside}\ntts: {provider: outside}\n';
    const { voice, home } = await setUp({ files: { ...files, 'agent/profiles.yaml': secret, 'config.yaml': secret } });
    const part = fc.constantFrom(
      '..',
      '.',
      'work',
      'profiles',
      'outside',
      'agent',
      '',
      '%2e%2e',
      '\0',
      'config.yaml',
      '~',
    );
    const separator = fc.constantFrom('/', '\\', '//', '%2f', '');
    const names = fc.oneof(
      fc.string({ maxLength: 20 }),
      fc.array(fc.tuple(separator, part), { minLength: 1, maxLength: 6 }).map((parts) => parts.flat().join('')),
      fc.constant(`${home}/outside`),
    );
    await fc.assert(
      fc.asyncProperty(names, async (name) => {
        fc.pre(!['work', 'default', 'empty', 'broken'].includes(name));
        const [basic, output] = await Promise.all([voice.basic(name), voice.output(name)]);
        expect([basic.configScope, basic.fallbackToGlobal, basic.tts.provider]).toEqual(['global', true, 'openai']);
        expect([output.configScope, output.fallbackToGlobal, output.settings.voice]).toEqual(['relay', true, 'eve']);
        await expect(voice.changeOutput(name, { voice: 'x' })).rejects.toMatchObject({ kind: 'not-found' });
      }),
      { numRuns: runs(150) },
    );
    expect(await readFile(join(home, 'config.yaml'), 'utf8')).toBe(secret);
  });

  it('a profile with one of `tts` and `stt` takes the other from the root', async () => {
    const { voice } = await setUp({
      files: {
        'agent/config.yaml': 'tts: {provider: openai}\nstt: {provider: groq}\n',
        'agent/profiles/work/config.yaml': 'stt: {provider: xai}\n',
      },
    });
    expect(await voice.basic('work')).toMatchObject({
      configScope: 'profile',
      tts: { provider: 'openai' },
      stt: { provider: 'xai' },
    });
  });
});

describe('settings of voice output (contract 05 §4)', () => {
  const settingsOf = async (section: string, options: Options = {}) => {
    const { voice } = await setUp({ ...options, files: { 'relay/config.yaml': section, ...options.files } });
    return (await voice.output(null)).settings;
  };

  it('the defaults, also for a file that makes no sense', async () => {
    for (const text of ['', 'voice_output: [a]\n', 'voice_output: x\n', 'voice_output: {', '- a\n', '\xff\xfe']) {
      expect(await settingsOf(text)).toEqual(DEFAULTS);
    }
  });

  it('every key, its synonyms, and values written as text', async () => {
    const text = `voice_output:
  enabled: "off"
  provider: Open-AI
  model_id: m
  voice_id: v
  sample_rate: "16000"
  language: de
  codec: WAV
  optimize_latency: 0
  text_normalization: yes
  auto_speech_tags: "On"
  fallback_enabled: 0
`;
    expect(await settingsOf(text.replace('Open-AI', 'OPENAI'))).toEqual({
      enabled: false,
      provider: 'openai_tts',
      model: 'm',
      voice: 'v',
      sampleRate: 16_000,
      language: 'de',
      codec: 'wav',
      optimizeStreamingLatency: 0,
      textNormalization: true,
      autoSpeechTags: true,
      fallbackEnabled: false,
    });
    expect((await settingsOf(text)).provider).toBe('Open-AI');
  });

  it('values that make no sense do not count', async () => {
    const text =
      'voice_output: {enabled: maybe, sample_rate: 7, optimize_streaming_latency: 5, voice: [a], model: ""}\n';
    expect(await settingsOf(text)).toEqual(DEFAULTS);
  });

  it('keys nested under the provider, below the section’s own', async () => {
    const text =
      'voice_output: {provider: openai, sample_rate: 24000, voice: flat, openai: {model: m, voice: v, sample_rate: 8000}, xai: {model: no}}\n';
    expect(await settingsOf(text)).toMatchObject({
      provider: 'openai_tts',
      model: 'm',
      voice: 'flat',
      sampleRate: 24_000,
    });
    expect(await settingsOf('voice_output: {provider: openai_tts, openai: {model: m}}\n')).toMatchObject({
      model: 'm',
    });
  });

  it('every key: the profile’s own, the profile’s nested, the relay’s, the default, in that order', async () => {
    const { voice, home } = await setUp({ files: { 'relay/x': '', 'agent/profiles/work/x': '' } });
    const levels = fc.record(
      { model: word, voice: word, language: word, codec: fc.constantFrom('wav', 'mp3') },
      { requiredKeys: [] },
    );
    await fc.assert(
      fc.asyncProperty(levels, levels, levels, levels, async (flat, nested, relay, relayNested) => {
        const section = (own: object, below: object) =>
          JSON.stringify({ voice_output: { provider: 'openai', other: { model: 'no' }, openai: below, ...own } });
        await writeFiles(home, {
          'agent/profiles/work/config.yaml': section(flat, nested),
          'relay/config.yaml': section(relay, relayNested),
        });
        const defaults = { ...DEFAULTS, provider: 'openai_tts', model: 'gpt-4o-mini-tts', voice: 'coral' };
        expect((await voice.output(null)).settings).toEqual({ ...defaults, ...relayNested, ...relay });
        expect((await voice.output('work')).settings).toEqual({
          ...defaults,
          ...relayNested,
          ...relay,
          ...nested,
          ...flat,
        });
      }),
      { numRuns: runs(100) },
    );
  });

  it('a layer that names another provider takes its defaults', async () => {
    expect(await settingsOf('voice_output: {provider: stub}\n')).toMatchObject({ model: 'stub-tone', voice: 'sine' });
    const env = { RELAY_VOICE_OUTPUT_PROVIDER: 'grok', RELAY_VOICE_OUTPUT_VOICE: 'rex' };
    expect(await settingsOf('voice_output: {provider: stub, voice: x}\n', { env })).toMatchObject({
      provider: 'xai_tts',
      model: 'xai-tts',
      voice: 'rex',
    });
    const files = { 'agent/profiles/work/config.yaml': 'voice_output: {provider: openai}\n' };
    const { voice } = await setUp({
      files: { ...files, 'relay/config.yaml': 'voice_output: {model: x, language: de}\n' },
    });
    expect((await voice.output('work')).settings).toEqual({
      ...DEFAULTS,
      provider: 'openai_tts',
      model: 'gpt-4o-mini-tts',
      voice: 'coral',
      language: 'de',
    });
  });

  it('variables override the relay’s file, and a profile overrides both', async () => {
    const env = {
      RELAY_VOICE_OUTPUT_ENABLED: 'off',
      RELAY_VOICE_OUTPUT_SAMPLE_RATE: '16000',
      RELAY_VOICE_OUTPUT_LANGUAGE: ' ',
      RELAY_VOICE_OUTPUT_OPTIMIZE_LATENCY: '7',
    };
    const files = {
      'relay/config.yaml': 'voice_output: {enabled: true, sample_rate: 48000, language: de}\n',
      'agent/profiles/work/config.yaml': 'voice_output: {sample_rate: 22050}\n',
    };
    const { voice } = await setUp({ files, env });
    expect((await voice.output(null)).settings).toEqual({
      ...DEFAULTS,
      enabled: false,
      sampleRate: 16_000,
      language: 'de',
    });
    expect((await voice.output('work')).settings).toMatchObject({ enabled: false, sampleRate: 22_050 });
  });

  it('without `voice_output:`, a profile’s `tts:` counts where its provider can stream', async () => {
    const of = async (tts: string) => {
      const { voice } = await setUp({ files: { 'agent/profiles/work/config.yaml': tts } });
      return voice.output('work');
    };
    const own = await of(
      'tts: {provider: openai, enabled: false, language: fr, openai: {voice: nova, model: tts-1}}\n',
    );
    expect(own).toMatchObject({ configScope: 'profile', fallbackToGlobal: false });
    expect(own.settings).toEqual({ ...DEFAULTS, provider: 'openai_tts', model: 'tts-1', voice: 'nova' });
    for (const tts of ['tts: {provider: gemini, voice: Kore}\n', 'tts: {provider: openai_realtime}\n', 'tts: {}\n']) {
      expect(await of(tts)).toMatchObject({ configScope: 'relay', fallbackToGlobal: true, settings: DEFAULTS });
    }
    expect((await of('voice_output: {voice: x}\ntts: {provider: openai}\n')).settings.provider).toBe('xai_tts');
  });

  it('directory of the recordings: the variable, the file, the default', async () => {
    const files = { 'relay/config.yaml': 'voice_output: {run_dir: ~/runs}\nrealtime_voice: {run_dir: relative}\n' };
    const { voice, home, start } = await setUp({ files });
    expect((await voice.output(null)).runDir).toBe(join(home, 'runs'));
    expect((await voice.realtime(null)).runDir).toBe(join(home, 'relay/realtime-voice-runs'));
    expect((await start({ RELAY_VOICE_OUTPUT_RUN_DIR: '/env' }).output(null)).runDir).toBe('/env');
  });
});

describe('settings of realtime voice (contract 05 §4)', () => {
  it('defaults, aliases, and the keys of the realtime agent beside them', async () => {
    const { voice, start } = await setUp();
    expect((await voice.realtime(null)).settings).toEqual({
      enabled: true,
      provider: 'xai_realtime',
      model: 'grok-voice-latest',
      voice: 'eve',
      sampleRate: 24_000,
    });
    const { voice: other } = await setUp({
      files: {
        'relay/config.yaml': 'realtime_voice: {provider: openai, promote_after_ms: 5, max_background_runs: 2}\n',
        'agent/profiles/work/config.yaml': 'realtime_voice: {promote_after_ms: 9}\n',
      },
    });
    expect((await other.realtime(null)).settings).toMatchObject({ provider: 'openai_realtime', voice: 'marin' });
    expect((await other.realtime('work')).section).toMatchObject({ promote_after_ms: 9, max_background_runs: 2 });
    expect((await start({ RELAY_REALTIME_VOICE_PROVIDER: 'stub' }).realtime(null)).settings.model).toBe('stub-tone');
  });

  it('the token store of xAI: variable, file, default; a profile may name another', async () => {
    const { voice, home, start } = await setUp();
    expect(await voice.oauthPath()).toBe(join(home, 'relay/auth/xai-oauth.json'));
    await writeFiles(home, {
      'relay/config.yaml': 'realtime_voice: {oauth_path: ~/own.json}\n',
      'agent/profiles/work/config.yaml': 'realtime_voice: {voice: rex, xai_oauth_path: /work.json}\n',
    });
    expect(await voice.oauthPath()).toBe(join(home, 'own.json'));
    expect(await start({ RELAY_REALTIME_VOICE_XAI_OAUTH_PATH: '/env.json' }).oauthPath()).toBe('/env.json');
    expect((await voice.realtime('work')).oauthPath).toBe('/work.json');
    expect((await voice.output('work')).oauthPath).toBe('/work.json');
    expect((await voice.realtime(null)).oauthPath).toBeUndefined();
  });
});

describe('changing settings (contract 05 §10)', () => {
  const TEXT = `# kept
voice_output:   # output
    provider: xai   # alias
    voice: rex
    run_dir: /runs
tts: {provider: openai, api_key: secret}
realtime_voice:
    voice: ara
    promotion_enabled: yes # agent
`;

  it('edits the relay’s file in place, at once, and only the keys given', async () => {
    const { voice, home, read, start } = await setUp({ files: { 'relay/config.yaml': TEXT } });
    await chmod(join(home, 'relay/config.yaml'), 0o640);
    const changed = await voice.changeOutput(null, { voice: ' sal ', enabled: 'no', profile: null });
    expect(changed.updated).toEqual(['enabled', 'voice']);
    expect(changed.configPath).toBe(join(home, 'relay/config.yaml'));
    expect(changed.effective.settings).toMatchObject({ voice: 'sal', enabled: false });
    expect(await read('relay/config.yaml')).toBe(
      TEXT.replace('voice: rex', 'voice: sal').replace('/runs\n', '/runs\n    enabled: false\n'),
    );
    expect((await stat(join(home, 'relay/config.yaml'))).mode & 0o777).toBe(0o640);
    expect((await start().output(null)).settings.voice).toBe('sal');
  });

  it('both sections of one file, at the same time', async () => {
    const { voice, read } = await setUp({ files: { 'relay/config.yaml': TEXT } });
    const output = { sample_rate: 16_000, language: 'de', codec: 'wav', voice: 'leo', enabled: false };
    const realtime = { sample_rate: 8000, voice: 'sal', model: 'm', enabled: false };
    await Promise.all([
      ...Object.entries(output).map(([name, value]) => voice.changeOutput(null, { [name]: value })),
      ...Object.entries(realtime).map(([name, value]) => voice.changeRealtime(null, { [name]: value })),
    ]);
    const { settings, section } = await voice.realtime(null);
    expect(settings).toMatchObject({ sampleRate: 8000, voice: 'sal', model: 'm', enabled: false });
    expect(section.promotion_enabled).toBe(true);
    expect((await voice.output(null)).settings).toMatchObject({
      sampleRate: 16_000,
      language: 'de',
      codec: 'wav',
      voice: 'leo',
      enabled: false,
    });
    expect(await read('relay/config.yaml')).toContain('promotion_enabled: yes # agent\n');
  });

  it('creates the relay’s file for its user only', async () => {
    const { voice, home, read } = await setUp();
    await voice.changeRealtime(null, { provider: 'stub' });
    expect(await read('relay/config.yaml')).toBe('realtime_voice:\n  provider: stub\n');
    expect((await stat(join(home, 'relay/config.yaml'))).mode & 0o777).toBe(0o600);
    expect((await voice.realtime(null)).settings).toMatchObject({ model: 'stub-tone', voice: 'sine' });
  });

  it('another provider replaces the model and voice that are written for the former one', async () => {
    const text = 'voice_output:\n  provider: xai_tts\n  model: old\n  voice_id: old\n  openai: {voice: nova}\n';
    const { voice, read } = await setUp({ files: { 'relay/config.yaml': text } });
    const changed = await voice.changeOutput(null, { provider: 'openai_tts' });
    expect(changed.updated).toEqual(['provider']);
    expect(changed.effective.settings).toMatchObject({ model: 'gpt-4o-mini-tts', voice: 'nova' });
    expect(await read('relay/config.yaml')).toBe(
      'voice_output:\n  provider: openai_tts\n  model: gpt-4o-mini-tts\n  voice_id: nova\n  openai: {voice: nova}\n',
    );
    await voice.changeOutput(null, { provider: 'stub', voice: 'manual' });
    expect((await voice.output(null)).settings).toMatchObject({ model: 'stub-tone', voice: 'manual' });
  });

  it('comes before the variables, which win again after a restart', async () => {
    const env = {
      RELAY_VOICE_OUTPUT_PROVIDER: 'openai',
      RELAY_VOICE_OUTPUT_MODEL: 'tts-1',
      RELAY_VOICE_OUTPUT_LANGUAGE: 'fr',
    };
    const { voice, start } = await setUp({ env });
    expect((await voice.output(null)).settings).toMatchObject({
      provider: 'openai_tts',
      model: 'tts-1',
      language: 'fr',
    });
    await voice.changeOutput(null, { model: 'tts-1-hd' });
    expect((await voice.output(null)).settings).toMatchObject({ provider: 'openai_tts', model: 'tts-1-hd' });
    await voice.changeOutput(null, { provider: 'stub' });
    expect((await voice.output(null)).settings).toMatchObject({
      provider: 'stub',
      model: 'stub-tone',
      voice: 'sine',
      language: 'fr',
    });
    expect((await start().output(null)).settings).toMatchObject({ provider: 'openai_tts', model: 'tts-1' });
  });

  it('writes the section of a profile, and only where it has a file', async () => {
    const { voice, home, read } = await setUp({
      files: { 'agent/profiles/work/config.yaml': '# mine\nmodel: x\n', 'agent/profiles/bare/notes.txt': '' },
    });
    const changed = await voice.changeOutput('work', { voice: 'leo' });
    expect(changed.configPath).toBe(join(home, 'agent/profiles/work/config.yaml'));
    expect(changed.effective).toMatchObject({ configScope: 'profile', fallbackToGlobal: false });
    expect(await read('agent/profiles/work/config.yaml')).toBe('# mine\nmodel: x\nvoice_output:\n  voice: leo\n');
    expect((await voice.output(null)).settings.voice).toBe('eve');
    for (const profile of ['default', 'bare', 'nobody', '../work']) {
      const failure = voice.changeOutput(profile, { voice: 'x' });
      await expect(failure).rejects.toMatchObject({ kind: 'not-found', message: expect.stringContaining(profile) });
    }
    await writeFiles(home, { 'agent/config.yaml': '' });
    await voice.changeRealtime('default', { voice: 'x' });
    expect(await read('agent/config.yaml')).toBe('realtime_voice:\n  voice: x\n');
  });

  it('a link stays a link', async () => {
    const { voice, home, read } = await setUp({ files: { 'real.yaml': TEXT, 'relay/x': '' } });
    await symlink(join(home, 'real.yaml'), join(home, 'relay/config.yaml'));
    await voice.changeOutput(null, { voice: 'sal' });
    expect(await read('real.yaml')).toBe(TEXT.replace('voice: rex', 'voice: sal'));
  });

  it.each([
    'voice_output: [a\n',
    '- a\n',
    'voice_output: text\n',
    'a: &a {x: 1}\nvoice_output: *a\n',
    `${'#'.repeat(300_000)}`,
  ])('a file that cannot be edited stays as it is (%#)', async (text) => {
    const { voice, read } = await setUp({ files: { 'relay/config.yaml': text } });
    await expect(voice.changeOutput(null, { voice: 'x' })).rejects.toMatchObject({ kind: 'internal' });
    expect(await read('relay/config.yaml')).toBe(text);
  });

  it('bytes that are not UTF-8 stay as they are', async () => {
    const { voice, home } = await setUp({ files: { 'relay/x': '' } });
    const bytes = Buffer.from('voice_output: {voice: \xe9}\n', 'latin1');
    await writeFile(join(home, 'relay/config.yaml'), bytes);
    await expect(voice.changeOutput(null, { voice: 'x' })).rejects.toMatchObject({ kind: 'internal' });
    expect(await readFile(join(home, 'relay/config.yaml'))).toEqual(bytes);
  });

  const BAD: [Record<string, unknown>, RegExp][] = [
    [{}, /nothing to change/],
    [{ profile: 'work' }, /nothing to change/],
    [{ voice: 'x', xai_oauth_path: '/x', 'a\nb': 1 }, /unsupported: xai_oauth_path, ab$/],
    [{ enabled: 'maybe' }, /enabled/],
    [{ enabled: '' }, /enabled/],
    [{ enabled: 1 }, /enabled/],
    [{ provider: 'nobody' }, /unknown voice provider/],
    [{ provider: 'constructor' }, /unknown voice provider/],
    [{ provider: 'xai_realtime' }, /not a streaming TTS renderer/],
    [{ provider: 'x'.repeat(81) }, /provider/],
    [{ model: ' ' }, /model/],
    [{ model: 'm'.repeat(161) }, /model/],
    [{ voice: null }, /voice/],
    [{ voice: 'a\nb' }, /voice/],
    [{ sample_rate: 7999 }, /sample_rate/],
    [{ sample_rate: 96_001 }, /sample_rate/],
    [{ sample_rate: 16_000.5 }, /sample_rate/],
    [{ sample_rate: '16000' }, /sample_rate/],
    [{ language: 'x'.repeat(25) }, /language/],
    [{ codec: 'opus' }, /codec/],
    [{ optimize_streaming_latency: 2 }, /optimize_streaming_latency/],
  ];
  it.each(BAD)('refuses %j and writes nothing', async (body, message) => {
    const { voice, home } = await setUp();
    await expect(voice.changeOutput(null, body)).rejects.toMatchObject({
      kind: 'invalid',
      message: expect.stringMatching(message),
    });
    await expect(stat(join(home, 'relay'))).rejects.toThrow('ENOENT');
  });

  it('realtime voice takes any provider of the registry, and fewer settings', async () => {
    const { voice } = await setUp();
    for (const provider of ['stub', 'openai_tts', 'xai_realtime']) {
      expect((await voice.changeRealtime(null, { provider })).effective.settings.provider).toBe(provider);
    }
    for (const field of ['language', 'xai_oauth_path', 'promotion_enabled', 'run_dir']) {
      await expect(voice.changeRealtime(null, { [field]: 'x' })).rejects.toThrow(`unsupported: ${field}`);
    }
  });

  it('without a host there are the defaults and the variables, and nothing to change', async () => {
    const { config } = readConfig({ RELAY_VOICE_OUTPUT_PROVIDER: 'stub' }, { home: '/', agentHome: '/' });
    const voice = createVoiceConfig({ config, scopes: createVoiceScopes(undefined, config), log: createTestLog() });
    for (const profile of [null, 'default', 'work']) {
      expect(await voice.output(profile)).toMatchObject({
        configPath: null,
        configScope: 'relay',
        fallbackToGlobal: profile !== null,
        settings: { provider: 'stub', model: 'stub-tone' },
      });
      await expect(voice.changeOutput(profile, { voice: 'x' })).rejects.toMatchObject({ kind: 'unsupported' });
    }
  });
});
