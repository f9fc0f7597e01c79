import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import {
  authenticate,
  bearer,
  describeMatrix,
  describeOnNode,
  pair,
  post,
  startNodeTarget,
  type Target,
} from '../support/relay.ts';
import { giveUpGrant } from '../support/scripted.ts';
import { audioOf, connectVoice, refusedVoice, type VoiceClient } from '../support/voice/client.ts';
import { untilComplete } from '../support/voice/lab.ts';
import { createOutput, requestOutput } from '../support/voice/output.ts';
import { startProvider } from '../support/voice/provider.ts';
import { stubPcm } from '../support/voice/stub.ts';

const CREATE = { type: 'response.create', text: 'hello there' };

/** A client of a new session, at its first `ready`. */
async function open(target: Target, token: string, body?: unknown) {
  const session = await createOutput(target, token, body);
  const connect = async (): Promise<VoiceClient> => {
    const client = await connectVoice(target, session.websocket_path, token);
    onTestFinished(() => client.terminate());
    return client;
  };
  const client = await connect();
  // The local edge runtime keeps the connection of a client that has never sent anything for 12 s after a close.
  client.send({ type: 'session.start' });
  await client.next('voice.session.ready');
  await client.next('voice.session.ready');
  const resume = (cursors: Record<string, unknown> = {}) => ({
    type: 'session.resume',
    resume_token: session.resume_token,
    ...cursors,
  });
  return { session, client, connect, resume };
}

describeMatrix('POST /voice/output/session (contract 05 §12)', (start, runtime) => {
  it('makes a session of the chosen provider', async () => {
    const target = await start();
    const { token } = await pair(target);
    const answer = await createOutput(target, token, {
      provider: 'stub',
      model: ' ',
      sample_rate: 16_000,
      language: 'de',
    });
    expect(answer).toEqual({
      success: true,
      session_id: expect.stringMatching(/^[\w-]{24}$/),
      websocket_path: `/voice/output/${answer.session_id}`,
      resume_token: expect.stringMatching(/^[\w-]{43}$/),
      resume_supported: true,
      resume_ttl_ms: 30_000,
      provider: 'stub',
      model: 'stub-tone',
      voice: 'sine',
      sample_rate: 16_000,
      event_log_path: runtime === 'node' ? expect.stringMatching(/^\/.*\/voice-output-\d{8}-\d{6}-\w+\.jsonl$/) : '',
      protocol: 'svc.voice.output.v0',
      profile: null,
      config_scope: 'relay',
      config_path: null,
      fallback_to_global: false,
    });
    const response = await requestOutput(target, token);
    expect(response.headers.get('cache-control')).toBe('no-store');
  });

  it('renders by the settings when the body says nothing, and by an unknown profile as by none', async () => {
    const target = await start({ env: { RELAY_VOICE_OUTPUT_PROVIDER: 'stub', RELAY_VOICE_OUTPUT_MODEL: 'mine' } });
    const { token } = await pair(target);
    for (const body of ['', 'null', '{}', '{"provider":null,"model":""}']) {
      const response = await target.fetch('/voice/output/session', { method: 'POST', body, headers: bearer(token) });
      expect(await response.json()).toMatchObject({ provider: 'stub', model: 'mine', sample_rate: 24_000 });
    }
    expect(await createOutput(target, token, { profile: '../x' })).toMatchObject({
      profile: '../x',
      config_scope: 'relay',
      fallback_to_global: true,
    });
  });

  it.each([
    ['no JSON', '{', 400, /invalid JSON body/],
    ['no object', '[1]', 400, /object/],
    ['an unknown provider', '{"provider":"nobody"}', 400, /unknown voice provider/],
    ['a realtime provider', '{"provider":"openai_realtime"}', 400, /not a streaming TTS renderer/],
    ['a rate that is no integer', '{"sample_rate":24000.5}', 400, /sample_rate/],
    ['a rate that is text', '{"sample_rate":"24000"}', 400, /sample_rate/],
    ['a rate below 8000', '{"sample_rate":7999}', 400, /sample_rate/],
    ['a rate above 96000', '{"sample_rate":96001}', 400, /sample_rate/],
    ['a model that is no text', '{"model":7}', 400, /model/],
    ['more than 2 MiB', `{"model":"${'x'.repeat(2 * 1024 * 1024)}"}`, 413, /./],
  ])('refuses %s', async (_name, body, status, message) => {
    const target = await start({ env: { RELAY_VOICE_OUTPUT_PROVIDER: 'stub' } });
    const { token } = await pair(target);
    const response = await target.fetch('/voice/output/session', { method: 'POST', body, headers: bearer(token) });
    expect([response.status, response.headers.get('content-type')]).toEqual([
      status,
      expect.stringMatching(/^text\/plain/),
    ]);
    expect(await response.text()).toMatch(message);
  });

  it('is 401 and 403 before anything else, 404 while disabled, 405 for other methods', async () => {
    const target = await start({ env: { RELAY_VOICE_OUTPUT_ENABLED: '0' } });
    const { token } = await pair(target);
    const without = await pair(target, { policy: { without: ['voice:tts'] } });
    expect((await target.fetch('/voice/output/session', post({}))).status).toBe(401);
    expect((await requestOutput(target, without.token)).status).toBe(403);
    expect((await requestOutput(target, token)).status).toBe(404);
    expect((await target.fetch('/voice/output/session', { headers: bearer(token) })).status).toBe(405);
  });
});

describeMatrix('the socket of a voice session (contract 05 §12)', (start, runtime) => {
  it('renders a text as the phone expects it', async () => {
    const target = await start();
    const { token } = await pair(target);
    const session = await createOutput(target, token, { provider: 'stub', sample_rate: 16_000 });
    const client = await connectVoice(target, session.websocket_path, token);
    const text = '😀'.repeat(5001);
    client.send({ type: 'session.start' });
    client.send({ ...CREATE, text, expression: { emotion: 'urgent' } });
    const events = await client.through('voice.response.done');
    const types = events.map(({ type }) => type);
    expect(types.slice(0, 3)).toEqual(['voice.session.ready', 'voice.session.ready', 'voice.response.started']);
    expect(types.slice(3, -2)).toEqual(Array(8).fill('voice.audio.delta'));
    expect(types.slice(-2)).toEqual(['voice.audio.done', 'voice.response.done']);
    expect(events.map(({ event_id }) => event_id)).toEqual(events.map((_event, at) => at + 1));
    expect(events.slice(3, -2).map(({ audio_event_id }) => audio_event_id)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(events.every(({ at_ms }) => Number.isInteger(at_ms))).toBe(true);
    const { event_log_path } = session;
    expect(events[0]).toMatchObject({
      session_id: session.session_id,
      provider: 'stub',
      model: 'stub-tone',
      voice: 'sine',
      sample_rate: 16_000,
      event_log_path,
      output_mode: 'streaming_tts_renderer',
      resume_supported: true,
      resume_ttl_ms: 30_000,
      last_event_id: 0,
      last_audio_event_id: 0,
      profile: null,
      config_scope: 'relay',
      config_path: null,
    });
    expect(events[2]).toMatchObject({ render_mode: 'verbatim', text_chars: 5000, model: 'stub-tone' });
    expect(events.at(-1)).toMatchObject({
      provider: 'stub',
      model: 'local-tone',
      voice: 'sine',
      event_log_path,
      audio_path: runtime === 'node' ? event_log_path.replace('.jsonl', '.wav') : '',
      metadata: { sample_rate: 16_000, duration_seconds: 1.5, frequency_hz: 660 },
      metrics: { first_audio_ms: expect.any(Number), response_done_ms: expect.any(Number), audio_underruns: 0 },
    });
    expect(audioOf(events)).toEqual(await stubPcm({ text, sampleRate: 16_000, emotion: 'urgent' }));
    client.close(1000);
    await client.closed();
    await vi.waitFor(async () => {
      expect(await refusedVoice(target, session.websocket_path, token)).toMatchObject({ status: 410 });
    });
  });

  it('answers bad input with voice.error and stays open', async () => {
    const target = await start();
    const { token } = await pair(target);
    const { client } = await open(target, token);
    const bad: [string | Buffer, RegExp | string][] = [
      [Buffer.from([1, 2]), 'unsupported websocket frame'],
      ['{', 'invalid JSON message'],
      ['[1]', 'message must be a JSON object'],
      ['null', 'message must be a JSON object'],
      ['{"type":"nonsense"}', 'unsupported message type: nonsense'],
      ['{}', 'unsupported message type: undefined'],
      [`{"type":${'['.repeat(30_000)}${']'.repeat(30_000)}}`, 'unsupported message type: a list'],
      ['{"type":{"type":"session.close"}}', 'unsupported message type: an object'],
      ['{"type":"response.create"}', 'response.create missing text'],
      ['{"type":"response.create","text":" \\n","prompt":7}', 'response.create missing text'],
      ['{"type":"response.create","text":"x","expression":{"intensity":1.1}}', /intensity/],
    ];
    for (const [frame, message] of bad) {
      client.raw(frame);
      const error = await client.next('voice.error');
      expect(error.message).toEqual(typeof message === 'string' ? message : expect.stringMatching(message));
    }
    client.send({ type: 'client.ack', event_id: 'x', audio_event_id: 1e99, played_audio_event_id: -1 });
    client.send({ type: 'response.create', prompt: 'still works' });
    await client.next('voice.response.done');
    client.send(CREATE);
    expect((await client.next('voice.error')).message).toBe('response already completed');
    client.send({ type: 'session.close' });
    expect((await client.closed()).code).toBe(1000);
  });

  it('refuses upgrades with 401, 403, 404 and 410, and a plain GET with 426', async () => {
    const target = await start();
    const { token } = await pair(target);
    const other = await pair(target);
    const without = await pair(target, { policy: { without: ['voice:tts'] } });
    const { session, client } = await open(target, token);
    const path = session.websocket_path;
    const statusOf = async (path: string, token: string) => (await refusedVoice(target, path, token)).status;
    expect(await statusOf(path, 'nonsense')).not.toBe(101);
    expect(await statusOf(path, without.token)).toBe(403);
    expect(await statusOf(path, other.token)).toBe(403);
    expect(await statusOf('/voice/output/unknown', token)).toBe(404);
    expect(await statusOf('/voice/output/unknown', without.token)).toBe(403);
    const plain = await target.fetch(path, { headers: bearer(token) });
    expect([plain.status, await plain.text()]).toEqual([426, expect.stringContaining('WebSocket')]);
    expect((await target.fetch(path)).status).toBe(401);
    client.send({ type: 'session.close' });
    await client.closed();
    expect(await statusOf(path, token)).toBe(410);
  });

  it('counts a refreshed token of the device as the same caller', async () => {
    const target = await start();
    const first = await pair(target, { device: { device_id: 'the-phone' } });
    const { session, client, resume } = await open(target, first.token);
    const again = await authenticate(target, { refresh_token: first.refreshToken, device_id: 'the-phone' });
    const token = again.frame.payload.session_token as string;
    const second = await connectVoice(target, session.websocket_path, token);
    second.send(resume());
    await second.next('voice.replay.done');
    expect((await client.closed()).code).toBe(4000);
    second.terminate();
  });

  it('hands the session to a candidate with the right token, and to no other', async () => {
    const target = await start();
    const { token } = await pair(target);
    const { client, connect, resume } = await open(target, token);
    client.send(CREATE);
    const heard = await client.through('voice.response.done');
    const wrong = await connect();
    wrong.send({ ...resume(), resume_token: 'wrong' });
    expect(await wrong.next('voice.session.resume_failed')).toMatchObject({ reason: 'invalid_resume_token' });
    expect((await wrong.closed()).code).toBe(4003);
    const rude = await connect();
    rude.raw('{');
    await rude.next('voice.error');
    rude.send(CREATE);
    expect(await rude.next('voice.session.resume_failed')).toMatchObject({ reason: 'session_not_claimed' });
    expect((await rude.closed()).code).toBe(4009);
    const lost = await connect();
    lost.terminate();
    expect(client.events.at(-1)?.type).toBe('voice.response.done');

    const right = await connect();
    right.send(resume({ last_event_id: 3, last_audio_event_id: 3, last_played_audio_event_id: 5 }));
    const events = await right.through('voice.replay.done');
    expect((await client.closed()).code).toBe(4000);
    expect(events.map(({ type }) => type)).toEqual([
      'voice.session.resumed',
      'voice.replay.started',
      ...Array(3).fill('voice.audio.delta'),
      'voice.audio.done',
      'voice.response.done',
      'voice.replay.done',
    ]);
    expect(events[0]).toMatchObject({ last_event_id: 3, last_audio_event_id: 3, last_played_audio_event_id: 5 });
    expect(events[1]).toMatchObject({ from_event_id: 3, from_audio_event_id: 5, replay_event_count: 5 });
    expect(events[1]).not.toHaveProperty('gap');
    for (const event of events.slice(2, -1)) {
      const { replayed, ...rest } = event;
      expect(replayed).toBe(true);
      expect(heard).toContainEqual(rest);
    }
    right.close(1000);
  });

  it('closes 1009 on a message over 2 MiB, and takes one below', async () => {
    const target = await start();
    const { token } = await pair(target);
    const { client } = await open(target, token);
    client.send({ type: 'client.ack', padding: 'x'.repeat(2 * 1024 * 1024 - 100) });
    client.raw('{');
    await client.next('voice.error');
    client.send({ type: 'client.ack', padding: 'x'.repeat(2 * 1024 * 1024) });
    expect((await client.closed()).code).toBe(1009);
  });

  it('allows a caller 16 sessions: the oldest idle one makes room', async () => {
    const target = await start();
    const { token } = await pair(target);
    const other = await createOutput(target, (await pair(target)).token);
    const busy = await open(target, token);
    const sessions = [];
    for (let count = 0; count < 16; count++) sessions.push(await createOutput(target, token));
    expect(await refusedVoice(target, sessions[0]?.websocket_path as string, token)).toMatchObject({ status: 410 });
    const second = await connectVoice(target, sessions[1]?.websocket_path as string, token);
    second.terminate();
    busy.client.send(CREATE);
    await busy.client.next('voice.response.done');
    expect(await refusedVoice(target, other.websocket_path, token)).toMatchObject({ status: 403 });
  });

  it('closes 4001 when the paired session is revoked or loses voice:tts', async () => {
    const target = await start();
    const revoked = await pair(target);
    const reduced = await pair(target);
    const one = await open(target, revoked.token);
    const two = await open(target, reduced.token);
    await target.fetch(`/sessions/${revoked.prefix}`, { method: 'DELETE', headers: bearer(revoked.token) });
    expect((await one.client.closed()).code).toBe(4001);
    await giveUpGrant(target, reduced, 'voice:tts');
    expect((await two.client.closed()).code).toBe(4001);
  });

  it('reports a missing key as voice.error with the names of the variables', async () => {
    const target = await start({ env: { XAI_API_KEY: '', GROK_API_KEY: '', VOICE_TOOLS_XAI_KEY: '' } });
    const { token } = await pair(target);
    const { client } = await open(target, token, {});
    client.send(CREATE);
    const events = await client.through('voice.error');
    expect(events.map(({ type }) => type)).toEqual(['voice.response.started', 'voice.error']);
    expect(events.at(-1)).toMatchObject({
      provider: 'xai_tts',
      fallback_enabled: true,
      fallback_provider: 'legacy_svc_tts',
      message: expect.stringMatching(/API key.*XAI_API_KEY/),
    });
    client.send(CREATE);
    expect((await client.next('voice.error')).message).toBe('response already completed');
  });
});

describeOnNode('what a session leaves on a host (contract 05 §15)', () => {
  describeMatrix(
    'event log and recording',
    (start) => {
      it('holds every event and sample, but no text and no token', async () => {
        const target = await start();
        const { token } = await pair(target);
        const { session, client, connect, resume } = await open(target, token);
        client.send({ ...CREATE, text: 'the quick brown fox' });
        const events = await client.through('voice.response.done');
        const next = await connect();
        next.send(resume());
        await next.next('voice.replay.done');
        next.close(1000);
        const log = session.event_log_path;
        const lines = await vi.waitFor(async () => {
          const found = (await readFile(log, 'utf8'))
            .trimEnd()
            .split('\n')
            .map((line) => JSON.parse(line));
          expect(found.at(-1)).toMatchObject({ type: 'voice.output.session.closed', reason: 'closed' });
          return found;
        });
        const text = await readFile(log, 'utf8');
        expect(lines[0]).toMatchObject({ type: 'voice.output.session.created', session_id: session.session_id });
        for (const line of lines) expect(Object.keys(line)).toEqual(Object.keys(line).toSorted());
        expect(lines.filter(({ event_id }) => event_id).map(({ event_id }) => event_id)).toEqual(
          Array.from({ length: lines.length - 2 }, (_, at) => at + 1),
        );
        const deltas = lines.filter(({ type }) => type === 'voice.audio.delta');
        for (const { audio_base64, byte_count } of deltas) expect(audio_base64).toBe(`<${byte_count} bytes>`);
        for (const secret of ['quick brown', session.resume_token, token]) expect(text).not.toContain(secret);
        const path = events.at(-1)?.audio_path as string;
        await untilComplete(path, audioOf(events).length);
        const wav = await readFile(path);
        expect(wav.subarray(44)).toEqual(audioOf(events));
        expect([wav.readUInt32LE(24), wav.readUInt32LE(40)]).toEqual([24_000, wav.length - 44]);
        expect((await readdir(dirname(log))).sort()).toHaveLength(2);
        expect(((await stat(dirname(log))).mode & 0o777).toString(8)).toBe('700');
        for (const name of await readdir(dirname(log))) {
          expect(((await stat(join(dirname(log), name))).mode & 0o777).toString(8)).toBe('600');
        }
        expect(target.log.join('\n')).not.toContain(session.resume_token);
      });

      it('is not needed: a session renders where no log can be written', async () => {
        const target = await start({ env: { RELAY_VOICE_OUTPUT_RUN_DIR: '/dev/null/none' } });
        const { token } = await pair(target);
        const { client } = await open(target, token);
        client.send(CREATE);
        await client.next('voice.response.done');
        await vi.waitFor(() => expect(target.log.join('\n')).toContain('no longer recorded'));
      });
    },
    ['node'],
  );
});

describeOnNode('voice output by the owner’s own server (contract 05 §18)', () => {
  it('speaks at the base URL of the tts section, without a key', async () => {
    const target = await startNodeTarget();
    onTestFinished(() => target.stop());
    const provider = await startProvider();
    provider.onCall((call) => call.audio(Buffer.alloc(4800)));
    const config = `tts: {provider: openai, base_url: "${provider.url}/v1"}\n`;
    await writeFile(join(target.agentHome, 'config.yaml'), config);
    const { token } = await pair(target);
    const { client } = await open(target, token, { provider: 'openai_tts' });
    client.send(CREATE);
    expect(await client.next('voice.response.done')).toMatchObject({ type: 'voice.response.done' });
    expect(provider.calls.map(({ path, headers }) => [path, headers.authorization])).toEqual([
      ['/v1/audio/speech', undefined],
    ]);
  });
});
