import { chmod, mkdir, readdir, readFile, stat, utimes, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type * as groq from 'groq-sdk/resources/audio/transcriptions';
import type * as openai from 'openai/resources/audio/transcriptions';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Mapping } from '../../../../lib/kit/yaml.ts';
import { extensionOf } from '../../../../lib/voice/basic/clips.ts';
import { describeBasic } from '../../../../lib/voice/basic/describe.ts';
import { createVoiceCredentials } from '../../../../lib/voice/credentials.ts';
import { createTestClock } from '../../../support/clock.ts';
import { readForm } from '../../../support/voice/form.ts';
import { type ProviderCall, startProvider } from '../../../support/voice/provider.ts';
import { basicVoice, type VoiceOptions } from './support.ts';

const CLIP = Buffer.from([...Array(3000).keys()].map((at) => at % 256));
const formOf = (call: ProviderCall | undefined) => readForm(call?.headers['content-type'], call?.body ?? Buffer.of());

interface Case {
  provider: string;
  key: string;
  baseVariable: string;
  base: string;
  path: string;
  header: [string, string];
  fields: [string, string][];
  reply: unknown;
  section: Mapping;
  changed: [string, string][];
}

/** The fields of a form in their order, all of them ones that the SDK of the provider has. */
const formFields = <T>(fields: Omit<T, 'file'>): Case['fields'] => Object.entries(fields);
const openaiFields = formFields<openai.TranscriptionCreateParams>;
const groqFields = formFields<groq.TranscriptionCreateParams>;

const BEARER: [string, string] = ['authorization', 'Bearer the-key'];
const PROMPT = `${'x'.repeat(2000)}${'tail'.repeat(224)}`;

const CASES: Case[] = [
  {
    provider: 'openai',
    key: 'OPENAI_API_KEY',
    baseVariable: 'STT_OPENAI_BASE_URL',
    base: '/v1',
    path: '/v1/audio/transcriptions',
    header: BEARER,
    fields: openaiFields({
      model: 'whisper-1',
      response_format: 'text',
    }),
    reply: ' hello \n',
    section: { prompt: PROMPT, language: 'en', openai: { model: 'gpt-4o-transcribe', language: 'de' } },
    changed: openaiFields({
      model: 'gpt-4o-transcribe',
      response_format: 'json',
      language: 'de',
      prompt: 'tail'.repeat(224),
    }),
  },
  {
    provider: 'deepinfra',
    key: 'DEEPINFRA_API_KEY',
    baseVariable: 'DEEPINFRA_BASE_URL',
    base: '/v1/openai',
    path: '/v1/openai/audio/transcriptions',
    header: BEARER,
    fields: openaiFields({
      model: 'whisper-1',
      response_format: 'text',
    }),
    reply: { text: 'hello' } satisfies Pick<openai.Transcription, 'text'>,
    // A model name of Groq is foreign to OpenAI only.
    section: { model: 'whisper-large-v3', prompt: 'p', language: 'en' },
    changed: openaiFields({
      model: 'whisper-large-v3',
      response_format: 'json',
      language: 'en',
      prompt: 'p',
    }),
  },
  {
    provider: 'groq',
    key: 'GROQ_API_KEY',
    baseVariable: 'GROQ_BASE_URL',
    base: '/openai/v1',
    path: '/openai/v1/audio/transcriptions',
    header: BEARER,
    fields: groqFields({
      model: 'whisper-large-v3-turbo',
      response_format: 'text',
    }),
    reply: 'hello',
    section: { model: 'whisper-1', prompt: 'p', groq: { language: 'fr' } },
    changed: groqFields({
      // The base URL of a variable is the owner's.
      model: 'whisper-1',
      response_format: 'text',
      language: 'fr',
      prompt: 'p',
    }),
  },
  {
    provider: 'mistral',
    key: 'MISTRAL_API_KEY',
    baseVariable: 'MISTRAL_BASE_URL',
    base: '',
    path: '/v1/audio/transcriptions',
    header: BEARER,
    fields: [['model', 'voxtral-mini-latest']],
    reply: { text: 'hello' },
    section: { prompt: 'p', language: 'en', mistral: { model: 'voxtral-x' } },
    changed: [
      ['model', 'voxtral-x'],
      ['language', 'en'],
    ],
  },
  {
    provider: 'xai',
    key: 'XAI_API_KEY',
    baseVariable: 'XAI_STT_BASE_URL',
    base: '/v1',
    path: '/v1/stt',
    header: BEARER,
    // Formatting needs a language.
    fields: [],
    reply: { text: 'hello', language: 'en', duration: 1.5 },
    section: { xai: { format: false, diarize: true, language: 'de' } },
    changed: [
      ['diarize', 'true'],
      ['language', 'de'],
    ],
  },
  {
    provider: 'elevenlabs',
    key: 'VOICE_TOOLS_ELEVENLABS_KEY',
    baseVariable: 'ELEVENLABS_BASE_URL',
    base: '',
    path: '/v1/speech-to-text',
    header: ['xi-api-key', 'the-key'],
    fields: [
      ['model_id', 'scribe_v2'],
      ['tag_audio_events', 'false'],
      ['diarize', 'false'],
    ],
    reply: { text: 'hello' },
    section: { language: 'en', elevenlabs: { model_id: 'scribe_v3', tag_audio_events: true, language_code: 'deu' } },
    changed: [
      ['model_id', 'scribe_v3'],
      ['tag_audio_events', 'true'],
      ['diarize', 'false'],
      ['language_code', 'deu'],
    ],
  },
];

it('05 §8: xAI formats where the language is known', async () => {
  const provider = await startProvider();
  provider.onCall((call) => call.answer(200, { text: 'hello' }));
  const env = { XAI_API_KEY: 'k', XAI_STT_BASE_URL: provider.url };
  const { transcribe } = await basicVoice({ env, config: { stt: { provider: 'xai', language: 'de' } } });
  await transcribe({ content: CLIP });
  const body = String(provider.calls[0]?.body);
  expect(body).toMatch(/name="format"\r\n\r\ntrue/);
  expect(body).toMatch(/name="language"\r\n\r\nde/);
});

it('05 §8: a model that tells speakers apart cuts long clips, and gets no prompt', async () => {
  const provider = await startProvider();
  provider.onCall((call) => call.answer(200, { text: 'hello' }));
  const env = { OPENAI_API_KEY: 'k', OPENAI_BASE_URL: provider.url };
  const stt = { provider: 'openai', prompt: 'names', openai: { model: 'gpt-4o-transcribe-diarize' } };
  const { transcribe } = await basicVoice({ env, config: { stt } });
  expect(await transcribe({ content: CLIP })).toMatchObject({ text: 'hello' });
  const body = String(provider.calls[0]?.body);
  expect(body).toMatch(/name="chunking_strategy"\r\n\r\nauto/);
  expect(body).not.toContain('name="prompt"');
});

describe.each(CASES)('transcription by $provider (contract 05 §8)', (row) => {
  async function started(section: Mapping = {}, reply = row.reply) {
    const provider = await startProvider();
    provider.onCall((call) => call.answer(200, reply));
    const env = { [row.key]: 'the-key', [row.baseVariable]: provider.url + row.base };
    return { provider, ...(await basicVoice({ env, config: { stt: { provider: row.provider, ...section } } })) };
  }

  it('sends the form of the table, byte for byte, with a length', async () => {
    const { provider, transcribe, left } = await started();
    expect(await transcribe({ content: CLIP })).toEqual({ text: 'hello', provider: row.provider });
    const [call] = provider.calls;
    expect(`${call?.method} ${call?.target}`).toBe(`POST ${row.path}`);
    expect(call?.headers[row.header[0]]).toBe(row.header[1]);
    expect(call?.headers['content-length']).toBe(String(call?.body.length));
    expect(formOf(call)).toEqual({
      fields: row.fields,
      file: { name: 'file', filename: 'audio.wav', contentType: 'audio/wav', content: CLIP },
    });
    expect(await left()).toEqual([]);
  });

  it('applies its settings', async () => {
    const { provider, transcribe } = await started(row.section);
    await transcribe();
    expect(formOf(provider.calls[0]).fields).toEqual(row.changed);
  });

  it('takes silence for an empty text, and anything else for a failure', async () => {
    const silent = await started({}, { text: ' ' });
    expect((await silent.transcribe()).text).toBe('');
    const garbage = await started({}, Buffer.from([0xff, 0xfe, 0]));
    await expect(garbage.transcribe()).rejects.toMatchObject({ kind: 'internal', extra: { provider: row.provider } });
    const other = await started({}, { error: 'no' });
    await expect(other.transcribe()).rejects.toMatchObject({ kind: 'internal', extra: { provider: row.provider } });
  });
});

it.each([
  ['audio/wav', 'a', 'wav'],
  ['audio/x-wav; rate=8000', 'a.mp3', 'wav'],
  ['audio/wave', 'a', 'wav'],
  ['video/webm', 'a', 'webm'],
  ['audio/webm;codecs=opus', 'a', 'webm'],
  ['audio/ogg', 'a', 'ogg'],
  ['audio/opus', 'a', 'opus'],
  ['audio/mp4', 'a', 'm4a'],
  ['audio/mp4', 'a.mp4', 'm4a'],
  ['application/octet-stream', 'a.mp4', 'mp4'],
  ['audio/x-m4a', 'a', 'm4a'],
  ['audio/mpeg', 'a', 'mp3'],
  ['audio/mp3', 'a', 'mp3'],
  ['audio/x-flac', 'a', 'flac'],
  ['audio/aac', 'a', 'aac'],
  ['application/octet-stream', 'voice.M4A', 'm4a'],
  ['application/octet-stream', 'voice.oga', 'oga'],
  ['application/octet-stream', 'voice.exe', 'wav'],
  ['application/octet-stream', 'constructor', 'wav'],
  ['audio/constructor', 'a', 'wav'],
])('§6: a part of type %s named %s is .%s', (contentType, fileName, extension) => {
  expect(extensionOf({ contentType, fileName })).toBe(extension);
});

describe('a clip (contract 05 §6)', () => {
  async function openaiVoice(options: VoiceOptions = {}) {
    const provider = await startProvider();
    provider.onCall((call) => call.answer(200, 'hello'));
    const env = { OPENAI_API_KEY: 'the-key', OPENAI_BASE_URL: provider.url };
    return { provider, ...(await basicVoice({ env, ...options })) };
  }

  it.each(['name="audio"', 'name="file"', 'name="x"; filename="a.wav"', "name=x; filename*=UTF-8''a.wav"])(
    'is the part with %s',
    async (head) => {
      const { transcribe } = await openaiVoice();
      expect(await transcribe({ head })).toEqual({ text: 'hello', provider: 'openai' });
    },
  );

  it.each([
    [{ head: 'name="note"' }, 'invalid', 'no audio'],
    [{ content: Buffer.of() }, 'invalid', 'empty'],
    [{ content: Buffer.alloc(25 * 1024 * 1024 + 1) }, 'too-large', '25 MiB'],
  ])('is refused, and leaves nothing: %#', async (clip, kind, message) => {
    const { transcribe, left, provider } = await openaiVoice();
    await expect(transcribe(clip)).rejects.toMatchObject({ kind, message: expect.stringContaining(message) });
    expect(await left()).toEqual([]);
    expect(provider.calls).toHaveLength(0);
  });

  it.each([true, false])('of 25 MiB is sent whole, with a host: %s', async (hasHost) => {
    const { transcribe, provider } = await openaiVoice({ hasHost });
    const content = Buffer.alloc(25 * 1024 * 1024, 'abc');
    await transcribe({ content });
    expect(formOf(provider.calls[0]).file.content.equals(content)).toBe(true);
  });

  it('is private while it is there, and gone when the body breaks off or the provider fails', async () => {
    const { transcribe, left, home, provider } = await openaiVoice();
    let found: string[] = [];
    async function* broken() {
      yield Buffer.alloc(1000, 'RIFF');
      found = await left();
      const directory = `${home}/${found[0]}`;
      expect((await stat(directory)).mode & 0o777).toBe(0o700);
      const [name] = await readdir(directory);
      expect((await stat(`${directory}/${name}`)).mode & 0o777).toBe(0o600);
      throw new Error('cut');
    }
    await expect(transcribe({ content: broken() })).rejects.toMatchObject({ kind: 'invalid' });
    expect(found).toHaveLength(1);
    expect(await left()).toEqual([]);
    provider.onCall((call) => call.cut());
    await expect(transcribe()).rejects.toMatchObject({ kind: 'internal', extra: { provider: 'openai' } });
    expect(await left()).toEqual([]);
  });

  it('is gone when the caller hangs up, and the upload to the provider is aborted', async () => {
    const { transcribe, left, provider } = await openaiVoice();
    provider.onCall(() => {});
    const hangUp = new AbortController();
    const waiting = transcribe({}, { signal: hangUp.signal }).catch((error) => error);
    const call = await provider.call(0);
    hangUp.abort();
    await waiting;
    expect(await left()).toEqual([]);
    await expect.poll(() => call.isAbandoned).toBe(true);
  });

  it('is refused by a provider that does not read it: its words arrive all the same', async () => {
    const server = createServer((_request, response) => {
      response.writeHead(401, { connection: 'close' });
      response.end('{"error":"no such key"}');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const env = { OPENAI_API_KEY: 'the-key', OPENAI_BASE_URL: `http://127.0.0.1:${port}` };
    const { transcribe, left } = await basicVoice({ env });
    const waiting = transcribe({ content: Buffer.alloc(20 * 1024 * 1024) });
    await expect(waiting).rejects.toThrow('openai answered HTTP 401: no such key');
    expect(await left()).toEqual([]);
  });

  it('is given up after the time of its provider', async () => {
    const clock = createTestClock();
    const provider = await startProvider();
    const late = async (name: string, settings: Mapping, seconds: number) => {
      const own = { [name]: { base_url: provider.url, api_key: 'k-1234', ...settings } };
      const { transcribe } = await basicVoice({ clock, config: { stt: { provider: name, ...own } } });
      const calls = provider.calls.length;
      const waiting = transcribe().catch((error) => error);
      await provider.call(calls);
      clock.advance(seconds * 1000);
      const message = `${name} did not finish within ${seconds} seconds`;
      expect(await waiting).toMatchObject({ kind: 'internal', message });
    };
    // A server on the owner's network has more time than OpenAI itself (contract 05 §8).
    await late('openai', {}, 300);
    await late('local', {}, 300);
    await late('xai', {}, 120);
    await late('openai', { timeout: 30 }, 30);
    await late('local', { timeout: 1 }, 5);
    await late('groq', { timeout: 9999 }, 600);
  });

  it('without a host counts as held until it is transcribed, not only until it has arrived', async () => {
    const { transcribe, provider } = await openaiVoice({ hasHost: false });
    provider.onCall(() => {});
    const waiting = [transcribe({}, { key: 'a' }), transcribe({}, { key: 'b' })];
    const calls = [await provider.call(0), await provider.call(1)];
    await expect(transcribe({}, { key: 'c' })).rejects.toMatchObject({ kind: 'rate-limited' });
    expect(provider.calls).toHaveLength(2);
    for (const call of calls) call.answer(200, 'x');
    await Promise.all(waiting);
    provider.onCall((call) => call.answer(200, 'third'));
    expect(await transcribe({}, { key: 'c' })).toMatchObject({ text: 'third' });
  });

  it('refuses a reply of too much structure without parsing it', async () => {
    const { transcribe, provider } = await openaiVoice();
    const deep = `${'['.repeat(200 * 1024)}${']'.repeat(200 * 1024)}`;
    provider.onCall((call) => call.answer(200, `{"text":"x","words":${deep}}`));
    await expect(transcribe()).rejects.toMatchObject({ kind: 'internal', message: expect.stringContaining('openai') });
  });

  it('without a host is held in memory, two at a time, and released', async () => {
    const { transcribe, provider } = await openaiVoice({ hasHost: false });
    let finish = () => {};
    const held = new Promise<void>((resolve) => {
      finish = resolve;
    });
    async function* slow() {
      yield Buffer.from('RIFF');
      await held;
    }
    const two = [transcribe({ content: slow() }, { key: 'a' }), transcribe({ content: slow() }, { key: 'b' })];
    await expect(transcribe({}, { key: 'c' })).rejects.toMatchObject({ kind: 'rate-limited' });
    finish();
    expect(await Promise.all(two)).toHaveLength(2);
    expect((await transcribe({}, { key: 'c' })).text).toBe('hello');
    expect(provider.calls).toHaveLength(3);
  });

  it('is removed when the relay stops', async () => {
    const { transcribe, voice, left, provider } = await openaiVoice();
    provider.onCall(() => {});
    const waiting = transcribe().catch((error) => error);
    await provider.call(0);
    await voice.stop();
    expect(await left()).toEqual([]);
    expect(await waiting).toMatchObject({ kind: 'unavailable' });
  });

  it('is removed at the next start after a kill, unless its process lives', async () => {
    const { voice, home, left } = await openaiVoice();
    const old = new Date(performance.timeOrigin - 60_000);
    // No process has the largest id; 1 lives, whatever runs there.
    for (const [name, date] of [
      ['4194304-abc-1', new Date()],
      ['1-abc-1', old],
      [`${process.pid}-before-1`, old],
      [`${process.pid}-beside-1`, new Date()],
    ] as const) {
      await mkdir(`${home}/svc-relay-voice-${name}`);
      await writeFile(`${home}/svc-relay-voice-${name}/audio.wav`, 'x');
      await utimes(`${home}/svc-relay-voice-${name}`, date, date);
    }
    voice.start();
    const kept = ['svc-relay-voice-1-abc-1', `svc-relay-voice-${process.pid}-beside-1`];
    await expect.poll(async () => (await left()).sort()).toEqual(kept.sort());
  });
});

describe('the provider that transcribes (contract 05 §6)', () => {
  const ORDER = ['GROQ', 'OPENAI', 'MISTRAL', 'XAI', 'ELEVENLABS', 'DEEPINFRA'];

  async function asked(env: Record<string, string>, stt: Mapping = {}) {
    const provider = await startProvider();
    provider.onCall((call) => call.answer(500, ''));
    const urls = Object.fromEntries(ORDER.map((name) => [`${name}_BASE_URL`, `${provider.url}/${name}`]));
    const { transcribe } = await basicVoice({ env: { ...urls, ...env }, config: { stt } });
    const outcome = await transcribe().catch((error) => error);
    return { path: provider.calls[0]?.path, outcome };
  }

  it.each(ORDER.map((name, at) => [name, at] as const))('is the first with a key: %s', async (name, at) => {
    const env = Object.fromEntries(ORDER.slice(at).map((each) => [`${each}_API_KEY`, 'k-1234']));
    expect((await asked(env)).path).toMatch(new RegExp(`^/${name}/`));
  });

  it.each<[string, Mapping, string]>([
    ['none', {}, 'no API key available'],
    ['one that is named, without a key', { provider: 'mistral', base_url: 'https://stt.test' }, 'no API key available'],
    ['one that is unknown', { provider: 'whisper' }, 'no API key available'],
    ['a local command that is not set', { provider: 'local' }, 'no API key available'],
    ['one that is switched off', { provider: 'groq', enabled: false }, 'stt.enabled is false'],
  ])('%s is an error', async (name, stt, message) => {
    const { outcome, path } = await asked(name === 'none' ? {} : { GROQ_API_KEY: 'k-1234' }, stt);
    expect(path).toBeUndefined();
    expect(outcome).toMatchObject({ kind: 'internal', message: expect.stringContaining(message) });
  });

  it.each([
    ['OPENAI_BASE_URL', 'openai'],
    ['GROQ_BASE_URL', 'groq'],
  ])('05 §18: needs no key on the owner’s network, by %s or base_url', async (variable, name) => {
    const provider = await startProvider();
    provider.onCall((call) => call.answer(200, 'hello'));
    const own = await basicVoice({ config: { stt: { provider: name, [name]: { base_url: provider.url } } } });
    const byVariable = await basicVoice({ env: { [variable]: provider.url }, config: { stt: { provider: name } } });
    expect(await own.transcribe()).toMatchObject({ text: 'hello', provider: name });
    expect(await byVariable.transcribe()).toMatchObject({ text: 'hello', provider: name });
    expect(provider.calls.map(({ headers }) => headers.authorization)).toEqual([undefined, undefined]);
  });

  it.each([
    ['openai', 'whisper-large-v3-turbo'],
    ['groq', 'whisper-1'],
    ['openai', 'Systran/faster-whisper-small'],
  ])('05 §5: gets exactly the configured model at the owner’s base_url: %s, %s', async (name, model) => {
    const provider = await startProvider();
    provider.onCall((call) => call.answer(200, 'hello'));
    const { transcribe } = await basicVoice({ config: { stt: { provider: name, model, base_url: provider.url } } });
    await transcribe();
    expect(formOf(provider.calls[0]).fields).toContainEqual(['model', model]);
  });

  it.each<[string, Mapping, string | null]>([
    ['openai', { model: 'whisper-large-v3-turbo' }, 'whisper-1'],
    // Groq no longer has it, but it still is no model of OpenAI.
    ['openai', { model: 'distil-whisper-large-v3-en' }, 'whisper-1'],
    ['groq', { model: 'distil-whisper-large-v3-en' }, 'distil-whisper-large-v3-en'],
    ['groq', { model: 'gpt-4o-transcribe' }, 'whisper-large-v3-turbo'],
    ['openai', { model: 'whisper-large-v3-turbo', base_url: 'http://127.0.0.1:8000/v1' }, 'whisper-large-v3-turbo'],
    ['openai', { model: 'gpt-4o-transcribe' }, 'gpt-4o-transcribe'],
    ['openai', {}, null],
  ])('05 §5: is described with the model that is sent: %s %j', async (provider, settings, model) => {
    const stt = { provider, ...settings };
    const scope = { profile: null, configScope: 'global', configPath: null, fallbackToGlobal: false } as const;
    const env = settings.base_url === undefined ? { OPENAI_API_KEY: 'k-1234', GROQ_API_KEY: 'k-1234' } : {};
    const credentials = createVoiceCredentials({ env });
    const config = { basic: async () => ({ tts: {}, stt, ...scope }) };
    const described = await describeBasic({ config, credentials, hasHost: false }, null);
    expect(described.stt).toEqual({ provider, model, enabled: true, available: true });
  });

  it('is openai where the configuration says nous', async () => {
    expect((await asked({ OPENAI_API_KEY: 'k-1234', GROQ_API_KEY: 'k-1234' }, { provider: 'NOUS' })).path).toMatch(
      /^\/OPENAI/,
    );
  });

  it('gets the language of the host where no section names one', async () => {
    const provider = await startProvider();
    provider.onCall((call) => call.answer(200, 'hello'));
    const env = { GROQ_API_KEY: 'k-1234', GROQ_BASE_URL: provider.url, SVC_LOCAL_STT_LANGUAGE: 'pl' };
    const { transcribe } = await basicVoice({ env });
    await transcribe();
    expect(formOf(provider.calls[0]).fields).toContainEqual(['language', 'pl']);
  });
});

describe('a local command (contract 05 §8)', () => {
  async function withScript(
    script: string,
    { args = '{input_path} {output_dir} {language} {model}', ...options }: VoiceOptions & { args?: string } = {},
  ) {
    const env: Record<string, string> = {};
    const started = await basicVoice({ ...options, env: Object.assign(env, options.env) });
    const program = `${started.home}/the transcriber`;
    await writeFile(program, `#!/bin/sh\n${script}\n`);
    await chmod(program, 0o700);
    env.SVC_LOCAL_STT_COMMAND = `'${program}' ${args}`;
    return started;
  }

  it('gets its arguments without a shell, and prints the transcript', async () => {
    const script = 'echo "$#|$(cat "$1")|$(basename "$1")|$([ "$2" = "$(dirname "$1")" ] && echo same)|$3|$4"';
    const { transcribe, left } = await withScript(script, {
      config: { stt: { language: 'de; rm -rf $HOME', local_command: { model: '`id` "x"' } } },
    });
    const { text, provider } = await transcribe({ content: Buffer.from('RIFF data') });
    expect(provider).toBe('local_command');
    expect(text).toBe('4|RIFF data|audio.wav|same|de; rm -rf $HOME|`id` "x"');
    expect(await left()).toEqual([]);
  });

  it('writes the transcript into its directory: the first .txt counts', async () => {
    const { transcribe } = await withScript('echo progress; echo b >"$2/b.txt"; echo " first " >"$2/a.txt"');
    expect((await transcribe()).text).toBe('first');
  });

  it('sees no secret of the relay', async () => {
    const env = {
      OPENAI_API_KEY: 'HIDDEN/1',
      MY_TOKEN: 'HIDDEN/2',
      DB_PASSWORD: 'HIDDEN/3',
      HARMLESS: 'yes',
      STT: 'x',
    };
    const { transcribe } = await withScript('env', { env });
    const { text } = await transcribe();
    expect(text).toContain('HARMLESS=yes');
    expect(text).not.toContain('HIDDEN');
  });

  it.each([
    ['exit 3', 'exit code 3'],
    ['head -c 3000000 /dev/zero; sleep 60', 'more than 1 MiB'],
  ])('fails: %s', async (script, message) => {
    const { transcribe, home } = await withScript(`echo "cannot read $1" >&2; ${script}`);
    const error = await transcribe().catch((each) => each);
    expect(error).toMatchObject({ kind: 'internal', extra: { provider: 'local_command' } });
    expect(error.message).toContain(message);
    expect(error.message).not.toContain(home);
  });

  it.each([
    ['not-a-program-of-this-host', 'was not found'],
    [`sh -c 'exit`, 'not closed'],
  ])('that cannot run: %s', async (template, message) => {
    const { transcribe } = await basicVoice({ env: { SVC_LOCAL_STT_COMMAND: template } });
    await expect(transcribe()).rejects.toThrow(message);
  });

  it.each(['abort', 'timeout'])('is killed with its children: %s', async (how) => {
    const clock = createTestClock();
    const { transcribe, home, left } = await withScript(
      `sleep 600 & echo $! >"${'$2'}/../pid"; trap "" TERM; wait; sleep 600`,
      { clock },
    );
    const hangUp = new AbortController();
    const waiting = transcribe({}, { signal: hangUp.signal }).catch((error) => error);
    let pid = 0;
    await expect
      .poll(async () => {
        pid = Number(await readFile(`${home}/pid`, 'utf8').catch(() => ''));
        return pid;
      })
      .toBeGreaterThan(0);
    if (how === 'abort') hangUp.abort();
    else clock.advance(300_000);
    const error = await waiting;
    if (how === 'timeout') expect(error.message).toBe('local_command did not finish within 300 seconds');
    // Gone, or dead and not yet reaped by whoever inherited it. A signal takes effect when the process runs next.
    await expect.poll(() => readFile(`/proc/${pid}/stat`, 'utf8').catch(() => ') Z')).toMatch(/\) [ZX]/);
    expect(await left()).toEqual([]);
  });
});
