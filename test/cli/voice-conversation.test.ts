import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import type { Audience, Confirmation } from '../../cli/voice/conversation.ts';
import { startConversation } from '../../cli/voice/conversation.ts';
import { samplesOf } from '../../cli/voice/microphone.ts';
import type { VoiceRelay } from '../../cli/voice/relay.ts';
import { followSession } from '../../cli/voice/socket.ts';
import type { JsonObject } from '../../lib/kit/json.ts';
import { wavFile } from '../../lib/voice/streaming/wav.ts';

type Message = Record<string, unknown> & { type: string };

/** One socket of the fake relay. */
interface Line {
  messages: Message[];
  send(type: string, members?: JsonObject): void;
  close(code: number, reason?: string): void;
  cut(): void;
}

/** A relay that numbers its events as the real one does, and otherwise says what the test says. */
async function setUp(request = {}) {
  /** Status with which upgrades are refused. */
  let refusal: number | undefined;
  let refusals = 0;
  const server = new WebSocketServer({
    port: 0,
    host: '127.0.0.1',
    verifyClient: (_info, decide) => {
      if (refusal !== undefined) refusals++;
      decide(refusal === undefined, refusal);
    },
  });
  await new Promise((resolve) => server.once('listening', resolve));
  const lines: Line[] = [];
  const ids = { event: 0, audio: 0 };
  server.on('connection', (socket: WebSocket) => {
    const messages: Message[] = [];
    socket.on('message', (data) => messages.push(JSON.parse(String(data))));
    lines.push({
      messages,
      send: (type, members = {}) => {
        const audio = type === 'voice.output_audio.delta' ? { audio_event_id: ++ids.audio } : {};
        socket.send(JSON.stringify({ type, event_id: ++ids.event, ...audio, ...members }));
      },
      close: (code, reason) => socket.close(code, reason),
      cut: () => socket.terminate(),
    });
  });
  const stop = new AbortController();
  const asked: unknown[] = [];
  const { port } = server.address() as AddressInfo;
  const relay: VoiceRelay = {
    name: 'fake',
    isLocal: true,
    signal: stop.signal,
    async call({ path, body }) {
      asked.push([path, body]);
      return { websocket_path: '/voice/realtime-agent/x', resume_token: 'token', provider: 'stub' };
    },
    fetch: async () => {},
    socket: (path) => ({ url: `ws://127.0.0.1:${port}${path}`, headers: {}, rejectUnauthorized: true }),
  };
  const said: string[] = [];
  const confirmations: Confirmation[] = [];
  const audio: Buffer[] = [];
  let unplayed = 0;
  const audience: Audience = {
    event: () => {},
    transcript: (text) => void said.push(`you ${text}`),
    answer: (text) => void said.push(`agent ${text}`),
    audio: ({ pcm }) => void audio.push(pcm),
    progress: (text) => void said.push(`progress ${text}`),
    confirmation: (confirmation) => void confirmations.push(confirmation),
    unplayed: () => unplayed,
    connection: (state) => void said.push(state),
  };
  const { conversation, run } = await startConversation(relay, request, audience);
  const ended = run();
  ended.catch(() => {});
  onTestFinished(async () => {
    stop.abort();
    for (const client of server.clients) client.terminate();
    server.close();
    // It would go on to dial a port that another test may have by then.
    await ended.catch(() => {});
  });
  const sent = (line: Line | undefined) => line?.messages.filter(({ type }) => type !== 'client.ack');
  return {
    asked,
    lines,
    conversation,
    ended,
    said,
    confirmations,
    audio,
    stop: () => stop.abort(),
    relay,
    refuse: (status: number | undefined) => {
      refusal = status;
    },
    refusals: () => refusals,
    setUnplayed: (ms: number) => {
      unplayed = ms;
    },
    /** The socket at `index`, once the client has sent `count` messages over it, not counting acknowledgements. */
    line: async (index: number, count: number): Promise<Line & { sent: Message[] }> => {
      await expect.poll(() => sent(lines[index])?.length, { interval: 5 }).toBeGreaterThanOrEqual(count);
      const line = lines[index] as Line;
      return { ...line, sent: sent(line) as Message[] };
    },
  };
}

const respond = (line: Line, text: string, members: JsonObject = {}) => {
  line.send('voice.response.started', members);
  for (const delta of text.split(/(?<= )/)) line.send('voice.response.delta', { delta, ...members });
  line.send('voice.response.done', members);
};

it('says a text, hears the answer, and closes', async () => {
  const { asked, conversation, line, said, audio, ended } = await setUp({ provider: 'stub' });
  expect(asked).toEqual([['/voice/realtime-agent/session', { provider: 'stub' }]]);
  conversation.say('Hello');
  const first = await line(0, 2);
  expect(first.sent).toEqual([{ type: 'session.start' }, { type: 'response.create', text: 'Hello' }]);
  first.send('voice.input_transcript.final', { text: 'Hello', source: 'client_text' });
  first.send('voice.output_audio.delta', { audio_base64: 'AQI=', byte_count: 2, sample_rate: 16_000 });
  respond(first, 'Good day');
  await conversation.until(({ isTurn }) => !isTurn);
  expect([said, audio]).toEqual([['agent Good day'], [Buffer.of(1, 2)]]);
  expect(conversation.isSettled).toBe(true);
  conversation.close();
  expect((await line(0, 3)).sent.at(-1)).toEqual({ type: 'session.close' });
  first.close(1000, 'session closed');
  await ended;
});

it('acknowledges what it has got, and what was played once it was', async () => {
  const { line, lines, setUnplayed } = await setUp();
  const first = await line(0, 1);
  const acks = () => lines[0]?.messages.filter(({ type }) => type === 'client.ack');
  first.send('voice.session.ready');
  setUnplayed(20);
  first.send('voice.output_audio.delta', { audio_base64: 'AQI=', byte_count: 2, sample_rate: 16_000 });
  first.send('voice.playback_drain.requested', { call_id: 'c', timeout_ms: 2500 });
  const { sent } = await line(0, 2);
  expect(sent[1]).toEqual({ type: 'playback.drained', call_id: 'c', played_audio_event_id: 1 });
  setUnplayed(0);
  first.send('voice.output_audio.done');
  await expect.poll(acks).toHaveLength(3);
  expect(acks()).toEqual([
    { type: 'client.ack', event_id: 2, audio_event_id: 1, played_audio_event_id: 0 },
    { type: 'client.ack', event_id: 3, audio_event_id: 1, played_audio_event_id: 0 },
    { type: 'client.ack', event_id: 4, audio_event_id: 1, played_audio_event_id: 1 },
  ]);
});

it('comes back with its cursors and everything that the relay may not have, as often as it is lost', async () => {
  const { conversation, line, said } = await setUp();
  const first = await line(0, 1);
  for (const byte of [1, 2, 3]) conversation.append(Buffer.of(byte, 0), 16_000);
  conversation.commit();
  await line(0, 5);
  first.send('voice.input_audio.received', { input_chunk_id: 1 });
  first.send('voice.output_audio.delta', { audio_base64: 'AQI=', byte_count: 2, sample_rate: 16_000 });
  await expect.poll(() => first.messages.filter(({ type }) => type === 'client.ack')).toHaveLength(2);
  first.cut();
  const resume = {
    type: 'session.resume',
    resume_token: 'token',
    last_event_id: 2,
    last_audio_event_id: 1,
    last_played_audio_event_id: 1,
    last_input_chunk_id: 1,
  };
  const append = (chunk_id: number) => ({ type: 'input_audio.append', sample_rate: 16_000, chunk_id });
  const again = [append(2), append(3), { type: 'input_audio.commit' }];
  const second = await line(1, 4);
  expect(second.sent).toMatchObject([resume, ...again]);
  second.send('voice.replay.done');
  second.send('voice.input_audio.received', { input_chunk_id: 3 });
  second.send('voice.input_transcript.final', { text: 'what I said' });
  await expect.poll(() => said).toContain('you what I said');
  second.cut();
  const third = await line(2, 1);
  expect(third.sent).toEqual([{ ...resume, last_event_id: 5, last_input_chunk_id: 3 }]);
  expect(said).toEqual(['lost', 'resumed', 'you what I said', 'lost']);
});

it('says a text again only if the replay does not show that the relay has it', async () => {
  const { conversation, line } = await setUp();
  const first = await line(0, 1);
  first.send('voice.session.ready');
  conversation.say('Hello');
  await line(0, 2);
  first.cut();
  const second = await line(1, 1);
  second.send('voice.replay.done');
  expect((await line(1, 2)).sent[1]).toEqual({ type: 'response.create', text: 'Hello' });
  second.send('voice.input_transcript.final', { text: 'Hello', source: 'client_text' });
  await expect.poll(() => second.messages.some(({ type }) => type === 'client.ack')).toBe(true);
  second.cut();
  const third = await line(2, 1);
  third.send('voice.replay.done');
  respond(third, 'Yes');
  await conversation.until(({ isTurn }) => !isTurn);
  expect((await line(2, 1)).sent).toHaveLength(1);
});

it('waits for the answers of tasks in the background', async () => {
  const { conversation, line, said } = await setUp();
  conversation.say('Do it');
  const first = await line(0, 2);
  first.send('svc.run.promoted', { spoken_handoff: true, queued_count: 0 });
  respond(first, 'I have begun');
  await conversation.until(({ isTurn }) => !isTurn);
  expect(conversation.isSettled).toBe(false);
  first.send('svc.run.queued', { queued_count: 1 });
  first.send('svc.run.background_completed', { ok: true, queued_count: 1 });
  respond(first, 'It is done', { delivery: 'forced_summary' });
  first.send('svc.run.promoted', { spoken_handoff: false, origin: 'queued', queued_count: 0 });
  first.send('svc.run.background_completed', { ok: false, error: 'x', queued_count: 0 });
  await expect.poll(() => said.length).toBe(4);
  expect(conversation.isSettled).toBe(false);
  respond(first, 'It failed', { delivery: 'visual_only' });
  await conversation.until(({ isSettled }) => isSettled);
  const background = 'progress The task goes on in the background.';
  expect(said).toEqual([background, 'agent I have begun', 'agent It is done', background, 'agent It failed']);
});

it('asks for confirmations, and answers again what did not arrive', async () => {
  const { conversation, line, confirmations } = await setUp();
  conversation.say('Delete it');
  const first = await line(0, 2);
  first.send('svc.confirmation.requested', { confirmation_id: 'c1', message: 'Really?\u001b[31m' });
  await conversation.until(({ confirmation }) => confirmation !== undefined);
  expect(confirmations).toEqual([{ id: 'c1', message: 'Really?[31m' }]);
  conversation.decide('deny');
  const decision = { type: 'svc.confirm', confirmation_id: 'c1', answer: 'deny' };
  expect((await line(0, 3)).sent[2]).toEqual(decision);
  first.cut();
  const second = await line(1, 2);
  expect(second.sent[1]).toEqual(decision);
  second.send('svc.confirmation.forwarded', { confirmation_id: 'c1', answer: 'deny' });
  await expect.poll(() => second.messages.some(({ type }) => type === 'client.ack')).toBe(true);
  second.cut();
  expect((await line(2, 1)).sent.map(({ type }) => type)).not.toContain('svc.confirm');
});

it.each([
  ['No active response found', true],
  ['Cancellation failed: nothing to cancel', true],
  ['session timed out due to inactivity', true],
  ['OpenAI Realtime auth is not configured', false],
])('takes %j as harmless: %s', async (message, isHarmless) => {
  const { conversation, line, ended } = await setUp();
  conversation.say('Hello');
  const first = await line(0, 2);
  first.send('voice.error', { message });
  if (!isHarmless) {
    await expect(conversation.until(({ isTurn }) => !isTurn)).rejects.toThrow(message);
    return expect(ended).rejects.toMatchObject({ message, next: expect.stringContaining('svc voice doctor') });
  }
  respond(first, 'Yes');
  return conversation.until(({ isTurn }) => !isTurn);
});

it('a session that ends while nothing is due ends well; one that ends in a turn fails', async () => {
  const idle = await setUp();
  (await idle.line(0, 1)).close(1000, 'provider idle timeout');
  await idle.ended;
  expect(idle.said).toEqual(['progress The relay has ended the session: provider idle timeout.']);
  const busy = await setUp();
  busy.conversation.say('Hello');
  (await busy.line(0, 2)).close(1000, 'provider gone');
  await expect(busy.conversation.until(({ isTurn }) => !isTurn)).rejects.toThrow('provider gone');
  const failed = await setUp();
  (await failed.line(0, 1)).send('voice.session.resume_failed', { reason: 'resume_expired' });
  await expect(failed.ended).rejects.toThrow(/did not resume/);
});

it('says that a session is lost which the relay knows no more', async () => {
  const { line, refuse, ended, said } = await setUp();
  const first = await line(0, 1);
  first.send('voice.session.ready');
  await expect.poll(() => first.messages.length).toBeGreaterThan(0);
  refuse(404);
  first.close(1001, 'server shutting down');
  await expect(ended).rejects.toThrow(/the relay was restarted, or has ended the session/);
  expect(said).toEqual(['lost']);
});

it.each([502, 503, 504])('comes back although a proxy answers %i while the relay is away', async (status) => {
  const { line, refuse, refusals, said } = await setUp();
  const first = await line(0, 1);
  first.send('voice.session.ready');
  refuse(status);
  first.close(1001);
  await expect.poll(refusals).toBeGreaterThan(1);
  refuse(undefined);
  const second = await line(1, 1);
  expect(second.sent).toMatchObject([{ type: 'session.resume' }]);
  second.send('voice.replay.done');
  await expect.poll(() => said).toEqual(['lost', 'resumed']);
});

it('gives up a session whose proxy finds no relay in the time for coming back', async () => {
  const { relay, line, refuse } = await setUp();
  await line(0, 1);
  const client = { start: () => [{ type: 'session.start' }], resume: () => [], onEvent: () => undefined };
  const ended = followSession(relay, '/x', client, { resumes: 1, comeBack: 300 });
  const gone = expect(ended).rejects.toThrow('the connection to the relay on fake was lost: HTTP 502');
  const first = await line(1, 1);
  first.send('voice.session.ready');
  refuse(502);
  first.close(1001);
  await gone;
});

it('a signal closes the session', async () => {
  const { line, ended, stop } = await setUp();
  await line(0, 1);
  stop();
  await expect(ended).rejects.toThrow('stopped');
  expect((await line(0, 2)).sent[1]).toEqual({ type: 'session.close' });
});

it('reads recordings, also with other chunks in them and without an end', () => {
  const pcm = Buffer.from([1, 2, 3, 4]);
  const wav = Buffer.from(wavFile(pcm, 16_000));
  expect(samplesOf(wav)).toEqual({ pcm, rate: 16_000 });
  const list = Buffer.from('LIST\x03\x00\x00\x00abc\x00', 'latin1');
  expect(samplesOf(Buffer.concat([wav.subarray(0, 36), list, wav.subarray(36)]))).toEqual({ pcm, rate: 16_000 });
  const endless = Buffer.from(wav);
  endless.writeUInt32LE(0xffff_ffff, 40);
  expect(samplesOf(endless.subarray(0, 47))).toEqual({ pcm: pcm.subarray(0, 2), rate: 16_000 });
  const changed = (at: number, value: number) => {
    const copy = Buffer.from(wav);
    copy.writeUInt16LE(value, at);
    return samplesOf(copy);
  };
  expect(changed(22, 2)).toBe('has 2 channels instead of one');
  expect(changed(34, 8)).toBe('has no 16-bit PCM samples');
  expect(changed(20, 7)).toBe('has no 16-bit PCM samples');
  expect(changed(24, 4000)).toBe('has 4000 Hz instead of 8000 to 96000');
  expect(samplesOf(wav.subarray(0, 44))).toBe('has no samples');
  expect(samplesOf(Buffer.from('ID3 no wav'))).toBe('is no WAV file');
});
