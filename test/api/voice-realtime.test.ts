import { readdir, readFile, stat } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { expect, it } from 'vitest';
import { bearer, describeMatrix, pair } from '../support/relay.ts';
import { audioOf, connectVoice, refusedVoice } from '../support/voice/client.ts';
import {
  attached,
  create,
  created,
  DONE,
  delta,
  environment,
  render,
  SECRET,
  untilComplete,
} from '../support/voice/lab.ts';
import { startProvider } from '../support/voice/provider.ts';
import type { ProviderSocket } from '../support/voice/provider-socket.ts';

/** In the form of a session token, so that no API server is asked about it. */
const DEAD_TOKEN = '00000000-0000-4000-8000-000000000000';
const PCM = Buffer.from(Uint8Array.from({ length: 10_001 }, (_, at) => (at * 7) & 0xff));

/** Waits for the three messages of a render, then sends `events`. */
const answering =
  (...events: unknown[]) =>
  async (socket: ProviderSocket) => {
    await socket.message(2);
    for (const event of events) await socket.send(event);
  };

describeMatrix('the realtime lab', (start, runtime) => {
  it('05 §14: creates a session, without resume fields', async () => {
    const target = await start();
    const { token } = await pair(target);
    const session = await created(target, token, { provider: 'stub', sample_rate: 16_000 });
    expect(session).toMatchObject({
      success: true,
      session_id: expect.stringMatching(/^[\w-]{24}$/),
      websocket_path: `/voice/realtime/${session.session_id}`,
      provider: 'stub',
      model: 'stub-tone',
      voice: 'sine',
      sample_rate: 16_000,
      protocol: 'svc.voice.realtime.v0',
      profile: null,
      config_scope: 'relay',
      config_path: null,
      fallback_to_global: false,
    });
    expect(Object.keys(session).filter((key) => key.includes('resume'))).toEqual([]);
  });

  it('05 §14: any provider of the registry is allowed, another one is not', async () => {
    const target = await start();
    const { token } = await pair(target);
    for (const provider of ['stub', 'openai_tts', 'elevenlabs_tts', 'xai_tts', 'openai_realtime', 'xai_realtime']) {
      expect(await created(target, token, { provider })).toMatchObject({ provider, model: expect.any(String) });
    }
    const refused = await create(target, token, { provider: 'nobody' });
    expect(refused.status).toBe(400);
    expect(await refused.text()).toContain('unknown voice provider');
  });

  it.each([
    ['{', 'invalid JSON body'],
    ['[]', ''],
    ['{"provider":"stub","sample_rate":7999}', 'sample_rate'],
    ['{"provider":"stub","sample_rate":24000.5}', 'sample_rate'],
  ])('05 §14: refuses the body %s', async (body, reason) => {
    const target = await start();
    const { token } = await pair(target);
    const response = await target.fetch('/voice/realtime/session', { method: 'POST', body, headers: bearer(token) });
    expect([response.status, response.headers.get('content-type')]).toEqual([400, expect.stringMatching('text/plain')]);
    expect(await response.text()).toContain(reason);
  });

  it('05 §14: a disabled lab answers 404, after authentication', async () => {
    const target = await start({ env: { RELAY_REALTIME_VOICE_ENABLED: '0' } });
    const { token } = await pair(target);
    expect((await create(target, token)).status).toBe(404);
    expect((await create(target, DEAD_TOKEN)).status).toBe(401);
    expect(await refusedVoice(target, '/voice/realtime/AAAAAAAAAAAAAAAAAAAAAAAA', token)).toMatchObject({
      status: 404,
    });
  });

  it('05 §12, §14: refuses an upgrade without a session, without its grant, or of another principal', async () => {
    const target = await start();
    const { token } = await pair(target);
    const other = await pair(target);
    const without = await pair(target, { policy: { without: ['voice:realtime'] } });
    const { websocket_path: path } = await created(target, token);
    expect(await refusedVoice(target, path, DEAD_TOKEN)).toMatchObject({ status: 401 });
    expect(await refusedVoice(target, path, without.token)).toMatchObject({
      status: 403,
      body: expect.stringContaining('voice:realtime'),
    });
    expect(await refusedVoice(target, path, other.token)).toMatchObject({ status: 403 });
    expect(await refusedVoice(target, '/voice/realtime/AAAAAAAAAAAAAAAAAAAAAAAA', token)).toMatchObject({
      status: 404,
    });
    expect((await target.fetch(path, { headers: bearer(token) })).status).toBe(426);
    const client = await connectVoice(target, path, token);
    expect(await client.next('voice.session.ready')).toMatchObject({ provider: 'stub' });
  });

  it('05 §14: sends ready on attach and per session.start, without ids and resume fields', async () => {
    const { client, session, ready } = await attached(await start());
    client.send({ type: 'session.start', resume_token: 'x' });
    const again = await client.next('voice.session.ready');
    for (const event of [ready, again]) {
      expect(event).toMatchObject({
        session_id: session.session_id,
        provider: 'stub',
        model: 'stub-tone',
        voice: 'sine',
        sample_rate: 24_000,
        at_ms: expect.any(Number),
      });
      expect(Object.keys(event).filter((key) => key.includes('resume') || key.includes('event_id'))).toEqual([]);
    }
  });

  it('05 §14: a render with the stub: every event, in order', async () => {
    const { client } = await attached(await start());
    client.send({ type: 'input_audio.append', audio_base64: 'AAAAAA==' });
    const events = await render(client, { text: 'x'.repeat(60) });
    const audio = events.filter(({ type }) => type === 'voice.audio.delta');
    expect([...new Set(events.map(({ type }) => type))]).toEqual([
      'voice.input_audio.received',
      'voice.response.started',
      'voice.audio.delta',
      'voice.audio.done',
      'voice.response.done',
    ]);
    expect(events[1]).toMatchObject({
      provider: 'stub',
      model: 'stub-tone',
      voice: 'sine',
      render_mode: 'conversation',
      text_chars: 60,
      input_audio_bytes: 4,
    });
    expect(audioOf(events).length).toBe(24_000);
    expect(audio[0]).toMatchObject({
      byte_count: 3000,
      sample_rate: 24_000,
      channels: 1,
      sample_width: 2,
      label: 'frames:0-1500',
      peak_level: 0.2441,
      rms_level: 0.1726,
    });
    expect(events.at(-1)).toMatchObject({
      provider: 'stub',
      model: 'local-tone',
      voice: 'sine',
      metrics: { provider: 'stub', first_audio_ms: expect.any(Number), audio_underruns: 0, voice_drift: null },
      metadata: { frequency_hz: 440 },
    });
    expect(events.some((event) => 'event_id' in event || 'audio_event_id' in event)).toBe(false);
  });

  it('05 §14: renders again and again, with a default sentence for blank text and 5000 characters at most', async () => {
    const { client } = await attached(await start());
    const chars = [];
    for (const message of [
      { text: '  ' },
      { text: undefined, prompt: 'p' },
      { text: '😀'.repeat(5001) },
      { text: 7 },
    ]) {
      const [started] = await render(client, message);
      chars.push(started?.text_chars);
    }
    expect(chars).toEqual([expect.any(Number), 1, 5000, expect.any(Number)]);
    expect(chars[0]).toBeGreaterThan(10);
  });

  it('05 §14: counts input audio, strictly decoded', async () => {
    const { client } = await attached(await start());
    const append = (message: Record<string, unknown>) => client.send({ type: 'input_audio.append', ...message });
    append({ audio_base64: Buffer.alloc(100).toString('base64') });
    append({ audio_base64: Buffer.alloc(4).toString('base64'), sample_rate: 16_000 });
    expect(await client.next('voice.input_audio.received')).toMatchObject({
      byte_count: 100,
      total_bytes: 100,
      sample_rate: 24_000,
    });
    expect(await client.next('voice.input_audio.received')).toMatchObject({
      byte_count: 4,
      total_bytes: 104,
      sample_rate: 16_000,
    });
    for (const audio_base64 of [undefined, 7, 'AAA', 'AA AA', 'AA-_', 'AAAA====', '%%%%']) {
      append({ audio_base64 });
      expect(await client.next('voice.error')).toMatchObject({ message: expect.stringContaining('audio_base64') });
    }
    append({ audio_base64: 'AAAA' });
    expect(await client.next('voice.input_audio.received')).toMatchObject({ byte_count: 3, total_bytes: 107 });
  });

  it('05 §12, §14: bad input is answered and the socket stays open', async () => {
    const { client } = await attached(await start());
    client.raw(Buffer.from([1, 2]));
    expect(await client.next('voice.error')).toMatchObject({ message: 'unsupported websocket frame' });
    client.raw('{');
    expect(await client.next('voice.error')).toMatchObject({ message: 'invalid JSON message' });
    client.raw('[]');
    expect(await client.next('voice.error')).toMatchObject({ message: expect.stringContaining('object') });
    client.send({ type: 'session.resume', resume_token: 'x' });
    expect(await client.next('voice.error')).toMatchObject({ message: 'unsupported message type: session.resume' });
    client.send({ type: 'response.create', text: 'x', expression: { intensity: 2 } });
    expect(await client.next('voice.error')).toMatchObject({ message: expect.stringContaining('intensity') });
    expect((await render(client)).at(-1)).toMatchObject({ type: 'voice.response.done' });
  });

  it('05 §12: a message over 2 MiB closes the socket with 1009', async () => {
    const { client } = await attached(await start());
    client.send({ type: 'input_audio.append', audio_base64: 'A'.repeat(2 * 1024 * 1024 - 64) });
    await client.next('voice.input_audio.received');
    client.raw('x'.repeat(2 * 1024 * 1024 + 1));
    expect(await client.closed()).toMatchObject({ code: 1009 });
  });

  it('05 §14: tool_scaffold announces a tool and its result', async () => {
    const { client } = await attached(await start());
    client.send({ type: 'input_audio.append', audio_base64: 'AAAA' });
    await client.next('voice.input_audio.received');
    const events = await render(client, { tool_scaffold: true });
    expect(events.slice(0, 3)).toMatchObject([
      { type: 'voice.response.started' },
      {
        type: 'voice.tool.requested',
        name: 'voice_realtime_dev_check',
        arguments: { input_audio_bytes: 3 },
      },
      { type: 'voice.tool.completed', name: 'voice_realtime_dev_check', result: 'scaffold-only' },
    ]);
  });

  it.each(['openai_realtime', 'xai_realtime'])(
    '05 §13, §14: a turn with %s: audio, transcript, conversation mode',
    async (id) => {
      const provider = await startProvider();
      provider.onSocket(
        answering(
          delta(PCM.subarray(0, 4001)),
          { type: 'response.text.delta', delta: ' Hi! ' },
          delta(PCM.subarray(4001)),
          DONE,
        ),
      );
      const { client } = await attached(await start(environment(provider)), { provider: id, model: 'm', voice: 'v' });
      const events = await render(client, { text: 'How are you?' });
      expect(audioOf(events).equals(PCM.subarray(0, 10_000))).toBe(true);
      expect(events.slice(-3)).toMatchObject([
        { type: 'voice.transcript.final', text: 'Hi!' },
        { type: 'voice.audio.done' },
        { type: 'voice.response.done', provider: id, model: 'm', voice: 'v' },
      ]);
      const socket = await provider.socket(0);
      expect(socket.headers.authorization).toBe(`Bearer ${SECRET}`);
      expect(socket.messages.map(({ type }) => type)).toEqual([
        'session.update',
        'conversation.item.create',
        'response.create',
      ]);
      expect(JSON.stringify(socket.messages[1])).toContain('"text":"How are you?"');
      expect(provider.violations).toEqual([]);
    },
  );

  it('05 §12: options of a message reach the provider, a URL or key in them does not', async () => {
    const provider = await startProvider();
    const elsewhere = await startProvider();
    provider.onCall((call) => call.audio(PCM));
    const { client } = await attached(await start(environment(provider)), { provider: 'openai_tts' });
    await render(client, {
      render_mode: 'verbatim',
      text: ' *Exactly* this ',
      provider_options: {
        model: 'tts-1',
        voice: 'nova',
        url: elsewhere.url,
        base_url: elsewhere.url,
        api_key: 'mine',
        extra_headers: { 'x-a': 'b' },
      },
    });
    const call = await provider.call(0);
    expect(call.headers).toMatchObject({ authorization: `Bearer ${SECRET}` });
    expect(call.headers['x-a']).toBeUndefined();
    expect(call.json()).toEqual({ model: 'tts-1', voice: 'nova', input: ' *Exactly* this ', response_format: 'pcm' });
    expect(elsewhere.calls).toEqual([]);
  });

  it('05 §13: a failed render is an error without secrets, and the next one may follow', async () => {
    const provider = await startProvider();
    provider.onSocket(answering({ type: 'error', error: { message: `quota of ${SECRET} is used up` } }));
    const { client } = await attached(await start(environment(provider)), { provider: 'openai_realtime' });
    client.send({ type: 'response.create', text: 'x' });
    const error = await client.next('voice.error');
    expect(error).toMatchObject({
      provider: 'openai_realtime',
      message: expect.stringContaining('quota of <redacted> is used up'),
    });
    provider.onSocket(answering(delta(PCM), DONE));
    expect((await render(client)).at(-1)).toMatchObject({ type: 'voice.response.done' });
  });

  it('05 §13: whatever a provider does wrong is an error, and the session goes on', async () => {
    const provider = await startProvider();
    const { client } = await attached(await start(environment(provider)), { provider: 'openai_realtime' });
    const failure = async () => {
      client.send({ type: 'response.create', text: 'x' });
      const { message, provider: id } = await client.next('voice.error');
      expect(id).toBe('openai_realtime');
      expect(message).not.toContain(SECRET);
      return message;
    };
    provider.refuseSockets(401, `{"error":"${SECRET}"}`);
    expect(await failure()).toContain('HTTP 401');
    provider.refuseSockets(undefined);
    provider.onSocket((socket) => socket.cut());
    expect(await failure()).toContain('the connection closed before the end of the response');
    provider.onSocket((socket) => socket.close(1011));
    expect(await failure()).toContain('(1011)');
    provider.onSocket(answering('garbage'));
    expect(await failure()).toContain('not a JSON object');
    provider.onSocket(answering({ type: 'response.audio.delta', delta: '%%%%' }));
    expect(await failure()).toContain('not valid base64');
    provider.onSocket(answering(delta(Buffer.alloc(4 * 1024 * 1024))));
    expect(await failure()).toContain('(1009)');
    provider.onSocket(answering(DONE));
    expect(await failure()).toContain('no audio');
    await expect.poll(() => provider.sockets.filter(({ isOver }) => !isOver).length).toBe(0);
  });

  it('05 §13: a missing key is an error that names its variables', async () => {
    const { client } = await attached(await start(), { provider: 'elevenlabs_tts' });
    client.send({ type: 'response.create', text: 'x' });
    expect(await client.next('voice.error')).toMatchObject({
      provider: 'elevenlabs_tts',
      message: expect.stringMatching(/API key.*ELEVENLABS_API_KEY/),
    });
  });

  it('05 §14: one render at a time; the end of the socket aborts it and closes the session', async () => {
    const provider = await startProvider();
    provider.onSocket(answering(delta(PCM)));
    const target = await start(environment(provider));
    const { client, session, token } = await attached(target, { provider: 'xai_realtime' });
    client.send({ type: 'response.create', text: 'x' });
    await client.next('voice.audio.delta');
    client.send({ type: 'response.create', text: 'y' });
    expect(await client.next('voice.error')).toMatchObject({ message: 'response already running' });
    // Whatever the close code: the lab has no resume.
    client.terminate();
    await expect.poll(() => provider.sockets[0]?.isOver).toBe(true);
    expect(await refusedVoice(target, session.websocket_path, token)).toMatchObject({ status: 410 });
  });

  it('05 §12, §14: session.close closes with 1000, and the session is gone', async () => {
    const target = await start();
    const { client, session, token } = await attached(target);
    client.send({ type: 'session.close' });
    expect(await client.closed()).toMatchObject({ code: 1000 });
    expect(await refusedVoice(target, session.websocket_path, token)).toMatchObject({ status: 410 });
  });

  it('05 §14: another socket of the principal takes the session over', async () => {
    const target = await start();
    const { client, session, token } = await attached(target);
    // The local edge runtime keeps the connection of a client that has never sent anything after the close.
    client.send({ type: 'session.start' });
    await client.next('voice.session.ready');
    const second = await connectVoice(target, session.websocket_path, token);
    await second.next('voice.session.ready');
    expect(await client.closed()).toMatchObject({ code: 4000 });
    expect((await render(second)).at(-1)).toMatchObject({ type: 'voice.response.done' });
  });

  it('05 §12: closes voice sockets when the paired session is revoked', async () => {
    const target = await start();
    const { client, token } = await attached(target);
    client.send({ type: 'session.start' });
    await client.next('voice.session.ready');
    const revoked = await target.fetch(`/sessions/${token.slice(0, 8)}`, { method: 'DELETE', headers: bearer(token) });
    expect(revoked.status).toBe(200);
    expect(await client.closed()).toMatchObject({ code: 4001 });
  });

  it.runIf(runtime === 'node')(
    '05 §14, §15: an event log and one WAV per response, without text and audio',
    async () => {
      const target = await start();
      const { client, session } = await attached(target);
      const log = session.event_log_path;
      expect(basename(log)).toMatch(/^realtime-\d{8}-\d{6}-[A-Za-z0-9]{1,12}\.jsonl$/);
      client.send({ type: 'input_audio.append', audio_base64: Buffer.from('PRIVATE INPUT').toString('base64') });
      const paths: string[] = [];
      const sizes: number[] = [];
      for (const text of ['PRIVATE TEXT', 'x'.repeat(60), 'x'.repeat(120)]) {
        const events = await render(client, { text });
        expect(events.at(-1)?.event_log_path).toBe(log);
        paths.push(String(events.at(-1)?.audio_path));
        sizes.push(audioOf(events).length);
      }
      client.send({ type: 'session.close' });
      await client.closed();
      const stem = log.replace(/\.jsonl$/, '');
      expect(paths).toEqual([`${stem}.wav`, `${stem}-2.wav`, `${stem}-3.wav`]);
      await expect.poll(() => readFile(log, 'utf8')).toContain('voice.session.closed');
      for (const [index, path] of paths.entries()) {
        await untilComplete(path, sizes[index] ?? 0);
        expect((await readFile(path)).length).toBe(44 + (sizes[index] ?? 0));
      }
      const names = (await readdir(dirname(log))).sort();
      expect(names).toEqual([...paths, log].map((path) => basename(path)).sort());
      expect((await stat(log)).mode & 0o777).toBe(0o600);
      expect((await stat(dirname(log))).mode & 0o777).toBe(0o700);
      const lines = (await readFile(log, 'utf8'))
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line));
      expect(lines[0]).toMatchObject({ type: 'voice.session.created', unix_ms: expect.any(Number) });
      expect(lines.at(-1)).toMatchObject({ type: 'voice.session.closed', reason: 'closed' });
      expect(lines.find(({ type }) => type === 'voice.audio.delta').audio_base64).toMatch(/^<\d+ bytes>$/);
      const everything = await Promise.all(names.map((file) => readFile(`${dirname(log)}/${file}`)));
      expect(String(Buffer.concat(everything))).not.toContain('PRIVATE');
      expect(target.log.join('\n')).not.toContain('PRIVATE');
    },
  );

  it('sessions that are cut in the middle of a turn leave no connection to the provider', async () => {
    const provider = await startProvider();
    provider.onSocket(answering(delta(PCM)));
    provider.onCall(async (call) => {
      call.begin();
      await call.write(PCM);
    });
    const target = await start(environment(provider));
    const { token } = await pair(target);
    for (let round = 0; round < 10; round++) {
      const { websocket_path: path } = await created(target, token, {
        provider: ['openai_realtime', 'xai_realtime', 'openai_tts'][round % 3],
      });
      const client = await connectVoice(target, path, token);
      client.send({ type: 'response.create', text: 'x' });
      await client.next('voice.audio.delta');
      client.terminate();
    }
    await expect.poll(() => provider.sockets.filter(({ isOver }) => !isOver).length).toBe(0);
    await expect.poll(() => provider.calls.filter(({ isAbandoned }) => !isAbandoned).length).toBe(0);
    expect([provider.sockets.length, provider.calls.length]).toEqual([7, 3]);
  });

  it('05 §3: another method on its paths is 405, another path 404', async () => {
    const target = await start();
    const { token } = await pair(target);
    const { websocket_path: path } = await created(target, token);
    const status = async (method: string, at: string) =>
      (await target.fetch(at, { method, headers: bearer(token) })).status;
    expect(await status('GET', '/voice/realtime/session')).toBe(405);
    expect(await status('DELETE', '/voice/realtime/config')).toBe(405);
    expect(await status('POST', path)).toBe(405);
    expect(await status('POST', '/voice/realtime/session/x')).toBe(404);
  });

  it('05 §15: a restart drops every session; a relay that stops says 1001', async () => {
    const target = await start();
    const { client, session, token } = await attached(target);
    client.send({ type: 'session.start' });
    await client.next('voice.session.ready');
    await target.restart();
    // At the edge, a restart is no shutdown.
    if (runtime === 'node') expect(await client.closed()).toMatchObject({ code: 1001 });
    expect(await refusedVoice(target, session.websocket_path, token)).toMatchObject({ status: 404 });
  });
});
