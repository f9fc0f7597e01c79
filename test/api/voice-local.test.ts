import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { TIMEOUT } from '../support/limits.ts';
import { bearer, describeMatrix, pair, post, type Target } from '../support/relay.ts';
import { createAgent } from '../support/voice/agent.ts';
import { mp3Frames, sinePcm, wavOf } from '../support/voice/audio.ts';
import { connectVoice } from '../support/voice/client.ts';
import { spokenSeconds, startOwnServer } from '../support/voice/openai-server.ts';
import { createOutput } from '../support/voice/output.ts';
import { startProvider } from '../support/voice/provider.ts';
import { clipForm } from '../support/voice/relay.ts';

const TEXT = 'Hello from home.';

async function callerOf(target: Target) {
  const { token, client } = await pair(target);
  const fetch = (path: string, init: RequestInit = {}) =>
    target.fetch(path, { ...init, headers: { ...bearer(token), ...init.headers } });
  const json = async (path: string, init?: RequestInit) => {
    const response = await fetch(path, init);
    const text = await response.text();
    expect([response.status, text]).toEqual([200, expect.any(String)]);
    return JSON.parse(text);
  };
  /** The samples of a render, and the last event. */
  async function render(body: object = {}) {
    const session = await createOutput(target, token, body);
    const socket = await connectVoice(target, session.websocket_path, token);
    socket.send({ type: 'session.start' });
    socket.send({ type: 'response.create', text: TEXT });
    const ended = () => socket.events.find(({ type }) => type === 'voice.response.done' || type === 'voice.error');
    await expect.poll(ended, { timeout: TIMEOUT }).toBeDefined();
    const done = ended();
    const audio = socket.events.filter(({ type }) => type === 'voice.audio.delta');
    socket.terminate();
    const bytes = audio.reduce((sum, { audio_base64: text }) => sum + Buffer.from(String(text), 'base64').length, 0);
    return { session, done, rates: new Set(audio.map((event) => event.sample_rate)), seconds: bytes / 2 / 24_000 };
  }
  return { client, fetch, json, render, post: (path: string, body: object) => json(path, post(body)) };
}

describeMatrix('speech on the owner’s own machines (contract 05 §18)', (start, runtime) => {
  if (runtime === 'edge') {
    it('a server that a variable names speaks at the edge too', async () => {
      const own = await startOwnServer({ always: 'wav', rate: 16_000 });
      const target = await start({ env: { RELAY_VOICE_OUTPUT_PROVIDER: 'local', TTS_OPENAI_BASE_URL: own.url } });
      const { client, render } = await callerOf(target);
      const { session, seconds, rates } = await render();
      expect(session.provider).toBe('local_tts');
      expect(rates).toEqual(new Set([24_000]));
      expect(Math.abs(seconds - spokenSeconds(TEXT))).toBeLessThan(0.01);
      client.terminate();
    });
    return;
  }

  it('a server: configuration, lists, one call, streaming', async () => {
    const own = await startOwnServer({ models: ['kokoro'], voices: ['af_heart', 'bm_lewis'], key: 'key-of-my-own' });
    const target = await start();
    const local = { base_url: own.url, api_key: 'key-of-my-own', model: 'kokoro', voice: 'af_heart' };
    const config = { tts: { provider: 'local', local }, stt: { provider: 'openai_compatible', local } };
    await writeFile(`${target.agentHome}/config.yaml`, JSON.stringify(config));
    const { client, fetch, json, render, post } = await callerOf(target);

    const described = await json('/voice/config');
    expect(described).toMatchObject({
      tts: { provider: 'local', model: 'kokoro', voice: 'af_heart', enabled: true, available: true },
      stt: { provider: 'local', enabled: true, available: true },
      requirements: { available: true, missing: [] },
    });
    expect(JSON.stringify(described)).not.toMatch(/key-of-my-own|127\.0\.0\.1/);

    const spoken = await fetch('/voice/synthesize', { method: 'POST', body: JSON.stringify({ text: TEXT }) });
    expect([spoken.status, spoken.headers.get('content-type')]).toEqual([200, 'audio/mpeg']);
    const written = await fetch('/voice/transcribe', { method: 'POST', body: clipForm(Buffer.from('RIFF')) });
    expect(await written.json()).toMatchObject({ text: 'heard 4 bytes', provider: 'local' });

    const ids = (body: { providers: { id: string }[] }) => body.providers.map(({ id }) => id);
    const before = await json('/voice/output/config');
    expect(before.provider).toBe('xai_tts');
    expect(ids(before)).toEqual(['elevenlabs_tts', 'local_tts', 'openai_tts', 'stub', 'xai_tts']);
    const patch = { method: 'PATCH', body: JSON.stringify({ provider: 'local' }) };
    expect(await json('/voice/output/config', patch)).toMatchObject({
      provider: 'local_tts',
      model: 'kokoro',
      voice: 'af_heart',
      models: ['kokoro'],
      voices: ['af_heart'],
    });
    const options = await json('/voice/output/providers/local/options');
    expect(options).toMatchObject({
      provider_id: 'local_tts',
      provider: { models: ['kokoro'], voices: ['af_heart', 'bm_lewis'] },
      dynamic: { attempted: true, status: 'ok', source: 'local_server', voice_count: 2, auth_source: 'config' },
    });
    const checked = await post('/voice/output/providers/local_tts/validate', { voice: 'bm_lewis' });
    expect(checked).toMatchObject({ valid: true, model: 'kokoro', summary: 'ok' });

    const { session, done, rates, seconds } = await render({ voice: 'bm_lewis' });
    expect(session).toMatchObject({ provider: 'local_tts', model: 'kokoro', voice: 'bm_lewis' });
    expect(done).toMatchObject({ type: 'voice.response.done', provider: 'local_tts' });
    expect(rates).toEqual(new Set([24_000]));
    expect(Math.abs(seconds - spokenSeconds(TEXT))).toBeLessThan(0.01);
    expect(own.calls.speech.at(-1)).toMatchObject({ model: 'kokoro', voice: 'bm_lewis', response_format: 'pcm' });
    expect(target.log.join('\n')).not.toContain('key-of-my-own');
    client.terminate();
  });

  it('is no choice until it is configured, and says then what is missing', async () => {
    const target = await start();
    const { client, fetch, json, render } = await callerOf(target);
    expect(JSON.stringify(await json('/voice/realtime/config'))).not.toContain('local_');
    expect(JSON.stringify(await json('/voice/realtime-agent/config'))).not.toContain('local_');
    const patch = { method: 'PATCH', body: JSON.stringify({ provider: 'local' }) };
    expect(await json('/voice/realtime-agent/config', patch)).toMatchObject({ default_provider: 'local_realtime' });
    expect((await render({ provider: 'local' })).done).toMatchObject({
      type: 'voice.error',
      message: expect.stringContaining('set tts.local.base_url'),
    });
    const options = await fetch('/voice/realtime-agent/providers/local/options');
    expect(await options.json()).toMatchObject({ provider_id: 'local_realtime', dynamic: { status: 'auth_missing' } });
    client.terminate();
  });

  it('a realtime server takes part in a conversation, without a key', async () => {
    const provider = await startProvider();
    const target = await start();
    const realtime = { local: { base_url: `${provider.url}/v1`, model: 'home', voice: 'me' } };
    await mkdir(join(target.agentHome, '.svc-relay'), { recursive: true });
    const file = join(target.agentHome, '.svc-relay/config.yaml');
    await writeFile(file, JSON.stringify({ realtime_voice: { provider: 'local' }, realtime }));
    const { token, client } = await pair(target);
    const session = await createAgent(target, token, {});
    expect(session).toMatchObject({ provider: 'local_realtime', model: 'home', voice: 'me' });
    const voice = await connectVoice(target, session.websocket_path, token);
    voice.send({ type: 'session.start' });
    const socket = await provider.socket(0);
    expect([socket.path, socket.query.get('model')]).toEqual(['/v1/realtime', 'home']);
    expect(socket.headers.authorization).toBeUndefined();
    expect(await socket.message(0)).toMatchObject({
      type: 'session.update',
      session: { model: 'home', audio: { output: { voice: 'me' } } },
    });
    voice.terminate();
    client.terminate();
  });

  it('a program speaks in both ways', async () => {
    const target = await start();
    const program = join(target.agentHome, 'speak');
    await writeFile(join(target.agentHome, 'tone.wav'), wavOf(sinePcm(1.5, 22_050), 22_050));
    await writeFile(program, `#!/bin/sh\ncat >"$0.text"; echo "$@" >"$0.args"; cat "$(dirname "$0")/tone.wav"\n`);
    await chmod(program, 0o700);
    const local = { command: [program, '{voice}', '{language}'], voice: 'de', language: 'de-AT' };
    const config = JSON.stringify({ tts: { provider: 'local', local } });
    await writeFile(`${target.agentHome}/config.yaml`, config);
    const { client, fetch, render } = await callerOf(target);
    const spoken = await fetch('/voice/synthesize', { method: 'POST', body: JSON.stringify({ text: '-x' }) });
    expect(spoken.status).toBe(200);
    expect(Math.abs(mp3Frames(new Uint8Array(await spoken.arrayBuffer())).seconds - 1.5)).toBeLessThan(0.1);
    expect(await readFile(`${program}.text`, 'utf8')).toBe('-x\n');
    expect(await readFile(`${program}.args`, 'utf8')).toBe('de de-AT\n');
    const { session, seconds } = await render({ provider: 'local', voice: 'en-us', language: 'fr' });
    expect(session).toMatchObject({ provider: 'local_tts', model: 'command', voice: 'en-us' });
    expect(Math.abs(seconds - 1.5)).toBeLessThan(0.01);
    expect(await readFile(`${program}.text`, 'utf8')).toBe(`${TEXT}\n`);
    expect(await readFile(`${program}.args`, 'utf8')).toBe('en-us fr\n');
    expect((await render({ provider: 'local', voice: '../x' })).done).toMatchObject({ type: 'voice.error' });
    client.terminate();
  });
});
