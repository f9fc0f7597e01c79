import type {
  ConversationItem,
  RealtimeClientEvent,
  RealtimeSessionCreateRequest,
} from 'openai/resources/realtime/realtime';
import { describe, expect, it, vi } from 'vitest';
import { createTestClock } from '../../../../support/clock.ts';
import { closedPort } from '../../../../support/closed-port.ts';
import { scriptRealtime } from '../../../../support/voice/realtime-provider.ts';
import { NATIVE, pcmOf, SECRET, samplesOf, startProviders, TOOL } from './support.ts';

const TOOLS = [{ type: 'function' as const, ...TOOL }];
const silence = (samples: number) => new Uint8Array(samples * 2);

it('06 §9: the first message of OpenAI', async () => {
  const { provider, connect } = await startProviders();
  await connect('openai_realtime', { headers: { 'OpenAI-Organization': 'org' } });
  const socket = await provider.socket(0);
  expect([socket.path, String(socket.query)]).toEqual(['/v1/realtime', 'model=m+1']);
  expect(socket.headers).toMatchObject({ authorization: `Bearer ${SECRET}`, 'openai-organization': 'org' });
  expect(socket.headers['sec-websocket-extensions']).toBeUndefined();
  expect(await socket.message(0)).toEqual({
    type: 'session.update',
    event_id: 'settings',
    session: {
      type: 'realtime',
      model: 'm 1',
      instructions: 'Be brief.',
      output_modalities: ['audio'],
      audio: {
        input: {
          format: { type: 'audio/pcm', rate: 24_000 },
          turn_detection: null,
          transcription: { model: 'gpt-realtime-whisper' },
        },
        output: { format: { type: 'audio/pcm' }, voice: 'v' },
      },
      tools: TOOLS,
      tool_choice: 'auto',
    },
  } satisfies RealtimeClientEvent);
});

it('sends OpenAI the optional settings that are set, and none of them once it refuses one', async () => {
  const { provider, connect } = await startProviders();
  const tuning = { noiseReduction: 'near_field', transcriptionLanguage: 'de', speed: 1.2, truncation: 0.8 };
  const { event, events } = await connect('openai_realtime', { tuning });
  const socket = await provider.socket(0);
  const { session } = (await socket.message(0)) as { session: object };
  expect(session).toMatchObject({
    type: 'realtime',
    audio: {
      input: {
        noise_reduction: { type: 'near_field' },
        transcription: { model: 'gpt-realtime-whisper', language: 'de' },
      },
      output: { speed: 1.2 },
    },
    truncation: { type: 'retention_ratio', retention_ratio: 0.8 },
  } satisfies Partial<RealtimeSessionCreateRequest>);
  const error = { code: 'invalid_value', param: 'session.audio.output.speed', message: 'no', event_id: 'settings' };
  void socket.send({ type: 'error', error });
  expect((await socket.message(1)).session).toMatchObject({ audio: { output: { voice: 'v' } }, tools: TOOLS });
  const again = JSON.stringify(await socket.message(1));
  for (const name of ['noise_reduction', 'language', 'speed', 'truncation']) expect(again).not.toContain(name);
  await event('notice');
  expect(events.filter(({ type }) => type === 'settingsRefused')).toEqual([]);
  void socket.send({ type: 'error', error });
  await event('settingsRefused');
});

it('06 §9: the first message of xAI', async () => {
  const { provider, connect } = await startProviders();
  await connect('xai_realtime', { sampleRate: 16_000 });
  const format = { type: 'audio/pcm', rate: 16_000 };
  expect(await (await provider.socket(0)).message(0)).toEqual({
    type: 'session.update',
    event_id: 'settings',
    session: {
      voice: 'v',
      instructions: 'Be brief.',
      audio: { input: { format }, output: { format } },
      turn_detection: null,
      tools: TOOLS,
    },
  });
});

it('06 §6.9: settings that are not confirmed within 5 s are refused', async () => {
  const clock = createTestClock();
  const { provider, connect } = await startProviders(clock);
  const silent = await connect('openai_realtime');
  const confirmed = await connect('openai_realtime');
  const closed = await connect('openai_realtime');
  await (await provider.socket(1)).send({ type: 'session.updated' });
  await confirmed.event('ready');
  closed.session.close();
  await clock.advance(4999);
  expect(silent.events).toEqual([]);
  await clock.advance(1);
  expect(silent.events).toMatchObject([{ type: 'settingsRefused', setting: 'session' }]);
  expect(confirmed.events).toMatchObject([{ type: 'ready' }]);
  expect(closed.events).toEqual([]);
});

it('06 §2.2: the URL of a variable keeps its query', async () => {
  const { provider } = await startProviders();
  const url = `${provider.url.replace('http', 'ws')}/own?version=1`;
  const own = await startProviders(undefined, { OPENAI_API_KEY: SECRET, OPENAI_REALTIME_URL: url });
  await own.connect('openai_realtime');
  const socket = await provider.socket(0);
  expect([socket.path, String(socket.query)]).toEqual(['/own', 'version=1&model=m+1']);
});

it('06 §9: OpenAI has only 24000 Hz, which is checked before connecting', async () => {
  const { provider, connect } = await startProviders();
  await expect(connect('openai_realtime', { sampleRate: 16_000 })).rejects.toMatchObject({
    message: 'OpenAI Realtime supports only a sample rate of 24000 Hz, not 16000',
  });
  expect(provider.sockets).toEqual([]);
});

it('06 §9: xAI says an exact text by a message of its own, OpenAI by instructions', async () => {
  const { provider, connect } = await startProviders();
  for (const id of NATIVE) {
    const { session } = await connect(id);
    session.requestResponse({ instructions: 'Read it.', exactText: 'Done.' });
  }
  expect(await (await provider.socket(0)).message(1)).toEqual({
    type: 'response.create',
    response: { instructions: 'Read it.' },
  });
  expect(await (await provider.socket(1)).message(1)).toEqual({
    type: 'conversation.item.create',
    item: {
      type: 'force_message',
      role: 'assistant',
      interruptible: true,
      content: [{ type: 'output_text', text: 'Done.' }],
    },
  });
});

describe.each([
  ['openai_realtime', 'OpenAI', 'OPENAI_API_KEY'],
  ['xai_realtime', 'xAI', 'XAI_API_KEY'],
])('%s', (id, label, keyName) => {
  it('06 §9: sends what the session is told', async () => {
    const { provider, connect } = await startProviders();
    const { session } = await connect(id);
    session.sendText('Hi');
    session.requestResponse();
    session.requestResponse({ instructions: 'Only this.' });
    session.cancelResponse();
    session.sendToolResult('c', { ok: true });
    session.appendContext('assistant', 'I said so.');
    session.appendContext('user', 'Did you?');
    session.truncate('i', 1, 1234.5, 'I said');
    session.clearAudio();
    const socket = await provider.socket(0);
    await socket.message(9);
    const item = (value: ConversationItem) => ({ type: 'conversation.item.create' as const, item: value });
    const user = (text: string) => item({ type: 'message', role: 'user', content: [{ type: 'input_text', text }] });
    const assistant = (text: string) =>
      item({ type: 'message', role: 'assistant', content: [{ type: 'output_text', text }] });
    expect(socket.messages.slice(1)).toEqual([
      user('Hi'),
      { type: 'response.create' },
      { type: 'response.create', response: { instructions: 'Only this.' } },
      { type: 'response.cancel' },
      item({ type: 'function_call_output', call_id: 'c', output: '{"ok":true}' }),
      assistant('I said so.'),
      user('Did you?'),
      {
        type: 'conversation.item.truncate',
        event_id: expect.any(String),
        item_id: 'i',
        content_index: 1,
        audio_end_ms: 1234,
      },
      // xAI ignores it.
      ...(id === 'xai_realtime' ? [user('I interrupted you, and have heard of your last answer only: I said')] : []),
      { type: 'input_audio_buffer.clear' },
    ] satisfies RealtimeClientEvent[]);
  });

  it('06 §9: resamples the microphone, and commits only what was heard', async () => {
    const { provider, connect } = await startProviders();
    const script = scriptRealtime(provider, { transcripts: ['Hello'] });
    const { session, events, event } = await connect(id);
    session.commitAudio();
    for (let chunk = 0; chunk < 5; chunk++) session.sendAudio(silence(3200), 16_000);
    session.commitAudio();
    session.commitAudio();
    session.sendAudio(silence(3), 24_000);
    session.clearAudio();
    session.commitAudio();
    session.requestResponse();
    await event('responseDone');
    const [conversation] = script.conversations;
    expect(conversation?.socket.messages.map(({ type }) => String(type).replace('input_audio_buffer.', ''))).toEqual([
      'session.update',
      ...Array(5).fill('append'),
      'commit',
      'append',
      'clear',
      'response.create',
    ]);
    expect(
      conversation
        ?.sent('input_audio_buffer.append')
        .slice(0, 5)
        .map(({ audio }) => String(audio).length),
    ).toEqual(Array(5).fill((4800 * 2 * 4) / 3));
    expect(events.map(({ type }) => type)).toEqual([
      'ready',
      'transcriptDelta',
      'transcriptFinal',
      'responseStarted',
      'textDelta',
      'audioDone',
      'responseDone',
    ]);
  });

  it('06 §6.9: hears each utterance of a server that uses its ids again', async () => {
    const { provider, connect } = await startProviders();
    const { session, events } = await connect(id);
    const socket = await provider.socket(0);
    const finals = () => events.flatMap((event) => (event.type === 'transcriptFinal' ? [event.text] : []));
    for (const [at, transcript] of ['one', 'two', 'two'].entries()) {
      session.sendAudio(silence(3200), 16_000);
      session.commitAudio();
      await socket.message(2 * at + 2);
      const type = 'conversation.item.input_audio_transcription.completed';
      for (let time = 0; time < 2; time++) await socket.send({ type, item_id: 'item', transcript });
      await expect.poll(() => finals().length).toBe(at + 1);
    }
    expect(finals()).toEqual(['one', 'two', 'two']);
  });

  it('06 §6.1: refuses half a sample and wrong rates, and goes on', async () => {
    const { provider, connect } = await startProviders();
    const { session } = await connect(id);
    expect(() => session.sendAudio(new Uint8Array(3), 16_000)).toThrow(/16-bit sample/);
    expect(() => session.sendAudio(new Uint8Array(2), 4000)).toThrow(/8000 to 96000/);
    session.sendAudio(pcmOf([7]), 24_000);
    const append = await (await provider.socket(0)).message(1);
    expect(samplesOf(Buffer.from(String(append.audio), 'base64'))).toEqual([7]);
  });

  it('06 §9: a response with text, audio and a call', async () => {
    const { provider, connect } = await startProviders();
    const pcm = pcmOf([1, 2, 3]);
    const calls = [{ callId: 'c', name: 'svc_run_task', args: { text: 'x' } }];
    scriptRealtime(provider, { turns: [{ text: 'Let me see.', audio: [pcm], calls }] });
    const { session, events, event } = await connect(id);
    session.requestResponse();
    await event('responseDone');
    const responseId = 'resp-1';
    expect(events).toEqual([
      { type: 'ready', model: 'm 1' },
      { type: 'responseStarted', responseId },
      { type: 'textDelta', responseId, text: 'Let me see.' },
      { type: 'audioDelta', responseId, itemId: 'item-resp-1', contentIndex: 0, pcm },
      { type: 'functionCall', responseId, callId: 'c', name: 'svc_run_task', args: '{"text":"x"}' },
      { type: 'audioDone', responseId },
      { type: 'responseDone', responseId, status: 'completed' },
    ]);
  });

  it('06 §6.6: a cancellation ends the response, and another one is harmless', async () => {
    const { provider, connect } = await startProviders();
    scriptRealtime(provider, { turns: [{ text: 'A long story', isOpen: true }] });
    const { session, event } = await connect(id);
    session.requestResponse();
    await event('textDelta');
    session.cancelResponse();
    expect(await event('responseDone')).toMatchObject({ status: 'cancelled' });
    session.cancelResponse();
    expect((await event('notice')).message).toBe(`${label} Realtime error: no active response found`);
  });

  it('06 §6.6: a truncation that the provider refuses is harmless', async () => {
    const { provider, connect } = await startProviders();
    const { session, events, event } = await connect(id);
    session.truncate('unknown', 0, 0, '');
    const socket = await provider.socket(0);
    const { event_id } = await socket.message(1);
    void socket.send({ type: 'error', error: { message: 'item not found', event_id } });
    await event('notice');
    expect(events.filter(({ type }) => type === 'error')).toEqual([]);
  });

  it.each([401, 403])('06 §9: a handshake refused with %i names the source of the key', async (status) => {
    const { provider, connect } = await startProviders();
    provider.refuseSockets(status, SECRET);
    await expect(connect(id)).rejects.toMatchObject({
      message: `${label} Realtime rejected the relay auth (HTTP ${status}, key from ${keyName})`,
    });
    provider.refuseSockets(undefined);
    await connect(id);
  });

  it('06 §10: hides the values of extra headers in what the provider says', async () => {
    const { provider, connect } = await startProviders();
    const { event } = await connect(id, { headers: { 'x-gateway': 'gateway-secret' } });
    const socket = await provider.socket(0);
    void socket.send({ type: 'error', error: { message: 'no access for gateway-secret' } });
    expect(await event('error')).toMatchObject({ message: expect.stringMatching(/no access for <redacted>$/) });
  });

  it('06 §9: without a key there is no connection', async () => {
    const { connect } = await startProviders(undefined, {});
    await expect(connect(id)).rejects.toThrow(`${label} Realtime auth is not configured: set one of`);
  });

  it('06 §9: other refusals are errors without an address', async () => {
    const { provider, connect } = await startProviders();
    provider.refuseSockets(500);
    await expect(connect(id)).rejects.toThrow(`${label} Realtime cannot be reached: HTTP 500`);
    const url = `ws://127.0.0.1:${await closedPort()}`;
    const nowhere = await startProviders(undefined, {
      [keyName]: SECRET,
      OPENAI_REALTIME_URL: url,
      XAI_REALTIME_URL: url,
    });
    await expect(nowhere.connect(id)).rejects.toThrow(/cannot be reached: connection refused$/);
  });

  it('06 §9: waits 12 s for the connection', async () => {
    const clock = createTestClock();
    const { provider, connect } = await startProviders(clock);
    provider.ignoreSockets();
    let failure: Error | undefined;
    connect(id).catch((error) => {
      failure = error;
    });
    await clock.advanceAsync(11_999);
    expect(failure).toBeUndefined();
    await clock.advanceAsync(1);
    expect(failure?.message).toBe(`${label} Realtime did not answer within 12 seconds`);
    await vi.waitFor(() => expect(provider.ignored.every((stream) => stream.destroyed)).toBe(true));
    expect(clock.pending).toBe(0);
  });

  it('a signal ends the attempt to connect, and later the session, without an event', async () => {
    const { provider, connect } = await startProviders();
    const end = new AbortController();
    const attempt = connect(id, { signal: end.signal });
    end.abort(new Error('the session is over'));
    await expect(attempt).rejects.toThrow('the session is over');
    const { events, event, end: later } = await connect(id);
    const socket = await provider.socket(provider.sockets.length - 1);
    void socket.send({ type: 'session.created' });
    await event('ready');
    later.abort();
    await expect.poll(() => socket.isOver).toBe(true);
    expect(events.map(({ type }) => type)).toEqual(['ready']);
  });

  it('closing says good-bye, and reports nothing more', async () => {
    const { provider, connect } = await startProviders();
    const { session, events } = await connect(id);
    session.close();
    session.sendText('into the void');
    const socket = await provider.socket(0);
    await expect.poll(() => socket.isOver).toBe(true);
    expect(socket.closeCode).toBe(1000);
    expect(events).toEqual([]);
  });

  it('a lost connection is reported last', async () => {
    const { provider, connect } = await startProviders();
    const script = scriptRealtime(provider, { turns: [{ text: 'And then', isOpen: true }] });
    const { session, events, event } = await connect(id);
    session.requestResponse();
    await event('textDelta');
    script.conversations[0]?.reset();
    expect(await event('closed')).toMatchObject({ idle: false, message: expect.stringContaining('1006') });
    expect(events.at(-1)?.type).toBe('closed');
    session.sendAudio(silence(10), 24_000);
  });

  it('06 §9: an idle or old session ends as such, and is not waited for', async () => {
    const { provider, connect } = await startProviders();
    const script = scriptRealtime(provider);
    const { events, event } = await connect(id);
    await event('ready');
    script.conversations[0]?.fail({ message: 'Connection timed out due to inactivity' });
    expect(await event('closed')).toMatchObject({ idle: true });
    expect(events.map(({ type }) => type)).toEqual(['ready', 'notice', 'closed']);
  });

  it('06 §9: garbage is an error, and the session goes on', async () => {
    const { provider, connect } = await startProviders();
    const { event } = await connect(id);
    const socket = await provider.socket(0);
    await socket.send('not json');
    await socket.send({ type: 'response.output_audio.delta', response_id: 'r', delta: '%' });
    await socket.send({ type: 'session.created' });
    await event('error');
    await event('ready');
  });

  it('no key gets into an event', async () => {
    const { provider, connect } = await startProviders();
    const { events, event } = await connect(id);
    const socket = await provider.socket(0);
    await socket.send({ type: 'error', error: { message: `your key ${SECRET} is bad` } });
    await event('error');
    socket.cut();
    await event('closed');
    expect(JSON.stringify(events)).not.toContain(SECRET);
  });

  it('a provider that does not take the audio is dropped', async () => {
    const { provider, connect } = await startProviders();
    const { session, event } = await connect(id);
    const socket = await provider.socket(0);
    await socket.message(0);
    socket.stall();
    for (let sent = 0; sent < 40; sent++) session.sendAudio(silence(512 * 1024), 24_000);
    expect(await event('closed')).toMatchObject({
      idle: false,
      message: expect.stringContaining('as fast as it comes'),
    });
  });
});

it('05 §18: a server of the owner gets the requests of OpenAI, without a key', async () => {
  const { provider, connect } = await startProviders(undefined, {});
  const servers = { realtime: { local: { base_url: `${provider.url}/v1` } } };
  const connecting = connect('local_realtime', { model: 'home', servers });
  const socket = await provider.socket(0);
  await connecting;
  expect(socket.headers.authorization).toBeUndefined();
  expect([socket.path, socket.query.get('model')]).toEqual(['/v1/realtime', 'home']);
  await expect(connect('local_realtime')).rejects.toThrow('set realtime.local.base_url');
});
