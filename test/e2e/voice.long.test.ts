import { readdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { selfSigned } from '../support/certificate.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { filesBelow, launch } from '../support/process.ts';
import { bearer, post } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';
import { hasProgram } from '../support/terminal.ts';
import { sinePcm, wavOf } from '../support/voice/audio.ts';
import { audioOf, connectVoice } from '../support/voice/client.ts';
import { readForm } from '../support/voice/form.ts';
import { createOutput, speak } from '../support/voice/output.ts';
import { startVoiceProcess } from '../support/voice/process.ts';
import type { ProviderCall } from '../support/voice/provider.ts';
import { PROVIDER_KEY } from '../support/voice/relay.ts';
import { canSpeak, heard, spoken } from '../support/voice/speech.ts';

const RATE = 24_000;
const SENTENCE = 'The relay carries every sample of this sentence exactly once, whatever becomes of the network.';
const isSpeaking = canSpeak();

/** The sentence as 24 kHz PCM: spoken where this machine can, else a tone of the same length. */
const sentence = async (): Promise<Buffer> => (isSpeaking ? spoken(SENTENCE, RATE) : Buffer.from(sinePcm(6, RATE)));

it('speech goes out and comes back as it is: said, written, heard by sox, transcribed', async () => {
  const { provider, svc, sessions, runs, relay } = await startVoiceProcess();
  const speech = await sentence();
  provider.onCall(async (call) => {
    if (call.path === '/audio/speech') await call.audio(speech, { size: 1777 });
    else if (call.path === '/audio/transcriptions') call.answer(200, SENTENCE);
    else call.answer(404, {});
  });
  const folder = await temporaryDirectory();
  const out = join(folder, 'speech.wav');
  const said = await svc('voice', 'say', SENTENCE, '--voice', 'nova', '--out', out);
  expect([said.code, said.stderr]).toEqual([0, 'Waiting for the first audio.\n']);
  expect(provider.calls[0]?.json()).toMatchObject({ input: SENTENCE, voice: 'nova', response_format: 'pcm' });
  const [recording] = (await filesBelow(runs)).filter(({ path }) => path.endsWith('.wav'));
  expect(recording?.bytes).toEqual(await readFile(out));
  if (isSpeaking) {
    expect(await heard(out)).toEqual({ rate: RATE, channels: 1, bits: 16, samples: speech.length / 2, pcm: speech });
  } else expect(await readFile(out)).toEqual(Buffer.from(wavOf(speech, RATE)));

  // The key for transcription is chosen by what is there: openai.
  const text = await svc('voice', 'transcribe', out);
  expect([text.code, text.stdout]).toEqual([0, `${SENTENCE}\n`]);
  const { path, headers, body } = provider.calls[1] as ProviderCall;
  expect(path).toBe('/audio/transcriptions');
  const { file, fields } = readForm(headers['content-type'], body);
  expect([file.filename.endsWith('.wav'), file.content.equals(await readFile(out))]).toEqual([true, true]);
  expect(Object.fromEntries(fields)).toMatchObject({ model: 'whisper-1', response_format: 'text' });

  const doctor = await svc('voice', 'doctor', '--json');
  expect(doctor.code).toBe(0);
  const { latency, keys } = JSON.parse(doctor.stdout);
  const figures = { first_audio_ms: expect.any(Number), total_ms: expect.any(Number) };
  // Only a server of the owner's speaks and transcribes for the figures of both: others charge for it.
  const unmeasured = { speech: null, transcription: null };
  expect(latency).toEqual({ measured_provider: 'openai_tts', stub: figures, provider: figures, ...unmeasured });
  // It has a key, with which it does not list its voices.
  expect(keys).toContainEqual(
    expect.objectContaining({ provider: 'elevenlabs_tts', key: 'present', problem: expect.stringContaining('404') }),
  );
  for (const call of provider.calls) {
    expect(call.headers.authorization ?? call.headers['xi-api-key']).toMatch(new RegExp(`^(Bearer )?${PROVIDER_KEY}$`));
  }
  const everything = [said, text, doctor].map(({ stdout, stderr }) => stdout + stderr).join('') + relay.output;
  expect(everything).not.toContain(PROVIDER_KEY);
  // Session tokens are UUIDs.
  expect(said.stdout + said.stderr + text.stderr).not.toMatch(/[0-9a-f]{8}-[0-9a-f]{4}/);
  expect(await sessions()).toEqual([]);
});

it('a phone that loses its network in the middle of a sentence hears every sample once', async () => {
  const { provider, relay, pair, target } = await startVoiceProcess();
  const speech = await sentence();
  // Slower than a phone comes back, so that the loss is in the middle.
  provider.onCall((call) => call.audio(speech, { size: 8192 }));
  const proxy = await startFlakyProxy({
    port: relay.port,
    seed: 12,
    faults: ['cut', 'reset', 'none'],
    after: [8_000, 60_000],
  });
  onTestFinished(() => proxy.close());
  const token = await pair();
  const phone = await speak(target, { token }, { provider: 'openai_tts', text: SENTENCE, port: () => proxy.port });
  await phone.finished;
  expect(phone.audio().equals(speech)).toBe(true);
  expect(phone.connects()).toBeGreaterThan(1);

  // The network is there, but nothing passes any more: the phone changes it, with the old socket still open.
  proxy.plan(['none']);
  const begun = provider.calls.length;
  let goOn = () => {};
  const changed = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  provider.onCall(async (call) => {
    call.begin();
    await call.write(speech.subarray(0, 20_001));
    await changed;
    await call.write(speech.subarray(20_001));
    call.end();
  });
  const moving = await speak(target, { token }, { provider: 'openai_tts', text: SENTENCE, port: () => proxy.port });
  await provider.call(begun);
  await expect.poll(moving.heard).toBeGreaterThan(3);
  proxy.strike('stall');
  goOn();
  moving.changeRoute();
  await moving.finished;
  expect(moving.audio().equals(speech)).toBe(true);
});

it.each(['SIGINT', 'SIGTERM'] as const)('svc voice say revokes its session after %s', async (signal) => {
  const { provider, relay, sessions } = await startVoiceProcess();
  const program = join(import.meta.dirname, '../../dist/cli/svc.js');
  const out = join(await temporaryDirectory(), 'x.wav');
  const saying = launch(process.execPath, [program, 'voice', 'say', 'Hello', '--out', out], {
    PATH: process.env.PATH ?? '',
    HOME: relay.home,
    SVC_HOME: relay.home,
    RELAY_PORT: String(relay.port),
  });
  const call = await provider.call(0);
  const [session] = await sessions();
  expect(session).toMatchObject({ device_name: 'svc voice' });
  // Should it be killed, the session ends by itself.
  expect(session.expires_at - Date.now() / 1000).toBeLessThanOrEqual(900);
  expect(Object.keys(session.grants)).toEqual(['voice:tts']);
  saying.signal(signal);
  expect(await saying.ended).toEqual({ code: 1, signal: null });
  expect(saying.stderr).toMatch(/error: stopped\n/);
  expect(await sessions()).toEqual([]);
  await expect.poll(() => call.isAbandoned).toBe(true);
});

/** The agent's API server, which knows one key, below a path. */
async function startApi(key: string) {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(String(request.url));
    response.writeHead(request.headers.authorization === `Bearer ${key}` ? 200 : 401).end('{}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { asked, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

const lanAddress = Object.values(networkInterfaces())
  .flat()
  .find((one) => one?.family === 'IPv4' && !one.internal)?.address;
if (!lanAddress) process.stderr.write('SKIPPED: this machine has no address but loopback\n');

it('what tools around the relay rely on: an API server below a path, a relay on 0.0.0.0, empty variables', async () => {
  const key = 'the-api-key-of-the-agent';
  const api = await startApi(key);
  const { relay, svc, provider } = await startVoiceProcess({
    host: '0.0.0.0',
    env: {
      RELAY_WEBAPI_URL: `${api.url}/api/`,
      VOICE_TOOLS_OPENAI_KEY: '',
      ELEVENLABS_API_KEY: '',
      ELEVENLABS_BASE_URL: '',
      RELAY_VOICE_OUTPUT_MODEL: '',
      RELAY_VOICE_RESUME_TTL_MS: '',
      RELAY_VOICE_OUTPUT_CONFIG: '',
    },
  });
  const config = await relay.ask('/voice/output/config', { headers: bearer(key) });
  expect(config.json).toMatchObject({
    model: 'gpt-4o-mini-tts',
    config_path: join(relay.home, '.svc-relay/config.yaml'),
    auth: { openai_env_names: ['OPENAI_API_KEY'] },
  });
  expect(api.asked).toEqual(['/api/v1/models']);
  expect((await relay.ask('/voice/output/config', { headers: bearer('another key') })).status).toBe(401);
  const session = await relay.ask('/voice/output/session', { method: 'POST', headers: bearer(key), body: {} });
  expect(session.json).toMatchObject({ resume_ttl_ms: 30_000, provider: 'openai_tts' });
  if (lanAddress) {
    // Over plain http from elsewhere, the key is refused before the API server hears of it.
    const before = api.asked.length;
    const far = await fetch(`http://${lanAddress}:${relay.port}/voice/config`, { headers: bearer(key) });
    expect([far.status, await far.text()]).toEqual([403, expect.stringContaining('HTTPS')]);
    expect(api.asked).toHaveLength(before);
  }
  provider.onCall((call) => call.audio(sinePcm(0.1, RATE)));
  const doctor = await svc('voice', 'doctor');
  expect([doctor.code, doctor.stdout]).toEqual([0, expect.stringContaining('elevenlabs_tts   missing:')]);
  expect(doctor.stdout).toContain('[WARN] realtime: xai_realtime has no key');
});

it('svc voice speaks to a relay on this machine whose certificate is its own', async (context) => {
  const { cert, key } = await selfSigned(context, await temporaryDirectory());
  const { svc, sessions } = await startVoiceProcess({
    tls: true,
    env: { RELAY_SSL_CERT: cert, RELAY_SSL_KEY: key, RELAY_VOICE_OUTPUT_PROVIDER: 'stub' },
  });
  const out = join(await temporaryDirectory(), 'x.wav');
  // The command does not see the variables of the relay: it finds out that the relay speaks TLS.
  expect(await svc('voice', 'say', 'Hello', '--out', out)).toMatchObject({ code: 0 });
  expect(await sessions()).toEqual([]);
});

it('a voice id may contain a slash, which is %2F in URLs', async () => {
  const { provider, svc } = await startVoiceProcess();
  provider.onCall((call) => call.audio(sinePcm(0.1, RATE)));
  const out = join(await temporaryDirectory(), 'x.wav');
  const { code } = await svc(
    'voice',
    'say',
    'Hello',
    '--provider',
    'elevenlabs_tts',
    '--voice',
    'voice/9',
    '--out',
    out,
  );
  expect(code).toBe(0);
  expect(provider.calls[0]?.target).toBe('/v1/text-to-speech/voice%2F9/stream?output_format=pcm_24000');
  expect(provider.calls[0]?.headers['xi-api-key']).toBe(PROVIDER_KEY);
});

it('a grant of one second ends after a second, and the others stay', async () => {
  const { pair, target } = await startVoiceProcess();
  const token = await pair();
  const session = await createOutput(target, token, { provider: 'stub' });
  const client = await connectVoice(target, session.websocket_path, token);
  const reduced = await target.fetch(`/sessions/${token.slice(0, 8)}`, {
    ...post({ grants: { 'voice:tts': 1 } }),
    method: 'PATCH',
    headers: bearer(token),
  });
  expect(reduced.status).toBe(200);
  expect((await client.closed()).code).toBe(4001);
  const ended = await target.fetch('/voice/output/session', { ...post({}), headers: bearer(token) });
  expect([ended.status, await ended.text()]).toEqual([403, expect.stringContaining('voice:tts')]);
  expect((await target.fetch('/voice/config', { headers: bearer(token) })).status).toBe(200);
  expect((await target.fetch('/voice/realtime/config', { headers: bearer(token) })).status).toBe(200);
});

it('a realtime provider is a real server: masked frames, no extensions', async () => {
  const { provider, pair, target } = await startVoiceProcess();
  const speech = await sentence();
  provider.onSocket(async (socket) => {
    await socket.message(2);
    for (let at = 0; at < speech.length; at += 30_001) {
      const delta = speech.subarray(at, at + 30_001).toString('base64');
      await socket.send({ type: 'response.output_audio.delta', delta });
    }
    await socket.send({ type: 'response.done' });
  });
  const token = await pair();
  const headers = bearer(token);
  const session = await (
    await target.fetch('/voice/realtime/session', { ...post({ provider: 'openai_realtime' }), headers })
  ).json();
  const client = await connectVoice(target, session.websocket_path, token);
  client.send({ type: 'response.create', text: SENTENCE, render_mode: 'verbatim' });
  await client.next('voice.response.done');
  client.close(1000);
  expect(audioOf(client.events).equals(speech)).toBe(true);
  const socket = await provider.socket(0);
  expect(socket.messages.map(({ type }) => type)).toEqual([
    'session.update',
    'conversation.item.create',
    'response.create',
  ]);
  expect([socket.path, socket.headers.authorization]).toEqual(['/realtime', `Bearer ${PROVIDER_KEY}`]);
  // Unmasked frames and offered extensions would be violations, which fail the test.
  expect(provider.violations).toEqual([]);
});

const canCurl = hasProgram('curl') && hasProgram('bash');
if (!canCurl) process.stderr.write('SKIPPED: no curl or bash here, the voice examples of the READMEs are not run\n');

/** The first shell block of a section. */
async function example(path: string, heading: string): Promise<string> {
  const [, section = ''] = (await readFile(path, 'utf8')).split(`\n## ${heading}\n`);
  const [, block] = /```sh\n(.*?)```/s.exec(section) ?? [];
  if (!block) throw new Error(`${path} has no example below ${heading}`);
  return block;
}

it.runIf(canCurl)('the examples of handlers/README.md work as they are written', async () => {
  const { provider, pair, relay } = await startVoiceProcess();
  provider.onCall((call) =>
    call.path === '/audio/speech'
      ? call.answer(200, Buffer.from('ID3 an mp3'), { 'content-type': 'audio/mpeg' })
      : call.answer(200, 'good morning'),
  );
  const folder = await temporaryDirectory();
  await writeFile(join(folder, 'clip.wav'), wavOf(sinePcm(0.1, RATE), RATE));
  const token = await pair();
  const script = [
    await example('handlers/README.md', 'Speech'),
    await example('handlers/REFERENCE.md', 'Voice settings'),
  ];
  const shell = launch('bash', ['-euc', `cd "$0"\n${script.join('\n').replaceAll('curl ', 'curl -fsS ')}`, folder], {
    PATH: process.env.PATH ?? '',
    TOKEN: token,
    R: relay.url,
  });
  expect([await shell.ended, shell.stderr]).toEqual([{ code: 0, signal: null }, '']);
  expect(shell.stdout).toMatch(/"text":"good morning"/);
  expect(shell.stdout).toMatch(/"voice":"nova"/);
  expect(await readFile(join(folder, 'hello.mp3'), 'utf8')).toBe('ID3 an mp3');
});

it('the first example of cli/README.md needs no key', async () => {
  const { svc } = await startVoiceProcess({ env: { OPENAI_API_KEY: '', ELEVENLABS_API_KEY: '' } });
  const lines = (await example('cli/README.md', 'Voice')).trim().split('\n');
  const folder = await temporaryDirectory();
  for (const line of lines) {
    const [, words = ''] = /^npx svc (.+?)(?: +#.*)?$/.exec(line) ?? [];
    const parts = [...words.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? (plain as string));
    const { code, stderr } = await svc(...parts.map((part) => (part.endsWith('.wav') ? join(folder, part) : part)));
    expect([line, code, stderr]).toEqual([line, 0, expect.any(String)]);
  }
  expect(await readdir(folder)).toEqual(['tone.wav']);
});
