import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { begin, run, type Setting } from '../support/companion-cli.ts';
import { temporaryDirectory } from '../support/temp.ts';
import { sinePcm, wavOf } from '../support/voice/audio.ts';
import { startOwnServer } from '../support/voice/openai-server.ts';
import { startProvider } from '../support/voice/provider.ts';

const CONFIG =
  '# mine\ntts:\n    provider: openai   # was fine\n    voice:   nova\n    api_key: sk-old\nother:   {a: 1}\n';

/** A home with a configuration, and what `svc voice setup` makes of it. */
async function started(env: Record<string, string> = {}, config = CONFIG) {
  const home = await temporaryDirectory({ 'config.yaml': config });
  const relayHome = await temporaryDirectory();
  const setting: Setting = { home, env: { SVC_RELAY_HOME: relayHome, HOME: home, ...env }, input: '' };
  const files = { config: join(home, 'config.yaml'), relay: join(relayHome, 'config.yaml') };
  const read = (name: keyof typeof files) => readFile(files[name], 'utf8').catch(() => null);
  const setup = (...words: string[]) => run(['voice', 'setup', ...words], setting);
  return { home, files, read, setup, setting };
}

/** A folder for `PATH` with programs of shell. */
async function programs(scripts: Record<string, string>): Promise<string> {
  const folder = await temporaryDirectory({ 'tone.wav': '' });
  await writeFile(join(folder, 'tone.wav'), wavOf(sinePcm(1, 22_050), 22_050));
  for (const [name, script] of Object.entries(scripts)) {
    await writeFile(join(folder, name), `#!/bin/sh\n${script}\n`);
    await chmod(join(folder, name), 0o700);
  }
  return folder;
}

const SPEAKS = '/bin/cat >/dev/null; /bin/cat "$(/usr/bin/dirname "$0")/tone.wav"';
const ESPEAK = `if [ "$1" = --voices ]; then echo 'Pty Language Age/Gender VoiceName File'
echo ' 5 de --/M German gmw/de x'; exit; fi
${SPEAKS}`;

it('finds servers at ports of this machine, and writes nothing without --yes', async () => {
  const [own, cpp] = [
    await startOwnServer({ models: ['kokoro', 'Systran/faster-whisper-small'], voices: ['bm_lewis', 'af_heart'] }),
    await startOwnServer({ isWhisperCpp: true }),
  ];
  const { setup, read } = await started();
  const { code, stdout, stderr } = await setup('--json', '--port', `${own.port}, ${cpp.port}`);
  expect([code, stderr]).toEqual([0, '']);
  const { found, chosen, written } = JSON.parse(stdout);
  const at = (port: number) => found.filter(({ url }: { url: string | null }) => url?.includes(`:${port}/`));
  expect(at(own.port)).toEqual([
    { url: own.url, kind: 'stt', models: ['Systran/faster-whisper-small'], voices: [], needs_key: false },
    { url: own.url, kind: 'tts', models: ['kokoro'], voices: ['bm_lewis', 'af_heart'], needs_key: false },
  ]);
  expect(at(cpp.port)).toEqual([
    { url: `${cpp.origin}/inference`, kind: 'stt', models: [], voices: [], needs_key: false },
  ]);
  expect(chosen.tts).toBeDefined();
  expect(written).toEqual([]);
  expect(await read('config')).toBe(CONFIG);
  expect(await read('relay')).toBeNull();
  // Asked what they can do, and made to do nothing.
  expect([own.calls.speech, own.calls.transcriptions, cpp.calls.transcriptions]).toEqual([[], [], []]);
});

it('tries the choice and writes it, with every other line as it was', async () => {
  const own = await startOwnServer({ models: ['kokoro', 'whisper-1'], voices: ['af_heart'], key: 'key-of-mine' });
  const { setup, read, files } = await started();
  const words = [
    '--yes',
    '--json',
    '--tts',
    own.url,
    '--stt',
    `${own.url}/`,
    '--key',
    'key-of-mine',
    '--language',
    'de',
  ];
  const { code, stdout } = await setup(...words);
  expect(code).toBe(0);
  const answer = JSON.parse(stdout);
  expect(answer).toMatchObject({
    chosen: { tts: { base_url: own.url, model: 'kokoro', voice: 'af_heart', api_key: '<hidden>' } },
    tried: { tts: { seconds: expect.any(Number) }, stt: { text: expect.stringMatching(/^heard \d{5,6} bytes$/) } },
    written: [files.config, files.relay],
  });
  expect(stdout).not.toContain('key-of-mine');
  const local = (model: string, voice = '') =>
    `    local:\n        base_url: ${own.url}\n        api_key: key-of-mine\n        model: ${model}\n${voice}        language: de\n`;
  expect(await read('config')).toBe(
    `# mine\ntts:\n    provider: local   # was fine\n    openai:\n        voice: nova\n        api_key: sk-old\n${local('kokoro', '        voice: af_heart\n')}` +
      `other:   {a: 1}\nstt:\n    provider: local\n${local('whisper-1')}`,
  );
  expect(await read('relay')).toBe('voice_output:\n  provider: local_tts\n');
  expect(own.calls.transcriptions[0]).toMatchObject({ model: 'whisper-1', language: 'de' });
  const again = await setup(...words);
  expect(JSON.parse(again.stdout).written).toEqual([]);
});

it('configures a program, and goes from a server to it and back', async () => {
  const PATH = await programs({ 'espeak-ng': ESPEAK });
  const own = await startOwnServer({ parts: ['tts'] });
  const { setup, read } = await started({ PATH, LANG: 'de_DE.UTF-8' }, '');
  expect((await setup('--yes', '--tts', own.url, '--stt', 'none', '--model', 'm')).code).toBe(0);
  const { code, stdout } = await setup('--yes', '--tts', 'espeak-ng', '--stt', 'none');
  expect(code).toBe(0);
  expect(stdout).toMatch(/Spoke 1\.0 s of speech: first audio after \d+ ms/);
  expect(await read('config')).toBe(
    'tts:\n  provider: local\n  local:\n    command: ["espeak-ng", "--stdin", "--stdout", "-v", "{voice}", "-s", "{words_per_minute}"]\n    voice: de\n',
  );
  expect((await setup('--yes', '--tts', own.url, '--stt', 'none')).code).toBe(0);
  expect(await read('config')).toMatch(/^tts:\n {2}provider: local\n {2}local:\n(?: {4}\w+: \S+\n)+$/);
  expect(await read('config')).not.toContain('command');
});

it('finds piper with its voice and rate, and not the program for mice of that name', async () => {
  const PATH = await programs({ piper: `[ "$1" = --help ] && echo 'usage: piper --output-raw'; ${SPEAKS}` });
  const { home, setup } = await started({ PATH });
  const voices = join(home, '.local/share/piper/de');
  const none = JSON.parse((await setup('--json')).stdout);
  expect(none.found.filter(({ program }: { program?: string }) => program === 'piper')).toEqual([]);
  await mkdir(voices, { recursive: true });
  await writeFile(join(voices, 'de_DE-low.onnx'), '');
  await writeFile(join(voices, 'de_DE-low.onnx.json'), '{"audio": {"sample_rate": 16000}}');
  const { found } = JSON.parse((await setup('--json')).stdout);
  expect(found.find(({ program }: { program?: string }) => program === 'piper')).toMatchObject({
    kind: 'tts',
    command: ['piper', '-m', join(voices, 'de_DE-low.onnx'), '--output-raw', '--length_scale', '{length_scale}'],
    sample_rate: 16_000,
  });
  const mice = await started({ PATH: await programs({ piper: 'echo "Configure your mouse"' }) });
  expect((await mice.setup('--json')).stdout).not.toContain('"piper"');
});

it.each<[string, string[], RegExp]>([
  [
    'a server that is not there',
    ['--yes', '--tts', 'http://127.0.0.1:9/v1'],
    /nothing speaks at http:\/\/127\.0\.0\.1:9/,
  ],
  ['a program that fails', ['--yes', '--tts', 'espeak-ng', '--stt', 'none'], /speech was tried and failed: .*no voice/],
  ['nobody to ask', ['--stt', 'none'], /there is no terminal to ask on/],
  [
    'a profile without a file',
    ['--yes', '--tts', 'espeak-ng', '--no-try', '--stt', 'none', '--profile', 'no'],
    /has no configuration file/,
  ],
  ['a bad port', ['--json', '--port', '8000,x'], /--port/],
])('writes nothing: %s', async (_, words, message) => {
  const PATH = await programs({ 'espeak-ng': 'echo "no voice here" >&2; exit 1' });
  const { setup, read } = await started({ PATH });
  const { code, stdout, stderr } = await setup(...words);
  expect(code).toBeGreaterThan(0);
  expect(stdout + stderr).toMatch(message);
  expect(await read('config')).toBe(CONFIG);
  expect(await read('relay')).toBeNull();
});

it('guides a person: what there is, a choice, a try, and the question before it writes', async () => {
  const PATH = await programs({ 'espeak-ng': ESPEAK, aplay: 'exec /bin/cat >"$0.heard"' });
  const own = await startOwnServer();
  const { setting, read } = await started({ PATH });
  const running = begin(['voice', 'setup', '--port', String(own.port)], { ...setting, input: undefined, tty: true });
  await running.prints(/What should speak\?/);
  await running.prints(/Number \[1\]:/);
  const number = new RegExp(`^ +(\\d+) +${own.url}`, 'm').exec(running.stdout)?.[1] ?? '1';
  running.type(`${number}\n`);
  await running.prints(/What should transcribe\?/);
  running.type('0\n');
  await running.prints(/Play a sentence with aplay\? \[y\/N\]/);
  running.type('y\n');
  await running.prints(/Write this configuration\? \[y\/N\]/);
  expect(await read('config')).toBe(CONFIG);
  running.type('y\n');
  expect((await running.ended).code).toBe(0);
  expect(running.stdout).toContain('Next: svc voice say "Hello"');
  expect(await read('config')).toContain(`base_url: ${own.url}`);
  expect((await readFile(join(PATH, 'aplay.heard'))).length).toBeGreaterThan(48_000);
});

it('finds a realtime server, and names it for the agent when it is asked to', async () => {
  const provider = await startProvider();
  provider.onCall((call) =>
    call.path === '/v1/models' ? call.answer(200, { data: [{ id: 'home-realtime' }] }) : call.answer(404, 'no'),
  );
  const url = `${provider.url}/v1`;
  const { setup, read } = await started();
  const { found, chosen } = JSON.parse((await setup('--json', '--port', new URL(url).port)).stdout);
  expect(found).toContainEqual({ url, kind: 'realtime', models: ['home-realtime'], voices: [], needs_key: false });
  expect(chosen.realtime).toBeUndefined();
  const { code } = await setup('--yes', '--realtime', url, '--tts', 'none', '--stt', 'none');
  expect(code).toBe(0);
  expect(await read('relay')).toBe(
    `realtime_voice:\n  provider: local_realtime\nrealtime:\n  local:\n    base_url: ${url}\n`,
  );
  expect(await read('config')).toBe(CONFIG);
});
