import { chmod, readFile, writeFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { createNodeUpstream } from '../../../lib/host/node/upstream.ts';
import { createNodeDialUpstream } from '../../../lib/host/node/upstream-socket.ts';
import { systemClock } from '../../../lib/kit/clock.ts';
import type { Mapping } from '../../../lib/kit/yaml.ts';
import { sttTimeout } from '../../../lib/voice/basic/stt.ts';
import { filled } from '../../../lib/voice/command.ts';
import { createVoiceCredentials } from '../../../lib/voice/credentials.ts';
import { espeakVoices } from '../../../lib/voice/program-voices.ts';
import { findProvider, type StreamingProvider } from '../../../lib/voice/registry.ts';
import { commandOf, overlaidServers, serverDefaults } from '../../../lib/voice/servers.ts';
import { createAdapters } from '../../../lib/voice/streaming/adapters.ts';
import { createTestHost } from '../../support/host.ts';
import { temporaryDirectory } from '../../support/temp.ts';
import { mp3Frames, sinePcm, wavOf } from '../../support/voice/audio.ts';
import { spokenSeconds, startOwnServer } from '../../support/voice/openai-server.ts';
import { basicVoice } from './basic/support.ts';
import { aRequest, rendered } from './streaming/support.ts';

const TEXT = 'Hi there.';
const SECONDS = spokenSeconds(TEXT);

/** An adapter with no keys in its environment, and the programs of this host. */
function adapterOf(id: string, env: Record<string, string> = {}, hasHost = true) {
  const host = createTestHost({ agentHome: '/nowhere', env: { PATH: process.env.PATH ?? '', ...env } });
  const adapters = createAdapters({
    ...(hasHost && { host }),
    upstream: createNodeUpstream(),
    dialUpstream: createNodeDialUpstream(),
    clock: systemClock,
    credentials: createVoiceCredentials({ env }),
  });
  return adapters(id) ?? expect.fail(`there is no adapter ${id}`);
}

/** A program of shell, in a directory of its own. */
async function programOf(script: string) {
  const folder = await temporaryDirectory();
  const program = `${folder}/the program`;
  await writeFile(program, `#!/bin/sh\n${script}\n`);
  await chmod(program, 0o700);
  return { folder, program };
}

/** A program that plays a WAV of a tone, whatever it is told, and notes what it was told. */
async function speaker(rate = 22_050, seconds = 0.4) {
  const { folder, program } = await programOf(
    'printf "%s\\n" "$@" >"$(dirname "$0")/args"; cat >"$(dirname "$0")/stdin"; env >"$(dirname "$0")/env"; cat "$(dirname "$0")/tone.wav"',
  );
  await writeFile(`${folder}/tone.wav`, wavOf(sinePcm(seconds, rate), rate));
  const note = (name: string) => readFile(`${folder}/${name}`, 'utf8');
  return { program, args: async () => (await note('args')).split('\n').slice(0, -1), stdin: () => note('stdin'), note };
}

const named = (id: string): StreamingProvider => findProvider(id) ?? expect.fail();

describe('the server of the owner (contract 05 §18)', () => {
  it.each(['local', 'openai_compatible', 'OpenAI-Compatible'])(
    'as %s: speaks and transcribes without a key',
    async (name) => {
      const own = await startOwnServer({ always: 'wav', rate: 16_000, label: 'audio/mpeg' });
      const { speak, transcribe } = await basicVoice({
        env: { OPENAI_API_KEY: 'sk-of-openai' },
        config: {
          tts: { provider: name, [name]: { base_url: own.url, model: 'kokoro', voice: 'af_heart', speed: 1.5 } },
          stt: { provider: name, [name]: { base_url: own.url, model: 'small.en', language: 'de' } },
        },
      });
      const { audio, provider } = await speak({ text: TEXT });
      expect(provider).toBe('local');
      // What came was WAV of 16 kHz under the label of an MP3.
      const mp3 = mp3Frames(audio);
      expect(mp3).toMatchObject({ sampleRate: 24_000, rest: 0 });
      expect(Math.abs(mp3.seconds - SECONDS)).toBeLessThan(0.1);
      expect(await transcribe({ content: Buffer.from('RIFF clip') })).toEqual({
        text: 'heard 9 bytes',
        provider: 'local',
      });
      expect(own.calls.speech).toEqual([
        { model: 'kokoro', voice: 'af_heart', input: TEXT, response_format: 'mp3', speed: 1.5 },
      ]);
      expect(own.calls.transcriptions).toMatchObject([
        { model: 'small.en', response_format: 'json', language: 'de', fileName: 'audio.wav' },
      ]);
      // The keys of others are not sent to it.
      expect(own.calls.requests.map(({ bearer }) => bearer)).toEqual([undefined, undefined]);
    },
  );

  it('has its own key, format, and base URL for each direction', async () => {
    const [tts, stt] = [await startOwnServer({ key: 'my-own-key' }), await startOwnServer()];
    const { speak, transcribe } = await basicVoice({
      config: {
        tts: { provider: 'local', local: { base_url: tts.url, api_key: 'my-own-key', response_format: 'wav' } },
        stt: { provider: 'local', local: { base_url: stt.url, response_format: 'text' } },
      },
    });
    expect(mp3Frames((await speak({ text: TEXT })).audio).rest).toBe(0);
    expect((await transcribe()).text).toBe('heard 4 bytes');
    expect(tts.calls.speech).toEqual([{ model: 'tts-1', voice: 'alloy', input: TEXT, response_format: 'wav' }]);
    expect(stt.calls.transcriptions).toMatchObject([{ model: 'whisper-1', response_format: 'text' }]);
  });

  it('is whisper.cpp, whose path is another', async () => {
    const own = await startOwnServer({ isWhisperCpp: true });
    for (const base_url of [own.url, own.origin, `${own.origin}/inference`]) {
      const { transcribe } = await basicVoice({ config: { stt: { provider: 'local', local: { base_url } } } });
      expect((await transcribe()).text).toBe('heard 4 bytes');
    }
    expect(own.calls.requests.map(({ target }) => target)).toEqual([
      'POST /v1/audio/transcriptions',
      'POST /inference',
      'POST /audio/transcriptions',
      'POST /inference',
      'POST /inference',
    ]);
  });

  it.each<[string, Mapping, string]>([
    ['nothing', {}, 'no API key available: tts.local needs a base_url'],
    ['a public server without a key', { base_url: 'https://tts.test/v1' }, 'no API key available'],
    ['a server and a program', { base_url: 'http://127.0.0.1:1', command: ['x'] }, 'both base_url and command'],
    ['a command line of a shell', { command: 'espeak-ng | sox' }, 'must be a list'],
    ['an empty command', { command: [] }, 'must be a list'],
    ['a program that is missing', { command: ['no-such-program-here'] }, 'was not found'],
  ])('is refused when it is configured as %s', async (_, local, message) => {
    const { speak } = await basicVoice({ config: { tts: { provider: 'local', local } } });
    await expect(speak({ text: TEXT })).rejects.toMatchObject({
      kind: 'internal',
      message: expect.stringContaining(message),
      extra: { provider: 'local' },
    });
  });

  it.each<[string, { always?: 'wav' | 'pcm'; rate: number; label?: string }, Mapping]>([
    ['raw PCM of 24 kHz', { rate: 24_000 }, {}],
    ['raw PCM whose label names the rate', { rate: 16_000, label: 'audio/pcm;rate=16000' }, {}],
    ['raw PCM whose rate is configured', { rate: 22_050 }, { sample_rate: 22_050 }],
    ['WAV of another rate, labelled as MP3', { always: 'wav', rate: 16_000, label: 'audio/mpeg' }, {}],
    ['WAV, because that is configured', { rate: 44_100 }, { response_format: 'wav' }],
  ])('streams %s as 24 kHz', async (_, server, settings) => {
    const own = await startOwnServer(server);
    const servers = { tts: { provider: 'openai', local: { base_url: own.url, ...settings } } };
    const request = aRequest({ text: TEXT, model: 'kokoro', voice: 'af_heart', servers });
    const { chunks, result, pcm } = await rendered(adapterOf('local_tts'), request);
    expect(result).toMatchObject({ provider: 'local_tts', model: 'kokoro', voice: 'af_heart' });
    expect(new Set(chunks.map(({ sampleRate }) => sampleRate))).toEqual(new Set([24_000]));
    expect(Math.abs(pcm.length / 2 / 24_000 - SECONDS)).toBeLessThan(0.01);
    expect(own.calls.requests).toEqual([{ target: 'POST /v1/audio/speech', bearer: undefined }]);
  });

  it('takes the speed of a request, else the configured one', async () => {
    const own = await startOwnServer();
    const servers = { tts: { local: { base_url: own.url, speed: 0.8 } } };
    await rendered(adapterOf('local_tts'), aRequest({ servers }));
    await rendered(adapterOf('local_tts'), aRequest({ servers, options: { speed: 2 } }));
    expect(own.calls.speech.map(({ speed }) => speed)).toEqual([0.8, 2]);
  });

  it('is missing: the error says what to configure', async () => {
    await expect(rendered(adapterOf('local_tts'), aRequest({ servers: {} }))).rejects.toThrow('set tts.local.base_url');
    const realtime = rendered(adapterOf('local_realtime'), aRequest({ servers: {} }));
    await expect(realtime).rejects.toThrow('set realtime.local.base_url');
  });
});

describe('a program of the owner (contract 05 §18)', () => {
  it('speaks: the text over stdin, a WAV on stdout, no shell, no secrets, nothing left', async () => {
    const { program, args, stdin, note } = await speaker();
    const command = [program, '-v', '{voice}', '--speed={words_per_minute}', '$HOME `id`', 7];
    const { speak, left } = await basicVoice({
      env: { OPENAI_API_KEY: 'sk-secret', HARMLESS: 'yes' },
      config: { tts: { provider: 'local', local: { command, voice: 'de', speed: 2 } } },
    });
    const { audio, provider } = await speak({ text: '--help $(id)' });
    expect(provider).toBe('local');
    const mp3 = mp3Frames(audio);
    expect(mp3).toMatchObject({ sampleRate: 24_000, rest: 0 });
    expect(Math.abs(mp3.seconds - 0.4)).toBeLessThan(0.1);
    expect(await args()).toEqual(['-v', 'de', '--speed=350', '$HOME `id`', '7']);
    expect(await stdin()).toBe('--help $(id)\n');
    expect(await note('env')).toContain('HARMLESS=yes');
    expect(await note('env')).not.toContain('sk-secret');
    expect(await left()).toEqual([]);
  });

  it('gets the text as an argument that cannot become an option, or as a file, and may write a file', async () => {
    const argument = await speaker();
    const spoken = async (command: unknown[]) => {
      const { speak, left } = await basicVoice({ config: { tts: { provider: 'local', local: { command } } } });
      const { audio } = await speak({ text: '-w /etc/passwd' });
      expect(await left()).toEqual([]);
      return mp3Frames(audio).seconds;
    };
    expect(await spoken([argument.program, '{text}', 'say: {text}'])).toBeGreaterThan(0.35);
    expect(await argument.args()).toEqual([' -w /etc/passwd', 'say: -w /etc/passwd']);
    expect(await argument.stdin()).toBe('');
    const { folder, program } = await programOf(
      'cp "$1" "$(dirname "$0")/text"; cp "$(dirname "$0")/tone.wav" "$2"; echo noise',
    );
    await writeFile(`${folder}/tone.wav`, wavOf(sinePcm(0.8, 8000), 8000));
    expect(await spoken([program, '{input_path}', '{output_path}'])).toBeGreaterThan(0.7);
    expect(await readFile(`${folder}/text`, 'utf8')).toBe('-w /etc/passwd\n');
  });

  it.each([
    ['exit 3', 'exit code 3'],
    ['echo "no such voice: $0" >&2; exit 1', 'exit code 1: no such voice'],
    ['exit 0', 'returned no audio'],
    ['cat /dev/zero', 'more than 64 MiB'],
  ])('fails: %s', async (script, message) => {
    const { program, folder } = await programOf(script);
    const { speak, left } = await basicVoice({ config: { tts: { provider: 'local', local: { command: [program] } } } });
    const error = await speak({ text: TEXT }).catch((each) => each);
    expect(error).toMatchObject({ kind: 'internal', extra: { provider: 'local' } });
    expect(error.message).toContain(message);
    expect(error.message).not.toContain(folder);
    expect(await left()).toEqual([]);
  });

  it('streams while it speaks, and is killed with its children when the render ends early', async () => {
    const { folder, program } = await programOf(
      'cat "$(dirname "$0")/tone.wav"; sleep 600 & echo $! >"$(dirname "$0")/pid"; trap "" TERM; wait; sleep 600',
    );
    // A second of a minute that is still to come.
    await writeFile(`${folder}/tone.wav`, wavOf(sinePcm(60, 22_050), 22_050).subarray(0, 44_144));
    const end = new AbortController();
    const servers = { tts: { local: { command: [program] } } };
    const request = aRequest({ voice: 'default', servers, signal: end.signal });
    const audio = adapterOf('local_tts')(request);
    const first = await audio.next();
    expect(first.value).toMatchObject({ sampleRate: 24_000 });
    await expect.poll(() => readFile(`${folder}/pid`, 'utf8').catch(() => '')).toMatch(/\d/);
    const pid = Number(await readFile(`${folder}/pid`, 'utf8'));
    end.abort(new Error('the session has ended'));
    const last = async () => {
      for (;;) if ((await audio.next()).done) return;
    };
    await expect(last()).rejects.toThrow('the session has ended');
    await expect.poll(() => readFile(`/proc/${pid}/stat`, 'utf8').catch(() => ') Z')).toMatch(/\) [ZX]/);
  });

  it.each(['../../etc/passwd', '-w', '/etc/passwd', 'a/b', 'a..b', 'x\0y'])(
    'is given no voice %j of a client',
    async (voice) => {
      const { program } = await speaker();
      const servers = { tts: { local: { command: [program, '{voice}'] } } };
      const refused = rendered(adapterOf('local_tts'), aRequest({ voice, servers }));
      await expect(refused).rejects.toThrow('cannot be given to a program');
      await expect(rendered(adapterOf('local_tts'), aRequest({ voice: 'en-us+f3', servers }))).resolves.toBeDefined();
    },
  );

  it('transcribes: the clip as a file or over stdin, the transcript as a file or on stdout', async () => {
    const said = async (script: string, ...args: string[]) => {
      const { program } = await programOf(script);
      const local = { command: [program, ...args], model: 'base.en', language: 'de' };
      const { transcribe, left } = await basicVoice({ config: { stt: { provider: 'local', local } } });
      const outcome = await transcribe({ content: Buffer.from('RIFF clip') });
      expect(await left()).toEqual([]);
      return outcome;
    };
    expect(await said('echo " $(cat "$1") $2 $3 "', '{input_path}', '{language}', '{model}')).toEqual({
      text: 'RIFF clip de base.en',
      provider: 'local',
    });
    expect(await said('echo "got $(cat)"')).toMatchObject({ text: 'got RIFF clip' });
    expect(await said('echo progress; cat >"$1"', '{output_path}')).toMatchObject({ text: 'RIFF clip' });
    expect(await said('echo progress; cp "$1" "$2/a.txt"', '{input_path}', '{output_dir}')).toMatchObject({
      text: 'RIFF clip',
    });
  });

  it('cannot be started without a host, as at the edge', async () => {
    const config = {
      tts: { provider: 'local', local: { command: ['espeak-ng'] } },
      stt: { provider: 'local', local: { command: ['whisper-cli'] } },
    };
    const { speak, transcribe } = await basicVoice({ config, hasHost: false });
    await expect(speak({ text: TEXT })).rejects.toThrow('cannot start programs');
    await expect(transcribe()).rejects.toThrow('cannot start programs');
    const streamed = rendered(adapterOf('local_tts', {}, false), aRequest({ servers: { tts: config.tts } }));
    await expect(streamed).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining('without a host'),
    });
  });
});

describe('settings of servers (contract 05 §18)', () => {
  it('placeholders stay within their argument, and unknown ones stay as they are', () => {
    expect(filled(['{text}', 'a{text}', '{other}', '{constructor}'], { text: '-x' })).toEqual([
      ' -x',
      'a-x',
      '{other}',
      '{constructor}',
    ]);
  });

  it('a command is a list of plain values', () => {
    expect(commandOf('tts', { local: { command: ['piper', '--length_scale', 1.5] } })).toEqual([
      'piper',
      '--length_scale',
      '1.5',
    ]);
    expect(commandOf('tts', { local: { command: null } })).toBeUndefined();
    for (const command of [[['x']], ['x', null], [' '], ['x', 'a\0b'], Array(65).fill('x')]) {
      expect(() => commandOf('stt', { local: { command } })).toThrow('stt.local.command must be a list');
    }
  });

  it('a server that a profile names comes without the key of another one', () => {
    const below = { local: { base_url: 'http://a', api_key: 'k', model: 'm' }, openai: { api_key: 'o' } };
    expect(overlaidServers(below, { openai_compatible: { base_url: 'http://b' } })).toEqual({
      local: { base_url: 'http://b' },
      openai: { api_key: 'o' },
    });
    expect(overlaidServers(below, { local: { model: 'n' } }).local).toEqual({ ...below.local, model: 'n' });
    expect(overlaidServers(below, 'none')).toEqual(below);
  });

  it('model and voice of a section hold where none is named', () => {
    const servers = {
      tts: { provider: 'nous', model: 'flat', local: { voice: 'af' } },
      realtime: { local: { model: 'r' } },
    };
    expect(serverDefaults(named('openai_tts'), servers)).toEqual({ model: 'flat', voice: 'coral' });
    expect(serverDefaults(named('local_tts'), servers)).toEqual({ model: 'tts-1', voice: 'af' });
    expect(serverDefaults(named('local_realtime'), servers)).toEqual({ model: 'r', voice: 'alloy' });
    const program = { tts: { local: { command: ['x'] } } };
    expect(serverDefaults(named('local_tts'), program)).toEqual({ model: 'command', voice: 'default' });
  });

  it('OpenAI itself has 30 seconds, a server on the owner’s network 300', () => {
    const key = (baseUrl: string) => ({ secret: '', baseUrl, source: 'none' });
    expect(sttTimeout('openai', { settings: {} }, key('https://api.openai.com/v1'))).toBe(30_000);
    expect(sttTimeout('openai', { settings: {} }, key('http://192.168.1.7:8000/v1'))).toBe(300_000);
    expect(sttTimeout('mistral', { settings: {} }, key('http://192.168.1.7:8000'))).toBe(60_000);
  });

  it('reads the list of espeak-ng', () => {
    const text = `Pty Language       Age/Gender VoiceName          File                 Other Languages
 5  de              --/M      German             gmw/de
 2  en-us           --/M      English_(America)  gmw/en-US            (en 3)
`;
    expect(espeakVoices(text)).toEqual([
      { id: 'de', label: 'German' },
      { id: 'en-us', label: 'English (America)' },
    ]);
  });
});
