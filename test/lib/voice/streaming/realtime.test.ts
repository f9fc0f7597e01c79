import type { RealtimeClientEvent } from 'openai/resources/realtime/realtime';
import { describe, expect, it } from 'vitest';
import { createVoiceCredentials } from '../../../../lib/voice/credentials.ts';
import { parseExpression, parseProviderOptions } from '../../../../lib/voice/streaming/adapter.ts';
import { createAdapters } from '../../../../lib/voice/streaming/adapters.ts';
import { connectRealtime, parseRealtimeEvent } from '../../../../lib/voice/streaming/realtime-connection.ts';
import { createTestClock } from '../../../support/clock.ts';
import { closedPort } from '../../../support/closed-port.ts';
import type { ProviderSocket } from '../../../support/voice/provider-socket.ts';
import { aRequest, audioBytes, audioDelta, DONE, REALTIME, rendered, SECRET, startAdapters } from './support.ts';

/** Waits for the three messages of a render, then sends `events`. */
const answering =
  (...events: unknown[]) =>
  async (socket: ProviderSocket) => {
    await socket.message(2);
    for (const event of events) await socket.send(event);
  };

it('05 §13: openai_realtime sends its three messages in order', async () => {
  const { provider, adapter } = await startAdapters();
  const audio = audioBytes(6000);
  provider.onSocket(
    answering({ type: 'session.created' }, audioDelta(audio.subarray(0, 4999)), audioDelta(audio.subarray(4999)), DONE),
  );
  const { pcm, chunks, result } = await rendered(
    adapter('openai_realtime'),
    aRequest({ text: 'Say “hi”.', model: 'gpt-realtime-2', voice: 'marin', sampleRate: 16_000 }),
  );
  const socket = await provider.socket(0);
  expect([socket.path, String(socket.query)]).toEqual(['/v1/realtime', 'model=gpt-realtime-2']);
  expect(socket.headers.authorization).toBe(`Bearer ${SECRET}`);
  expect(socket.headers['sec-websocket-extensions']).toBeUndefined();
  const output = { format: { type: 'audio/pcm' as const, rate: 24_000 as const }, voice: 'marin' };
  expect(socket.messages).toEqual([
    {
      type: 'session.update',
      session: {
        type: 'realtime',
        model: 'gpt-realtime-2',
        instructions: expect.stringContaining('speech renderer'),
        output_modalities: ['audio'],
        audio: { output },
      },
    },
    {
      type: 'conversation.item.create',
      item: {
        type: 'message',
        role: 'user',
        content: [{ type: 'input_text', text: expect.stringMatching(/exactly as it is written.*\n\nSay “hi”\.$/) }],
      },
    },
    { type: 'response.create', response: { audio: { output } } },
  ] satisfies RealtimeClientEvent[]);
  expect(pcm.equals(audio)).toBe(true);
  expect(chunks.map(({ pcm, sampleRate, label }) => [pcm.length, sampleRate, label])).toEqual([
    [4096, 24_000, 'openai_realtime'],
    [1904, 24_000, 'openai_realtime'],
  ]);
  expect(result).toMatchObject({ provider: 'openai_realtime', model: 'gpt-realtime-2', voice: 'marin' });
  await expect.poll(() => socket.closeCode).toBe(1000);
});

it('05 §13: xai_realtime sends its session, a bare response.create, and one tool when asked', async () => {
  const { provider, adapter } = await startAdapters();
  provider.onSocket(answering(audioDelta(audioBytes(2)), DONE));
  for (const toolScaffold of [false, true]) {
    await rendered(adapter('xai_realtime'), aRequest({ voice: 'eve', model: 'grok-voice-latest', toolScaffold }));
  }
  const [plain, scaffold] = provider.sockets;
  expect([plain?.path, plain?.query.get('model')]).toEqual(['/v1/realtime', 'grok-voice-latest']);
  expect(plain?.messages[0]).toEqual({
    type: 'session.update',
    session: { voice: 'eve', instructions: expect.any(String), turn_detection: { type: 'server_vad' } },
  });
  expect(plain?.messages[1]).toMatchObject({ type: 'conversation.item.create' });
  expect(plain?.messages[2]).toEqual({ type: 'response.create' });
  expect(scaffold?.messages[0]).toMatchObject({
    session: {
      tools: [
        {
          type: 'function',
          name: 'voice_lab_echo',
          parameters: { type: 'object', properties: { message: { type: 'string' } } },
        },
      ],
    },
  });
});

it('05 §8: OPENAI_REALTIME_URL and XAI_REALTIME_URL replace the URL', async () => {
  const { provider, deps } = await startAdapters();
  provider.onSocket(answering(audioDelta(audioBytes(2)), DONE));
  const url = `${provider.url.replace('http', 'ws')}/own`;
  const env = { OPENAI_API_KEY: SECRET, XAI_API_KEY: SECRET, OPENAI_REALTIME_URL: url, XAI_REALTIME_URL: url };
  const adapters = createAdapters({ ...deps, credentials: createVoiceCredentials({ env }) });
  for (const id of REALTIME) await rendered(adapters(id) ?? expect.fail(), aRequest({ model: 'm' }));
  expect(provider.sockets.map(({ path, query }) => [path, String(query)])).toEqual([
    ['/own', 'model=m'],
    ['/own', 'model=m'],
  ]);
});

it.each([
  ['response.output_audio.delta', 'audio'],
  ['response.audio.delta', 'audio'],
  ['response.output_audio_transcript.delta', 'transcript'],
  ['response.audio_transcript.delta', 'transcript'],
  ['response.output_text.delta', 'transcript'],
  ['response.text.delta', 'transcript'],
])('05 §13: %s is %s', (type, kind) => {
  expect(parseRealtimeEvent(JSON.stringify({ type, delta: 'AAAA' }))).toMatchObject({ type: kind });
});

it.each([
  ['{"type":"response.done"}', { type: 'done' }],
  ['{"type":"response.done","response":{"status":"completed"}}', { type: 'done' }],
  [
    '{"type":"response.done","response":{"status":"failed","status_details":{"error":{"message":"no credit"}}}}',
    { type: 'error', message: 'no credit' },
  ],
  ['{"type":"error","error":{"message":"bad","code":"c","type":"t"}}', { type: 'error', message: 'bad' }],
  ['{"type":"error","error":{"message":"","code":"c","type":"t"}}', { type: 'error', message: 'c' }],
  ['{"type":"error","error":{"type":"t"}}', { type: 'error', message: 't' }],
  ['{"type":"error","message":"flat"}', { type: 'error', message: 'flat' }],
  ['{"type":"error","error":"text"}', { type: 'error', message: 'text' }],
  ['{"type":"error","error":null}', { type: 'error', message: 'error' }],
  ['{"type":"rate_limits.updated","delta":"x"}', null],
  ['{"type":"response.text.delta","delta":7}', null],
])('05 §13: reads the event %s', (text, event) => {
  expect(parseRealtimeEvent(text)).toEqual(event);
});

it.each(['not json', '[]', 'null', '{}', '{"type":7}'])('an event that is %s is an error', (text) => {
  expect(parseRealtimeEvent(text)).toMatchObject({ type: 'error' });
});

it.each(['AAA', 'AA=A', 'AA AA', 'AA-_', '====', 7, undefined])('05 §13: audio of %j is an error', (delta) => {
  expect(parseRealtimeEvent(JSON.stringify({ type: 'response.audio.delta', delta }))).toEqual({
    type: 'error',
    message: 'the audio is not valid base64',
  });
});

describe.each(REALTIME)('%s', (id) => {
  it('05 §13: conversation mode sends the raw text, verbatim mode wraps it', async () => {
    const { provider, adapter } = await startAdapters();
    provider.onSocket(answering(audioDelta(audioBytes(2)), DONE));
    const expression = parseExpression({ emotion: 'calm' });
    const options = parseProviderOptions({ instructions: 'Speak like a pilot.' });
    await rendered(adapter(id), aRequest({ text: ' Raw? ', renderMode: 'conversation', expression, options }));
    await rendered(adapter(id), aRequest({ text: ' Raw? ', renderMode: 'verbatim' }));
    const [conversation, verbatim] = provider.sockets.map(({ messages }) => JSON.stringify(messages));
    expect(conversation).toContain('"text":" Raw? "');
    expect(conversation).toContain('Speak like a pilot.');
    expect(conversation).toContain('Delivery: emotion: calm');
    expect(conversation).not.toContain('speech renderer');
    expect(verbatim).not.toContain('"text":" Raw? "');
    expect(verbatim).toContain('speech renderer');
  });

  it('05 §13: concatenates and trims the transcript of any name', async () => {
    const { provider, adapter } = await startAdapters();
    provider.onSocket(
      answering(
        { type: 'response.output_audio_transcript.delta', delta: ' Good' },
        { type: 'response.audio.delta', delta: 'AAAA' },
        { type: 'response.audio_transcript.delta', delta: ' morn' },
        { type: 'response.text.delta', delta: 'ing.' },
        { type: 'response.output_text.delta', delta: ' ' },
        DONE,
      ),
    );
    const { result } = await rendered(adapter(id), aRequest());
    expect(result.transcript).toBe('Good morning.');
  });

  it('05 §13: an error event fails the render, redacted', async () => {
    const { provider, adapter } = await startAdapters();
    provider.onSocket(answering({ type: 'error', error: { message: `no access for ${SECRET}` } }));
    await expect(rendered(adapter(id), aRequest())).rejects.toThrow(/Realtime: no access for <redacted>$/);
    await expect.poll(() => provider.sockets[0]?.isOver).toBe(true);
  });

  it.each([
    ['garbage', 'not json', /not a JSON object/],
    ['audio that is not base64', { type: 'response.audio.delta', delta: '%%%%' }, /not valid base64/],
    ['no audio', DONE, /returned no audio/],
  ])('05 §13: %s is an error', async (_name, event, message) => {
    const { provider, adapter } = await startAdapters();
    provider.onSocket(answering(event));
    await expect(rendered(adapter(id), aRequest())).rejects.toThrow(message);
    await expect.poll(() => provider.sockets[0]?.isOver).toBe(true);
  });

  it('an oversized event closes the connection, and is an error', async () => {
    const { provider, adapter } = await startAdapters();
    provider.onSocket(answering(audioDelta(Buffer.alloc(4 * 1024 * 1024))));
    await expect(rendered(adapter(id), aRequest())).rejects.toThrow('closed before the end of the response (1009)');
  });

  it('a connection that closes or breaks before the end is an error', async () => {
    const { provider, adapter } = await startAdapters();
    provider.onSocket(async (socket) => {
      await answering(audioDelta(audioBytes(5000)))(socket);
      socket.close(1011);
    });
    await expect(rendered(adapter(id), aRequest())).rejects.toThrow('(1011)');
    provider.onSocket((socket) => socket.cut());
    await expect(rendered(adapter(id), aRequest())).rejects.toThrow('(1006)');
  });

  it('05 §13: a refused upgrade is an error with its status', async () => {
    const { provider, adapter } = await startAdapters();
    provider.refuseSockets(401, `{"error":"${SECRET}"}`);
    await expect(rendered(adapter(id), aRequest())).rejects.toThrow(/Realtime: HTTP 401$/);
  });

  it('05 §13: a missing key names its variables', async () => {
    const { deps } = await startAdapters();
    const adapters = createAdapters({ ...deps, credentials: createVoiceCredentials({ env: {} }) });
    const names = id === 'openai_realtime' ? 'OPENAI_REALTIME_API_KEY' : 'XAI_EPHEMERAL_TOKEN';
    await expect(rendered(adapters(id) ?? expect.fail(), aRequest())).rejects.toThrow(new RegExp(`API key.*${names}`));
  });

  it('a provider that cannot be reached is an error without its address', async () => {
    const { deps } = await startAdapters();
    const url = `ws://127.0.0.1:${await closedPort()}`;
    const env = { OPENAI_API_KEY: SECRET, XAI_API_KEY: SECRET, OPENAI_REALTIME_URL: url, XAI_REALTIME_URL: url };
    const adapters = createAdapters({ ...deps, credentials: createVoiceCredentials({ env }) });
    await expect(rendered(adapters(id) ?? expect.fail(), aRequest())).rejects.toThrow(/: connection refused$/);
  });

  it('leaving early closes the connection', async () => {
    const { provider, adapter } = await startAdapters();
    provider.onSocket(answering(audioDelta(audioBytes(8192))));
    for await (const { pcm } of adapter(id)(aRequest())) {
      expect(pcm.length).toBe(4096);
      break;
    }
    await expect.poll(() => provider.sockets[0]?.isOver).toBe(true);
  });

  it('a provider that hangs ends by the signal, and the connection with it', async () => {
    const { provider, adapter } = await startAdapters();
    const end = new AbortController();
    const next = adapter(id)(aRequest({ signal: end.signal })).next();
    await (await provider.socket(0)).message(2);
    end.abort(new Error('the session is over'));
    await expect(next).rejects.toThrow('the session is over');
    await expect.poll(() => provider.sockets[0]?.isOver).toBe(true);
  });

  it('05 §13: waits 60 s for the provider in all', async () => {
    const clock = createTestClock();
    const { provider, adapter } = await startAdapters(clock);
    const settled = expect(adapter(id)(aRequest()).next()).rejects.toMatchObject({ kind: 'gateway-timeout' });
    const socket = await provider.socket(0);
    await socket.message(2);
    await clock.advanceAsync(59_999);
    await socket.send({ type: 'response.created' });
    expect(socket.isOver).toBe(false);
    await clock.advanceAsync(1);
    await settled;
    await expect.poll(() => socket.isOver).toBe(true);
  });
});

it('pauses a provider that floods it with small events, and resumes it when they are taken', async () => {
  let message = (_text: string) => {};
  const reading: boolean[] = [];
  const connection = await connectRealtime(
    async (_request, events) => {
      message = events.message;
      const none = () => {};
      return {
        send: none,
        unsent: () => 0,
        pause: () => reading.push(false),
        resume: () => reading.push(true),
        close: none,
        terminate: none,
      };
    },
    { url: 'ws://127.0.0.1:1', secret: SECRET, model: 'm', signal: new AbortController().signal },
  );
  for (let sent = 0; sent < 5000; sent++) message('{"type":"a"}');
  expect(reading).toEqual([false]);
  message(JSON.stringify(DONE));
  expect(await connection.next()).toEqual({ type: 'done' });
  expect(reading).toEqual([false, true]);
});

it('refuses an event of too much structure without parsing it', () => {
  const nested = `{"type":"response.done","x":${'['.repeat(100_000)}${']'.repeat(100_000)}}`;
  expect(parseRealtimeEvent(nested)).toMatchObject({ type: 'error' });
});
