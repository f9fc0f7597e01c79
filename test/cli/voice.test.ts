import { chmod, mkdtemp, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startBuiltTarget } from '../support/built-relay.ts';
import { fakeRelay } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { begin, type Running, run } from '../support/companion-cli.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { temporaryDirectory } from '../support/temp.ts';
import { sinePcm, wavOf } from '../support/voice/audio.ts';
import { readForm } from '../support/voice/form.ts';
import { type ProviderCall, startProvider } from '../support/voice/provider.ts';
import { PROVIDER_KEY } from '../support/voice/relay.ts';
import { stubPcm } from '../support/voice/stub.ts';

/** Sessions as the operator sees them. */
interface Row {
  device_name: string;
  grants: Record<string, unknown>;
}

/** A relay whose provider is openai, faked, and the command line of `svc voice` for it. */
async function started(env: Record<string, string> = {}) {
  const provider = await startProvider();
  const relay = await startBuiltTarget({
    env: { RELAY_VOICE_OUTPUT_PROVIDER: 'openai_tts', ...env },
    hostEnv: () => ({ OPENAI_API_KEY: PROVIDER_KEY, OPENAI_BASE_URL: provider.url }),
  });
  onTestFinished(() => relay.stop());
  const folder = await temporaryDirectory();
  const settings = (more: Record<string, string> = {}) => ({ env: { RELAY_PORT: String(relay.port), ...more } });
  const sessions = async (): Promise<Row[]> =>
    (await (await relay.operator('/sessions', { headers: { 'x-svc-operator': '1' } })).json()).sessions;
  return {
    provider,
    relay,
    folder,
    sessions,
    settings,
    voice: (words: string[], input?: string) => run(['voice', ...words], { ...settings(), input: input ?? '' }),
  };
}

const pcm = Buffer.from(sinePcm(0.5, 24_000));
const lastLine = (text: string) => text.trimEnd().split('\n').at(-1);

describe('svc voice say', () => {
  it('writes every sample into a WAV, with a session that has only voice:tts and is revoked at the end', async () => {
    const { provider, folder, voice, sessions, relay } = await started();
    let during: Row[] = [];
    provider.onCall(async (call) => {
      during = await sessions();
      await call.audio(pcm, { size: 1001 });
    });
    const out = join(folder, 'speech.wav');
    const { code, stdout, stderr } = await voice(['say', 'Hello', '--out', out, '--voice', 'nova']);
    expect([code, stderr]).toEqual([0, 'Waiting for the first audio.\n']);
    expect(stdout).toMatch(/^Wrote \S+speech\.wav: 0\.5 s of speech \(openai_tts, model \S+, voice nova, 24000 Hz\)\./);
    expect(await readFile(out)).toEqual(Buffer.from(wavOf(pcm, 24_000)));
    expect(provider.calls[0]?.json()).toMatchObject({ input: 'Hello', voice: 'nova' });
    expect(during).toMatchObject([{ device_name: 'svc voice' }]);
    expect(Object.keys(during[0]?.grants ?? {})).toEqual(['voice:tts']);
    expect(await sessions()).toEqual([]);
    expect(relay.log.join('\n')).not.toContain(PROVIDER_KEY);
  });

  it('reads the text from stdin, and prints one JSON document without progress', async () => {
    const { folder, voice } = await started();
    const out = join(folder, 'tone.wav');
    const words = ['say', '-', '--provider', 'stub', '--rate', '16000', '--out', out, '--json'];
    const { code, stdout, stderr } = await voice(words, 'from\nstdin\n');
    expect([code, stderr]).toEqual([0, '']);
    expect(JSON.parse(stdout)).toMatchObject({
      file: out,
      player: null,
      provider: 'stub',
      sample_rate: 16_000,
      seconds: 0.25,
      resumed: false,
      first_audio_ms: expect.any(Number),
    });
    const samples = await stubPcm({ text: 'from\nstdin', sampleRate: 16_000 });
    expect(await readFile(out)).toEqual(Buffer.from(wavOf(samples, 16_000)));
  });

  it('plays through the first player of PATH, which gets the samples and no shell', async () => {
    const { folder, settings } = await started();
    const play = async (name: string, script: string) => {
      const path = await mkdtemp(join(tmpdir(), 'svc-player-'));
      onTestFinished(() => rm(path, { recursive: true, force: true }));
      await writeFile(join(path, name), `#!/bin/sh\n${script}\n`);
      await chmod(join(path, name), 0o755);
      return run(['voice', 'say', 'Hello; $(x)', '--provider', 'stub'], settings({ PATH: path }));
    };
    const samples = await stubPcm({ text: 'Hello; $(x)' });
    const played = await play('aplay', `echo "$@" > '${folder}/args'; exec /bin/cat > '${folder}/heard'`);
    expect(played).toMatchObject({ code: 0, stdout: expect.stringMatching(/^Played 0\.3 s of speech \(stub/) });
    expect(played.stderr).toContain('with aplay');
    expect(await readFile(join(folder, 'args'), 'utf8')).toBe('-q -t raw -f S16_LE -c 1 -r 24000 -\n');
    expect(await readFile(join(folder, 'heard'))).toEqual(samples);
    await play('ffplay', `exec /bin/cat > '${folder}/heard'`);
    expect((await readFile(join(folder, 'heard'))).subarray(44)).toEqual(samples);
    const failed = await play('paplay', 'echo "no \\033[31mdevice" >&2; exit 1');
    expect([failed.code, failed.stdout]).toEqual([1, '']);
    expect(failed.stderr).toMatch(/error: paplay failed: no .*device\n.*--out speech\.wav\n$/);
    const none = await run(['voice', 'say', 'Hello'], settings({ PATH: folder }));
    expect(none).toMatchObject({ code: 1, stdout: '' });
    expect(none.stderr).toMatch(/no player was found.*\n.*--out speech\.wav\n$/);
  });

  it('a failure of the provider is its reason and a next step; nothing is written, and the session is revoked', async () => {
    const { provider, folder, voice, sessions } = await started();
    provider.onCall((call) => call.answer(401, { error: { message: `wrong key ${PROVIDER_KEY}` } }));
    const out = join(folder, 'speech.wav');
    const { code, stdout, stderr } = await voice(['say', 'Hello', '--out', out]);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/error: OpenAI TTS answered HTTP 401: wrong key <redacted>/);
    expect(lastLine(stderr)).toMatch(/svc voice doctor$/);
    await expect(readFile(out)).rejects.toThrow('ENOENT');
    expect(await sessions()).toEqual([]);
  });

  it('a signal stops it: exit 1, the provider is let go, and the session is revoked', async () => {
    const { provider, folder, settings, sessions } = await started();
    const saying = begin(['voice', 'say', 'Hello', '--out', join(folder, 'x.wav')], settings());
    const call = await provider.call(0);
    saying.stop();
    expect(await saying.ended).toMatchObject({ code: 1, stdout: '' });
    expect(saying.stderr).toMatch(/error: stopped\n.*Run it again\.\n$/);
    expect(await sessions()).toEqual([]);
    await expect.poll(() => call.isAbandoned).toBe(true);
  });

  it('takes a lost connection up once, without losing or repeating a sample; a second loss is an error', async () => {
    const { provider, folder, relay, sessions } = await started();
    const proxy = await startFlakyProxy({ port: relay.port, seed: 1, faults: ['none'] });
    onTestFinished(() => proxy.close());
    const second = Buffer.from(sinePcm(1, 24_000));
    const out = join(folder, 'x.wav');
    const say = () =>
      begin(['voice', 'say', 'Hello', '--out', out], { env: { RELAY_PORT: String(proxy.port) }, tty: true });
    /** Streams seconds of speech until the terminal has shown another one. */
    const untilHeard = async (call: ProviderCall, saying: Running): Promise<void> => {
      const shown = () => saying.stderr.split('Received ').length;
      for (const before = shown(); shown() === before; await new Promise((resolve) => setTimeout(resolve, 20))) {
        await call.write(second);
      }
    };
    /** Loses the connection, and returns when the command has come back. */
    const lose = async (): Promise<void> => {
      const known = proxy.accepted();
      proxy.strike('reset');
      await expect.poll(() => proxy.accepted()).toBeGreaterThan(known);
    };

    const once = say();
    const first = await provider.call(0);
    first.begin();
    await untilHeard(first, once);
    await lose();
    await untilHeard(first, once);
    first.end();
    const { code, stderr } = await once.ended;
    expect([code, stderr]).toEqual([0, expect.stringContaining('taken up again')]);
    const wav = await readFile(out);
    const samples = wav.subarray(44);
    expect(samples.length % second.length).toBe(0);
    for (let at = 0; at < samples.length; at += second.length) {
      expect(samples.subarray(at, at + second.length).equals(second)).toBe(true);
    }
    expect(wav.readUInt32LE(40)).toBe(samples.length);

    const twice = say();
    const call = await provider.call(1);
    call.begin();
    await untilHeard(call, twice);
    await lose();
    await untilHeard(call, twice);
    proxy.strike('reset');
    expect((await twice.ended).code).toBe(1);
    expect(twice.stderr).toMatch(/the connection to the relay on \S+ was lost.*\n.*svc relay doctor\n$/);
    expect(await sessions()).toEqual([]);
  });
});

describe('svc voice transcribe', () => {
  const wav = wavOf(pcm, 24_000);

  it('sends the file as it is, and prints only the text on stdout', async () => {
    const { provider, folder, voice, sessions } = await started();
    let during: Row[] = [];
    provider.onCall(async (call) => {
      during = await sessions();
      call.answer(200, 'hello\u001b[31m\nworld');
    });
    const path = join(folder, 'a note.wav');
    await writeFile(path, wav);
    const { code, stdout, stderr } = await voice(['transcribe', path]);
    expect([code, stdout]).toEqual([0, 'hello[31m\nworld\n']);
    expect(stderr).toBe('Sending a note.wav, 0.0 MiB.\nTranscribing.\n');
    const { file } = readForm(provider.calls[0]?.headers['content-type'], provider.calls[0]?.body as Buffer);
    expect(file.content).toEqual(Buffer.from(wav));
    expect(Object.keys(during[0]?.grants ?? {})).toEqual(['voice:stt']);
    expect(await sessions()).toEqual([]);
    const asJson = await voice(['transcribe', path, '--json']);
    expect([asJson.code, asJson.stderr]).toEqual([0, '']);
    expect(JSON.parse(asJson.stdout)).toMatchObject({ provider: 'openai', profile: null, bytes: wav.length });
  });

  it('uses the profile of --profile, and says that it heard nothing', async () => {
    const { provider, folder, voice } = await started();
    provider.onCall((call) => call.answer(200, ''));
    await writeFile(join(folder, 'x.flac'), 'x');
    const { code, stdout, stderr } = await voice(['transcribe', join(folder, 'x.flac'), '--profile', 'a b', '--json']);
    expect([code, stderr, JSON.parse(stdout)]).toMatchObject([0, '', { text: '', profile: 'a b' }]);
    const silent = await voice(['transcribe', join(folder, 'x.flac')]);
    expect([silent.code, silent.stdout, lastLine(silent.stderr)]).toEqual([0, '', 'No speech was recognised.']);
  });

  it('shows on a terminal how much is sent, and leaves no half line behind', async () => {
    const { provider, folder, settings } = await started();
    provider.onCall((call) => call.answer(200, 'text'));
    const path = join(folder, 'long.mp3');
    await writeFile(path, new Uint8Array(8 * 1024 * 1024));
    const { code, stdout, stderr } = await run(['voice', 'transcribe', path], { ...settings(), tty: true });
    expect([code, stdout]).toEqual([0, 'text\n']);
    expect(stderr).toMatch(/Sending \d\.\d of 8\.0 MiB \(\d+ %\)\./);
    expect(stderr.endsWith('Transcribing.\r\u001b[K')).toBe(true);
  });

  it('shows an error that the relay answers while the file is still being sent', async () => {
    const relay = await startBuiltTarget({ hostEnv: () => ({}) });
    onTestFinished(() => relay.stop());
    const path = join(await temporaryDirectory(), 'long.wav');
    await writeFile(path, new Uint8Array(25 * 1024 * 1024));
    for (const words of [[], ['--profile', 'x'], ['--json']]) {
      const { code, stdout, stderr } = await run(['voice', 'transcribe', path, ...words], {
        env: { RELAY_PORT: String(relay.port) },
      });
      const isJson = words.includes('--json');
      expect([code, isJson ? stderr : stdout]).toEqual([1, '']);
      const said = isJson ? Object.values(JSON.parse(stdout)).join('\n') : stderr.trimEnd();
      expect(said).toMatch(/no API key available.*HTTP 500\)\n.*svc voice doctor$/);
    }
  });

  it('refuses what the relay would refuse, before anything is sent', async () => {
    const { folder, voice, sessions, relay } = await started();
    await writeFile(join(folder, 'empty.wav'), '');
    await writeFile(join(folder, 'huge.wav'), 'x');
    await truncate(join(folder, 'huge.wav'), 26_214_401);
    for (const [name, error] of [
      ['absent.wav', /does not exist/],
      ['empty.wav', /is empty\nRecord it again/],
      ['huge.wav', /has 25\.0 MiB: at most 25\.0.*\nSplit it/],
    ] as const) {
      const { code, stdout, stderr } = await voice(['transcribe', join(folder, name)]);
      expect([code, stdout]).toEqual([1, '']);
      expect(stderr).toMatch(error);
    }
    expect(await sessions()).toEqual([]);
    expect(relay.log.filter((text) => text.includes('authenticated'))).toEqual([]);
  });
});

describe('svc voice doctor', () => {
  it('names keys and files, measures the first audio, and never shows a key', async () => {
    const { provider, voice, sessions } = await started({ RELAY_VOICE_OUTPUT_VOICE: 'coral' });
    provider.onCall((call) => call.audio(pcm));
    const { code, stdout, stderr } = await voice(['doctor']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/openai_tts +OPENAI_API_KEY\n/);
    expect(stdout).toMatch(/elevenlabs_tts +missing: ELEVENLABS_API_KEY or VOICE_TOOLS_ELEVENLABS_KEY\n/);
    expect(stdout).toMatch(/\[OK\] voice output: openai_tts, model \S+, voice coral, settings of \S+config\.yaml/);
    expect(stdout).toMatch(/\[OK\] relay: \d+ ms to the first audio, \d+ ms in all \(stub/);
    expect(stdout).toMatch(/\[OK\] first audio: \d+ ms to the first audio, \d+ ms in all \(openai_tts, voice coral\)/);
    expect(stdout + stderr).not.toContain(PROVIDER_KEY);
    expect(provider.calls.map(({ path }) => path)).toEqual(['/audio/speech']);
    expect(await sessions()).toEqual([]);
  });

  it('exits 1 with a fix where the provider of the settings has no key, and does not call it', async () => {
    const { provider, voice } = await started({ RELAY_VOICE_OUTPUT_PROVIDER: 'elevenlabs_tts' });
    const { code, stdout } = await voice(['doctor']);
    expect(code).toBe(1);
    expect(stdout).toMatch(/\[ERROR\] voice output: elevenlabs_tts has no key\n +Fix: Set ELEVENLABS_API_KEY or/);
    expect(stdout).toMatch(/\[WARN\] realtime: xai_realtime has no key\n/);
    expect(stdout).toMatch(/1 error, 1 warning\.\n$/);
    expect(provider.calls).toEqual([]);
  });

  it('--json, --provider and --no-speech', async () => {
    const { provider, voice } = await started();
    const { code, stdout, stderr } = await voice(['doctor', '--json', '--provider', 'stub', '--no-speech']);
    expect([code, stderr]).toEqual([0, '']);
    expect(JSON.parse(stdout)).toMatchObject({
      schema_version: 1,
      output: { provider: 'openai_tts' },
      keys: expect.arrayContaining([
        { provider: 'openai_tts', key: 'present', names: ['OPENAI_API_KEY'] },
        { provider: 'stub', key: 'none', names: [] },
      ]),
      latency: { measured_provider: 'stub', stub: { first_audio_ms: expect.any(Number) }, provider: null },
    });
    expect(provider.calls).toEqual([]);
    provider.onCall((call) => call.answer(429, 'slow down'));
    const failed = await voice(['doctor', '--json']);
    expect(failed.code).toBe(1);
    expect(JSON.parse(failed.stdout).latency.provider).toEqual({ error: 'OpenAI TTS answered HTTP 429: slow down' });
  });
});

describe('svc voice, wrongly asked or alone', () => {
  it.each([
    [['say'], /missing <text>/],
    [['say', ' ', '--out', 'x.wav'], /the text is empty/],
    [['say', 'x'.repeat(5001), '--out', 'x.wav'], /has 5001 characters: at most 5000/],
    [['say', 'x', '--rate', '7999'], /--rate: must be a whole number from 8000/],
    [['say', 'x', '--out'], /--out needs a value/],
    [['say', 'x', '--profile', ' '], /--profile needs a value/],
    [['say', 'x', 'y'], /unexpected argument/],
    [['say', 'x', '--out', 'x.wav', '--relay', 'http://relay.example.com'], /--relay: must be an https:/],
    [['transcribe'], /missing <file>/],
    [['transcribe', 'note.txt'], /no known extension: use one of wav, mp3/],
    [['doctor', 'x'], /unexpected argument/],
    [['sing'], /unknown command/],
  ])('(%#): exit 2, and where the help is', async (words, error) => {
    const { code, stdout, stderr } = await run(['voice', ...words]);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(error);
    expect(lastLine(stderr)).toMatch(/^Run 'svc voice( \w+)? --help' for help\.$/);
  });

  it('help shows every command with examples', async () => {
    expect((await run(['voice', '--help'])).stdout).toMatch(/say <text>[\s\S]*transcribe <file>[\s\S]*doctor/);
    for (const command of ['say', 'transcribe', 'doctor']) {
      const { code, stdout } = await run(['voice', command, '--help']);
      expect([code, stdout]).toEqual([0, expect.stringMatching(/--relay <url>[\s\S]*--json[\s\S]*Examples:/)]);
    }
  });

  it('without a relay, or with something else on its port: exit 1 and the next step', async () => {
    const folder = await temporaryDirectory({ 'x.wav': 'x' });
    const other = await fakeRelay(() => ({ status: 404, body: { error: 'no' } }));
    for (const words of [
      ['say', 'x', '--out', join(folder, 'y.wav')],
      ['transcribe', join(folder, 'x.wav')],
      ['doctor'],
    ]) {
      const none = await run(['voice', ...words], { env: { RELAY_PORT: String(await closedPort()) } });
      expect([none.code, none.stdout]).toEqual([1, '']);
      expect(none.stderr).toMatch(/no relay answers on 127\.0\.0\.1:\d+.*\n.*svc relay start/);
      const wrong = await run(['voice', ...words], { env: { RELAY_PORT: String(other.port) } });
      expect([wrong.code, wrong.stdout]).toEqual([1, '']);
      expect(wrong.stderr).toMatch(/is not a relay \(HTTP 404\)\n.*svc relay start/);
    }
  });

  it('a folder that does not exist is found before anything is spoken', async () => {
    const { code, stderr } = await run(['voice', 'say', 'x', '--out', '/nonexistent/x.wav']);
    expect(code).toBe(1);
    expect(stderr).toMatch(/cannot write to the folder \/nonexistent\nChoose another --out\.\n$/);
  });
});
