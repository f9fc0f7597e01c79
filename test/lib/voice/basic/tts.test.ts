import { execFileSync } from 'node:child_process';
import { symlink, writeFile } from 'node:fs/promises';
import type { SpeechCreateParams } from 'openai/resources/audio/speech';
import { describe, expect, it } from 'vitest';
import type { Mapping } from '../../../../lib/kit/yaml.ts';
import { wavFile } from '../../../../lib/voice/streaming/wav.ts';
import { withSpeechTags } from '../../../../lib/voice/streaming/xai-tts.ts';
import { createTestClock } from '../../../support/clock.ts';
import { mp3Frames, sinePcm } from '../../../support/voice/audio.ts';
import { startProvider } from '../../../support/voice/provider.ts';
import { basicVoice } from './support.ts';

const MP3 = Buffer.from('fff3 mp3');
const TEXT = 'Hello there.';
const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64');

/** Request that each provider expects, and its answer. */
interface Case {
  provider: string;
  key: string;
  baseVariable: string;
  /** Appended to the provider's URL in the variable. */
  base: string;
  path: string;
  header: [string, string];
  /** Body without any setting. */
  body: Record<string, unknown>;
  reply?: unknown;
  settings: Mapping;
  /** Members of the body that the settings change. */
  changed: Record<string, unknown>;
  changedPath?: string;
}

const openai = (provider: string, key: string, baseVariable: string): Case => ({
  provider,
  key,
  baseVariable,
  base: '/v1/',
  path: '/v1/audio/speech',
  header: ['authorization', 'Bearer the-key'],
  body: { model: 'gpt-4o-mini-tts', voice: 'alloy', input: TEXT, response_format: 'mp3' } satisfies SpeechCreateParams,
  settings: { model: 'tts-1', voice: 'nova', speed: 9 },
  changed: { model: 'tts-1', voice: 'nova', speed: 4 } satisfies Partial<SpeechCreateParams>,
});

const CASES: Case[] = [
  openai('openai', 'VOICE_TOOLS_OPENAI_KEY', 'OPENAI_BASE_URL'),
  openai('deepinfra', 'DEEPINFRA_API_KEY', 'DEEPINFRA_BASE_URL'),
  {
    provider: 'elevenlabs',
    key: 'ELEVENLABS_API_KEY',
    baseVariable: 'ELEVENLABS_BASE_URL',
    base: '',
    path: '/v1/text-to-speech/pNInz6obpgDQGcFmaJgB?output_format=mp3_44100_128',
    header: ['xi-api-key', 'the-key'],
    body: { text: TEXT, model_id: 'eleven_multilingual_v2' },
    settings: { model_id: 'eleven_turbo_v2_5', voice_id: 'voice/9?a' },
    changed: { model_id: 'eleven_turbo_v2_5' },
    changedPath: '/v1/text-to-speech/voice%2F9%3Fa?output_format=mp3_44100_128',
  },
  {
    provider: 'xai',
    key: 'GROK_API_KEY',
    baseVariable: 'XAI_BASE_URL',
    base: '/v1',
    path: '/v1/tts',
    header: ['authorization', 'Bearer the-key'],
    body: { text: TEXT, voice_id: 'eve', language: 'en' },
    settings: {
      voice_id: 'ara',
      language: 'de',
      sample_rate: 44_100,
      speed: 0.1,
      optimize_streaming_latency: 7,
      text_normalization: true,
    },
    changed: {
      voice_id: 'ara',
      language: 'de',
      output_format: { codec: 'mp3', sample_rate: 44_100, bit_rate: 128_000 },
      speed: 0.7,
      optimize_streaming_latency: 2,
      text_normalization: true,
    },
  },
  {
    provider: 'mistral',
    key: 'MISTRAL_API_KEY',
    baseVariable: 'MISTRAL_BASE_URL',
    base: '/',
    path: '/v1/audio/speech',
    header: ['authorization', 'Bearer the-key'],
    body: { model: 'voxtral-mini-tts-2603', input: TEXT, response_format: 'mp3' },
    reply: { audio_data: base64(MP3) },
    settings: { voice_id: 'nora', model: 'voxtral-x' },
    changed: { voice_id: 'nora', model: 'voxtral-x' },
  },
];

describe.each(CASES)('basic speech by $provider (contract 05 §8)', (row) => {
  async function started(section: Mapping = { provider: row.provider }) {
    const provider = await startProvider();
    provider.onCall((call) => call.answer(200, row.reply ?? MP3, row.reply ? {} : { 'content-type': 'audio/mpeg' }));
    const env = { [row.key]: 'the-key', [row.baseVariable]: provider.url + row.base };
    return { provider, ...(await basicVoice({ env, config: { tts: section } })) };
  }

  it('sends the request of the table, byte for byte', async () => {
    const { provider, speak } = await started();
    expect(await speak({ text: TEXT })).toEqual({ audio: new Uint8Array(MP3), provider: row.provider });
    const [call] = provider.calls;
    expect(provider.calls).toHaveLength(1);
    expect(`${call?.method} ${call?.path}${call?.query.size ? `?${call.query}` : ''}`).toBe(`POST ${row.path}`);
    expect(call?.headers).toMatchObject({ [row.header[0]]: row.header[1], 'content-type': 'application/json' });
    expect(String(call?.body)).toBe(JSON.stringify(row.body));
  });

  it('applies its settings, within its limits', async () => {
    const { provider, speak } = await started({ provider: row.provider, [row.provider]: row.settings });
    await speak({ text: TEXT });
    expect(provider.calls[0]?.json()).toEqual({ ...row.body, ...row.changed });
    if (row.changedPath) expect(provider.calls[0]?.target).toBe(row.changedPath);
  });

  it('ignores what a body says of servers and keys, and of voices where none may be chosen', async () => {
    const { provider, speak } = await started();
    const evil = { base_url: 'http://127.0.0.1:1', api_key: 'x', headers: { a: 'b' }, url: 'http://127.0.0.1:1' };
    await speak({ text: TEXT, ...evil, model: 'm', persona_prompt: 'p', audio_tags: { toString: 1 } });
    expect(provider.calls[0]?.json()).toEqual(row.body);
    if (row.provider === 'xai') return;
    await speak({ text: TEXT, voice: 'v', language: 'fr', audio_tags: true, enhanced: { voice: 'w', ...evil } });
    expect(provider.calls[1]?.json()).toEqual(row.body);
  });

  it('is an error without a key, and never another provider', async () => {
    const { speak } = await basicVoice({
      env: row.provider === 'openai' ? { XAI_API_KEY: 'x' } : { OPENAI_API_KEY: 'x' },
      config: { tts: { provider: row.provider } },
    });
    await expect(speak({ text: TEXT })).rejects.toMatchObject({
      kind: 'internal',
      message: expect.stringContaining('no API key available'),
      extra: { provider: row.provider },
    });
  });
});

describe('speech of the owner’s own server (contract 05 §18)', () => {
  const pcm = sinePcm(0.4, 16_000);
  const wav = wavFile(sinePcm(0.4, 22_050), 22_050);

  async function spoken(bytes: Uint8Array, contentType: string, openai: Mapping = {}) {
    const provider = await startProvider();
    provider.onCall((call) => call.answer(200, Buffer.from(bytes), { 'content-type': contentType }));
    const env = { OPENAI_API_KEY: 'k', OPENAI_BASE_URL: provider.url };
    const { speak } = await basicVoice({ env, config: { tts: { provider: 'openai', openai } } });
    return (await speak({ text: TEXT })).audio;
  }

  it.each<[string, Uint8Array, string, Mapping?]>([
    ['a WAV', wav, 'audio/wav'],
    ['a WAV that is called MP3', wav, 'audio/mpeg'],
    ['PCM with a rate', pcm, 'audio/L16;rate=16000'],
    ['PCM of a configured rate', pcm, 'application/octet-stream', { response_format: 'pcm', sample_rate: 16_000 }],
    ['PCM that is called MP3', sinePcm(0.4, 24_000), 'audio/mpeg'],
  ])('%s becomes MP3 of its length', async (_, bytes, contentType, settings) => {
    const { sampleRate, seconds, rest } = mp3Frames(await spoken(bytes, contentType, settings));
    expect({ sampleRate, rest }).toEqual({ sampleRate: 24_000, rest: 0 });
    expect(seconds).toBeGreaterThan(0.39);
    expect(seconds).toBeLessThan(0.52);
  });

  it('MP3 stays as it is, also behind a tag and without one', async () => {
    const mp3 = await spoken(wav, 'audio/wav');
    expect(Buffer.from(await spoken(mp3, 'audio/mpeg')).equals(mp3)).toBe(true);
    const tagged = Buffer.concat([Buffer.from('ID3\u0004\0\0\0\0\0\0'), mp3]);
    expect(Buffer.from(await spoken(tagged, 'application/octet-stream')).equals(tagged)).toBe(true);
    const ogg = Buffer.concat([Buffer.from('OggS'), Buffer.alloc(500)]);
    expect(Buffer.from(await spoken(ogg, 'audio/ogg')).equals(ogg)).toBe(true);
  });
});

describe('basic speech by gemini (contract 05 §8)', () => {
  const AUDIO = sinePcm(0.4, 24_000);

  async function started(section: Mapping = {}, reply?: unknown) {
    const provider = await startProvider();
    const parts = [{ inlineData: { mimeType: 'audio/L16;codec=pcm;rate=24000', data: base64(AUDIO) } }];
    provider.onCall((call) => call.answer(200, reply ?? { candidates: [{ content: { parts } }] }));
    const env = { GEMINI_API_KEY: ' ', GOOGLE_API_KEY: 'the-key', GEMINI_BASE_URL: `${provider.url}/v1beta` };
    return { provider, ...(await basicVoice({ env, config: { tts: { provider: 'gemini', ...section } } })) };
  }
  const spokenText = (body: Record<string, unknown>) =>
    (body.contents as [{ parts: [{ text: string }] }])[0].parts[0].text;

  it('sends the key in a header only, and encodes the PCM of the reply', async () => {
    const { provider, speak } = await started();
    const { audio } = await speak({ text: TEXT });
    const { sampleRate, seconds, rest } = mp3Frames(audio);
    expect({ sampleRate, rest }).toEqual({ sampleRate: 24_000, rest: 0 });
    expect(seconds).toBeGreaterThan(0.39);
    const [call] = provider.calls;
    expect(call?.target).toBe('/v1beta/models/gemini-3.1-flash-tts-preview:generateContent');
    expect(call?.headers['x-goog-api-key']).toBe('the-key');
    expect(String(call?.body)).toBe(
      JSON.stringify({
        contents: [{ parts: [{ text: TEXT }] }],
        generationConfig: {
          responseModalities: ['AUDIO'],
          speechConfig: { voiceConfig: { prebuiltVoiceConfig: { voiceName: 'Kore' } } },
        },
      }),
    );
  });

  it('takes the voice, model and persona of the request for this request only', async () => {
    const { provider, speak } = await started({ gemini: { voice: 'Puck', persona_prompt: 'Calm.' } });
    await speak({
      text: TEXT,
      enhanced: { voice: 'Leda', model: 'gemini/x', persona: 'Say {transcript}, {transcript}' },
    });
    expect(provider.calls[0]?.target).toBe('/v1beta/models/gemini%2Fx:generateContent');
    const body = provider.calls[0]?.json() ?? {};
    expect(JSON.stringify(body)).toContain('"voiceName":"Leda"');
    expect(spokenText(body)).toBe(`Say ${TEXT}, ${TEXT}`);
    await speak({ text: TEXT, voice: 'Zephyr', gemini: {} });
    const second = provider.calls[1]?.json() ?? {};
    expect(JSON.stringify(second)).toContain('"voiceName":"Puck"');
    expect(spokenText(second)).toMatch(/must not be spoken[\s\S]*Calm\.[\s\S]*Hello there\.$/);
  });

  it('does not take dots for a model', async () => {
    const { provider, speak } = await started();
    await expect(speak({ text: TEXT, model: '..' })).rejects.toThrow('is not the id');
    expect(provider.calls).toEqual([]);
  });

  it('reads the persona from the file that the configuration names', async () => {
    const { provider, home, speak } = await started({ gemini: { persona_prompt_file: 'persona.md' } });
    await writeFile(`${home}/persona.md`, 'Speak as a {transcript} pirate $& would.');
    await speak({ text: 'a $& b' });
    expect(spokenText(provider.calls[0]?.json() ?? {})).toBe('Speak as a a $& b pirate $& would.');
  });

  it('reads no persona from a file of secrets, also by way of a link', async () => {
    for (const name of ['secret.md', 'link.md', 'fifo.md', 'missing.md']) {
      const { provider, home, speak, log } = await started({ gemini: { persona_prompt_file: name } });
      await writeFile(`${home}/secret.md`, 'PRIVATE');
      await symlink(`${home}/secret.md`, `${home}/link.md`);
      execFileSync('mkfifo', [`${home}/fifo.md`]);
      await speak({ text: TEXT });
      expect(spokenText(provider.calls[0]?.json() ?? {})).toBe(TEXT);
      expect(log.join('\n')).toContain('persona_prompt_file names cannot be read');
    }
  });

  it.each([
    ['no candidate', {}],
    ['text instead of audio', { candidates: [{ content: { parts: [{ text: 'no' }] } }] }],
    ['audio that is no base64', { candidates: [{ content: { parts: [{ inlineData: { data: '!!!!' } }] } }] }],
    [
      'a rate that MP3 has not',
      { candidates: [{ content: { parts: [{ inlineData: { data: 'AAAA', mimeType: 'audio/L16;rate=7' } }] } }] },
    ],
  ])('fails on %s', async (_name, reply) => {
    const { speak } = await started({}, reply);
    await expect(speak({ text: TEXT })).rejects.toMatchObject({ kind: 'internal', extra: { provider: 'gemini' } });
  });
});

describe('basic speech by minimax (contract 05 §8)', () => {
  async function started(reply: unknown) {
    const provider = await startProvider();
    provider.onCall((call) => call.answer(200, reply));
    const section = {
      provider: 'minimax',
      minimax: { base_url: `${provider.url}/t2a?GroupId=7`, api_key: 'cfg-key-1' },
    };
    return { provider, ...(await basicVoice({ config: { tts: section } })) };
  }

  it('sends to the configured URL and decodes the hex of the reply', async () => {
    const { provider, speak } = await started({ data: { audio: MP3.toString('hex') }, base_resp: { status_code: 0 } });
    expect((await speak({ text: TEXT })).audio).toEqual(new Uint8Array(MP3));
    expect(provider.calls[0]?.target).toBe('/t2a?GroupId=7');
    expect(provider.calls[0]?.headers.authorization).toBe('Bearer cfg-key-1');
    expect(provider.calls[0]?.json()).toMatchObject({ text: TEXT, audio_setting: { format: 'mp3' } });
  });

  it('reports its own failures', async () => {
    const { speak } = await started({ base_resp: { status_code: 1004, status_msg: 'bad key cfg-key-1' } });
    await expect(speak({ text: TEXT })).rejects.toThrow('minimax failed with 1004: bad key <redacted>');
  });
});

describe('the provider that speaks (contract 05 §7)', () => {
  const KEYS = ['OPENAI_API_KEY', 'ELEVENLABS_API_KEY', 'XAI_API_KEY', 'GEMINI_API_KEY', 'MISTRAL_API_KEY'];
  const PATHS = ['/o/audio/speech', '/e/v1/text-to-speech', '/x/tts', '/g/models', '/m/v1/audio/speech'];

  async function asked(env: Record<string, string>, config: Mapping = {}, body: Record<string, unknown> = {}) {
    const provider = await startProvider();
    provider.onCall((call) => call.answer(500, ''));
    const bases = Object.entries({ OPENAI: 'o', ELEVENLABS: 'e', XAI: 'x', GEMINI: 'g', MISTRAL: 'm' });
    const urls = Object.fromEntries(bases.map(([name, path]) => [`${name}_BASE_URL`, `${provider.url}/${path}`]));
    const { speak } = await basicVoice({ env: { ...urls, ...env }, config: { tts: config } });
    const outcome = await speak({ text: TEXT, ...body }).catch((error) => error);
    return { path: provider.calls[0]?.path, calls: provider.calls, outcome };
  }

  it.each(KEYS.map((key, at) => [key, at] as const))('is the first with a key: %s', async (_key, at) => {
    const env = Object.fromEntries(KEYS.slice(at).map((name) => [name, 'k-1234']));
    expect((await asked(env)).path).toContain(PATHS[at]);
  });

  it('is none without a key, nor one that is unknown', async () => {
    expect((await asked({})).outcome.message).toContain('no API key available');
    expect((await asked({ OPENAI_API_KEY: 'k-1234' }, { provider: 'edge' })).outcome.message).toContain(
      'no API key available',
    );
  });

  it('is openai where the configuration says nous, whatever the case', async () => {
    const { path, calls } = await asked({ OPENAI_API_KEY: 'k-1234' }, { provider: ' Nous ', voice: 'nova' });
    expect(path).toBe('/o/audio/speech');
    expect(calls[0]?.json().voice).toBe('nova');
  });

  it('gets what the section says of no provider in particular, unless it is named itself', async () => {
    const env = { XAI_API_KEY: 'k-1234', ELEVENLABS_API_KEY: '' };
    expect((await asked(env, { voice: 'leo' })).calls[0]?.json().voice_id).toBe('leo');
    const other = await asked(env, { provider: 'openai', voice: 'nova', xai: { voice: 'rex' } }, { provider: 'xai' });
    expect(other.calls[0]?.json().voice_id).toBe('rex');
  });

  it('is the one of the request only among gemini and xai', async () => {
    const env = { OPENAI_API_KEY: 'k-1234', XAI_API_KEY: 'k-1234', ELEVENLABS_API_KEY: 'k-1234' };
    expect((await asked(env, { provider: 'openai' }, { provider: 'xai' })).path).toBe('/x/tts');
    expect((await asked(env, { provider: 'openai' }, { provider: 'elevenlabs' })).path).toBe('/o/audio/speech');
  });

  it('may be switched off', async () => {
    const { outcome, calls } = await asked({ OPENAI_API_KEY: 'k-1234' }, { enabled: 'no' });
    expect(outcome).toMatchObject({ kind: 'internal', message: expect.stringContaining('disabled') });
    expect(calls).toHaveLength(0);
  });

  it('prefers a key of the environment to the token store, whose token goes to its own server only', async () => {
    const provider = await startProvider();
    provider.onCall((call) => call.answer(200, MP3));
    const oauth = {
      paths: async () => [],
      isConfigured: async () => true,
      find: async () => ({ secret: 'token-1', baseUrl: `${provider.url}/own`, path: '/x' }),
    };
    const config = { tts: { provider: 'xai' } };
    const other = `${provider.url}/env`;
    const both = await basicVoice({ env: { XAI_API_KEY: 'k-1234', XAI_BASE_URL: other }, oauth, config });
    await both.speak({ text: TEXT });
    const token = await basicVoice({ env: { XAI_BASE_URL: other }, oauth, config });
    await token.speak({ text: TEXT });
    expect(provider.calls.map(({ path, headers }) => [path, headers.authorization])).toEqual([
      ['/env/tts', 'Bearer k-1234'],
      ['/own/tts', 'Bearer token-1'],
    ]);
  });
});

describe('a text to speak (contract 05 §7)', () => {
  async function openaiVoice(options: Parameters<typeof basicVoice>[0] = {}) {
    const provider = await startProvider();
    provider.onCall((call) => call.answer(200, `<${String(call.json().input).length}>`));
    const env = { OPENAI_API_KEY: 'k-1234', OPENAI_BASE_URL: provider.url };
    return { provider, ...(await basicVoice({ env, ...options })) };
  }

  it.each([
    [{}, 'text must be a string'],
    [{ text: 7 }, 'text must be a string'],
    [{ text: ' \n ' }, 'text is empty'],
    [{ text: 'x'.repeat(5001) }, '5000'],
    [{ text: '😀'.repeat(5001) }, '5000'],
    [{ text: '```\ncode\n```' }, 'sanitiz'],
    [{ text: 'x', voice: 'v'.repeat(161) }, '160'],
  ])('is refused: %j', async (body, message) => {
    const { speak } = await openaiVoice();
    await expect((async () => speak(body))()).rejects.toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining(message),
    });
  });

  it('may have 5000 code points, and is sent in parts that together are the text', async () => {
    const { provider, speak } = await openaiVoice();
    const text = [...'A sentence, 😀 and more. '.repeat(250)].slice(0, 4999).join('');
    expect(text).toMatch(/[^ ]$/);
    const { audio } = await speak({ text: `  ${text}  ` });
    const inputs = provider.calls.map((call) => String(call.json().input));
    expect(inputs).toHaveLength(2);
    expect(inputs.join('')).toBe(text);
    expect(inputs[0]).toMatch(/\. $/);
    expect(String(Buffer.from(audio))).toBe(inputs.map(({ length }) => `<${length}>`).join(''));
  });

  it('05 §18: is spoken without a key by a server on the owner’s network', async () => {
    const provider = await startProvider();
    provider.onCall((call) => call.answer(200, MP3));
    const tts = { provider: 'openai', model: 'kokoro', base_url: `${provider.url}/v1` };
    const { speak } = await basicVoice({ config: { tts } });
    expect((await speak({ text: 'x' })).provider).toBe('openai');
    const [call] = provider.calls;
    expect([call?.path, call?.headers.authorization, call?.json().model]).toEqual([
      '/v1/audio/speech',
      undefined,
      'kokoro',
    ]);
  });

  it('is spoken as the profile says, else as the root does', async () => {
    const { provider, speak } = await openaiVoice({
      config: { tts: { provider: 'openai', voice: 'root' } },
      env: {},
    });
    expect(provider.calls).toHaveLength(0);
    await expect(speak({ text: 'x', profile: 'work' })).rejects.toThrow('no API key');
    const fake = await startProvider();
    fake.onCall((call) => call.answer(200, MP3));
    const own = (voice: string) => ({
      provider: 'openai',
      voice,
      openai: { base_url: fake.url, api_key: `key-of-${voice}` },
    });
    const { speak: spoken } = await basicVoice({
      config: { tts: own('root') },
      profiles: { work: { tts: own('work') }, bare: { stt: {} } },
    });
    for (const profile of ['work', 'bare', 'none', undefined]) await spoken({ text: 'x', profile });
    expect(fake.calls.map((call) => [call.json().voice, call.headers.authorization])).toEqual([
      ['work', 'Bearer key-of-work'],
      ['root', 'Bearer key-of-root'],
      ['root', 'Bearer key-of-root'],
      ['root', 'Bearer key-of-root'],
    ]);
  });

  it('gets xAI speech tags when they are asked for', async () => {
    const provider = await startProvider();
    provider.onCall((call) => call.answer(200, MP3));
    const { speak } = await basicVoice({ env: { XAI_API_KEY: 'k-1234', XAI_BASE_URL: provider.url } });
    const text = 'A first sentence here. And more\n\nof it';
    await speak({ text });
    await speak({ text, audio_tags: true, language: 'fr', voice: 'leo', model: 'ignored' });
    expect(provider.calls.map((call) => call.json())).toEqual([
      { text, voice_id: 'eve', language: 'en' },
      { text: withSpeechTags(text), voice_id: 'leo', language: 'fr' },
    ]);
  });
});

describe('a provider that fails (contract 05 §7, §8)', () => {
  const SECRET = 'sk-very-secret-0123456789';

  async function failing(
    handle: Parameters<Awaited<ReturnType<typeof startProvider>>['onCall']>[0],
    clock = createTestClock(),
  ) {
    const provider = await startProvider();
    provider.onCall(handle);
    const env = {
      OPENAI_API_KEY: SECRET,
      OPENAI_BASE_URL: provider.url,
      MISTRAL_API_KEY: SECRET,
      MISTRAL_BASE_URL: provider.url,
    };
    return { provider, clock, ...(await basicVoice({ env, clock })) };
  }

  it.each<[string, number, string | object, RegExp]>([
    [
      '401 with the key',
      401,
      { error: { message: `Incorrect key ${SECRET}` } },
      /^openai answered HTTP 401: Incorrect key <redacted>$/,
    ],
    ['429', 429, { detail: 'slow down' }, /^openai answered HTTP 429: slow down$/],
    ['500 with a path', 500, 'cannot open /home/me/.svc/config.yaml', /^openai answered HTTP 500: cannot open <path>$/],
    ['500 with much', 500, 'x'.repeat(100_000), /^openai answered HTTP 500: x{1,275}$/],
    ['500 with nothing', 500, '', /^openai answered HTTP 500$/],
    ['no audio', 200, '', /^openai returned no audio$/],
    ['JSON instead of audio', 200, { ok: true }, /^openai sent application\/json instead of audio$/],
  ])('%s', async (_name, status, body, message) => {
    const { speak, log } = await failing((call) => call.answer(status, body));
    const error = await speak({ text: TEXT }).catch((each) => each);
    expect(error).toMatchObject({ kind: 'internal', extra: { provider: 'openai' } });
    expect(error.message).toMatch(message);
    expect(error.message.length).toBeLessThanOrEqual(300);
    expect(log.join()).not.toContain(SECRET);
  });

  it('does not follow a redirect with the key', async () => {
    const { speak, provider } = await failing((call) => call.answer(302, '', { location: '/elsewhere' }));
    await expect(speak({ text: TEXT })).rejects.toThrow('openai answered HTTP 302');
    expect(provider.calls).toHaveLength(1);
  });

  it('a connection that closes in the middle', async () => {
    const { speak } = await failing(async (call) => {
      call.begin({ 'content-length': '1000' });
      await call.write('abc');
      call.cut();
    });
    await expect(speak({ text: TEXT })).rejects.toMatchObject({
      kind: 'internal',
      message: expect.stringMatching(/^openai: /),
    });
  });

  it.each(['nothing', 'a drip'])('%s for a minute, and the call is aborted', async (kind) => {
    const { speak, provider, clock } = await failing(async (call) => {
      if (kind === 'nothing') return;
      call.begin();
      await call.write('abc');
    });
    const speaking = speak({ text: TEXT }).catch((error) => error);
    const call = await provider.call(0);
    clock.advance(59_999);
    expect(call.isAbandoned).toBe(false);
    clock.advance(1);
    expect((await speaking).message).toBe('openai did not finish within 60 seconds');
    await expect.poll(() => call.isAbandoned).toBe(true);
  });

  it('more than 16 MiB', async () => {
    const { speak, provider } = await failing(async (call) => {
      call.begin();
      const chunk = Buffer.alloc(1024 * 1024);
      for (let sent = 0; sent < 40 && !call.isAbandoned; sent++) await call.write(chunk);
      call.end();
    });
    await expect(speak({ text: TEXT })).rejects.toThrow('more than 16 MiB');
    await expect.poll(() => provider.calls[0]?.isAbandoned).toBe(true);
  });

  it('a refused connection', async () => {
    const { speak } = await basicVoice({ env: { OPENAI_API_KEY: SECRET, OPENAI_BASE_URL: 'http://127.0.0.1:1' } });
    await expect(speak({ text: TEXT })).rejects.toThrow('openai: connection refused');
  });

  it('the caller hangs up: the call is aborted', async () => {
    const { speak, provider } = await failing(() => {});
    const hangUp = new AbortController();
    const speaking = speak({ text: TEXT }, { signal: hangUp.signal }).catch((error) => error);
    const call = await provider.call(0);
    hangUp.abort();
    await speaking;
    await expect.poll(() => call.isAbandoned).toBe(true);
  });

  it('a slow call of one caller delays no other, and the ninth at once is refused', async () => {
    const { speak, provider } = await failing(() => {});
    const slow = Array.from({ length: 8 }, () => speak({ text: TEXT }, { key: 'slow' }).catch((error) => error));
    await provider.call(7);
    await expect(speak({ text: TEXT }, { key: 'slow' })).rejects.toMatchObject({ kind: 'rate-limited' });
    provider.onCall((call) => call.answer(200, MP3));
    expect((await speak({ text: TEXT }, { key: 'other' })).audio).toEqual(new Uint8Array(MP3));
    for (const call of provider.calls.slice(0, 8)) call.answer(200, MP3);
    for (const outcome of await Promise.all(slow)) expect(outcome.audio).toEqual(new Uint8Array(MP3));
  });
});
