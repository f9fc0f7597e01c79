import { expect, it } from 'vitest';
import { RelayError } from '../../../../lib/errors.ts';
import type { JsonObject } from '../../../../lib/kit/json.ts';
import type { LogLevel } from '../../../../lib/log-tail.ts';
import type { Transport } from '../../../../lib/socket/transport.ts';
import type { Artifacts } from '../../../../lib/voice/artifacts.ts';
import { createVoiceLab } from '../../../../lib/voice/lab/lab.ts';
import type { VoicePrincipal } from '../../../../lib/voice/principal.ts';
import { realtimeVoice } from '../../../../lib/voice/settings.ts';
import type { Adapter } from '../../../../lib/voice/streaming/adapter.ts';
import { renderStub } from '../../../../lib/voice/streaming/stub.ts';
import { createTestClock } from '../../../support/clock.ts';
import { createTestLog } from '../../../support/log.ts';

const ANNE: VoicePrincipal = { kind: 'api', key: 'anne' };

const speaking: Adapter = async function* () {
  yield { pcm: new Uint8Array(4), sampleRate: 24_000, label: 'x' };
  return { provider: 'stub', model: 'm', voice: 'v', metadata: {}, transcript: 'PRIVATE ANSWER' };
};

/** Never yields; ends by its signal. */
const hanging = (signals: AbortSignal[]): Adapter =>
  async function* ({ signal }) {
    signals.push(signal);
    await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    throw signal.reason;
  };

function setUp({ adapter = renderStub as Adapter, logLevel = 'INFO' as LogLevel, enabled = true } = {}) {
  const clock = createTestClock();
  const recorded: JsonObject[] = [];
  const recordings: number[] = [];
  const artifacts = {
    open: () => ({
      logPath: '/logs/realtime.jsonl',
      record: (event: JsonObject) => void recorded.push(event),
      recordEnd: (event: JsonObject) => void recorded.push(event),
      startAudio: (rate: number) => `/logs/realtime-${recordings.push(rate)}.wav`,
      audio() {},
      endAudio() {},
      savedAudio: async (path: string) => path,
      settled: async () => {},
    }),
  } as unknown as Artifacts;
  let endPrincipal = (_reason: string) => {};
  const lab = createVoiceLab({
    config: { voiceResumeTtlMs: 30_000, logLevel },
    scope: async (profile) => ({
      settings: { ...realtimeVoice.defaults, provider: 'stub', model: 'stub-tone', voice: 'sine', enabled },
      section: {},
      configPath: '/relay/config.yaml',
      profile,
      configScope: 'relay',
      fallbackToGlobal: false,
      runDir: '/logs',
      headersFor: () => ({}),
      tuningFor: () => ({}),
      servers: {},
      defaultsFor: ({ defaultModel, defaultVoice }) => ({ model: defaultModel, voice: defaultVoice }),
    }),
    adapters: () => adapter,
    artifacts,
    onPrincipalEnded(_principal, ended) {
      endPrincipal = ended;
      return () => {};
    },
    clock,
    log: createTestLog(),
  });
  async function attach() {
    const { session_id: id } = (await lab.create({ principal: ANNE }, null, {})) as { session_id: string };
    const events: JsonObject[] = [];
    const closed: number[] = [];
    const transport: Transport = {
      id: crypto.randomUUID(),
      send: (text) => void events.push(JSON.parse(String(text))),
      close: (code) => void closed.push(code),
      terminate: () => void closed.push(1006),
      unsent: () => 0,
      pause: () => true,
      resume() {},
    };
    await lab.admit(id, ANNE);
    const socket = lab.open(id, ANNE, transport);
    const send = (message: unknown) => socket.message(JSON.stringify(message));
    const end = async () => {
      const isOver = () => ['voice.response.done', 'voice.error'].includes(String(events.at(-1)?.type));
      await expect.poll(isOver).toBe(true);
    };
    return { id, events, closed, socket, send, end, types: () => events.map(({ type }) => type) };
  }
  return { lab, clock, recorded, attach, endPrincipal: (reason: string) => endPrincipal(reason) };
}

it('05 §15: the event log has the transcript at DEBUG only; the client always gets it', async () => {
  for (const [logLevel, text] of [
    ['INFO', '<14 characters>'],
    ['DEBUG', 'PRIVATE ANSWER'],
  ] as const) {
    const { attach, recorded } = setUp({ adapter: speaking, logLevel });
    const { send, end, events } = await attach();
    send({ type: 'response.create', text: 'PRIVATE QUESTION' });
    await end();
    const isFinal = ({ type }: JsonObject) => type === 'voice.transcript.final';
    expect(events.find(isFinal)).toMatchObject({ text: 'PRIVATE ANSWER' });
    expect(recorded.find(isFinal)).toMatchObject({ text });
    expect(JSON.stringify(recorded)).not.toContain('QUESTION');
  }
});

it('05 §15: the event log has no text that a provider quotes in an error; the client is told all', async () => {
  const refusing: Adapter = async function* ({ text }) {
    yield { pcm: new Uint8Array(4), sampleRate: 24_000, label: 'x' };
    throw new RelayError('bad-gateway', `Stub answered HTTP 400: cannot say "${text.replace(/\s+/g, ' ')}" now`);
  };
  const { attach, recorded } = setUp({ adapter: refusing });
  const { send, end, events } = await attach();
  send({ type: 'response.create', text: ' PRIVATE\nQUESTION that nobody else may read ' });
  await end();
  expect(events.at(-1)).toMatchObject({ message: expect.stringContaining('PRIVATE QUESTION that nobody') });
  expect(recorded.at(-1)).toMatchObject({ message: 'Stub answered HTTP 400: cannot say " <text>' });
  expect(JSON.stringify(recorded)).not.toContain('PRIVATE');
});

it('05 §14, §15: logs the session from its creation to its end', async () => {
  const { attach, recorded } = setUp();
  const { send, closed, id } = await attach();
  send({ type: 'session.close' });
  expect(closed).toEqual([1000]);
  expect(recorded[0]).toMatchObject({ type: 'voice.session.created', session_id: id, provider: 'stub' });
  expect(recorded.at(-1)).toEqual({ type: 'voice.session.closed', session_id: id, reason: 'closed' });
});

it('a session over the limit is refused before it has an event log', async () => {
  const { lab, attach, recorded } = setUp({ adapter: hanging([]) });
  for (let count = 0; count < 16; count++) (await attach()).send({ type: 'response.create' });
  recorded.length = 0;
  await expect(lab.create({ principal: ANNE }, null, {})).rejects.toMatchObject({ kind: 'rate-limited' });
  expect(recorded).toEqual([]);
  expect(lab.count()).toBe(16);
  await lab.stop();
});

it('05 §14: keeps nothing of the input audio but its size', async () => {
  const { attach, recorded } = setUp();
  const { send, events } = await attach();
  const audio_base64 = Buffer.from('PRIVATE SOUND').toString('base64');
  send({ type: 'input_audio.append', audio_base64, sample_rate: 0.5 });
  expect(events.at(-1)).toMatchObject({ type: 'voice.input_audio.received', byte_count: 13, sample_rate: 24_000 });
  send({ type: 'input_audio.append', audio_base64: '' });
  expect(events.at(-1)).toMatchObject({ type: 'voice.error' });
  expect(JSON.stringify(recorded)).not.toContain(audio_base64);
});

it('05 §14: one recording per response', async () => {
  const { attach } = setUp();
  const { send, end, events } = await attach();
  for (let turn = 0; turn < 3; turn++) {
    send({ type: 'response.create' });
    await end();
  }
  const paths = events.filter(({ type }) => type === 'voice.response.done').map(({ audio_path }) => audio_path);
  expect(paths).toEqual(['/logs/realtime-1.wav', '/logs/realtime-2.wav', '/logs/realtime-3.wav']);
});

it('05 §14: the end of the socket aborts the render and closes the session', async () => {
  const signals: AbortSignal[] = [];
  const { attach, lab, recorded } = setUp({ adapter: hanging(signals) });
  const { send, socket, id } = await attach();
  send({ type: 'response.create', text: 'x' });
  await expect.poll(() => signals.map(({ aborted }) => aborted)).toEqual([false]);
  socket.closed({ code: 1006, reason: '' });
  expect(signals.map(({ aborted }) => aborted)).toEqual([true]);
  expect(recorded.at(-1)).toMatchObject({ type: 'voice.session.closed', reason: 'closed' });
  await expect(lab.admit(id, ANNE)).rejects.toMatchObject({ kind: 'gone' });
});

it('05 §14: a provider without audio for 12 s fails the render, and another may follow', async () => {
  const signals: AbortSignal[] = [];
  const { attach, clock } = setUp({ adapter: hanging(signals) });
  const { send, end, events, types } = await attach();
  send({ type: 'response.create', text: 'x' });
  send({ type: 'response.create', text: 'y' });
  expect(events.at(-1)).toMatchObject({ type: 'voice.error', message: 'response already running' });
  events.pop();
  await clock.advanceAsync(12_000);
  await end();
  expect(events.at(-1)).toMatchObject({ type: 'voice.error', provider: 'stub' });
  await expect.poll(() => signals.length).toBe(1);
  await new Promise((resolve) => setImmediate(resolve));
  send({ type: 'response.create', text: 'z' });
  expect(types().filter((type) => type === 'voice.response.started').length).toBe(2);
});

it('05 §12, §14: binds a session to its principal, and closes it with it', async () => {
  const { attach, lab, endPrincipal } = setUp();
  const { id, closed } = await attach();
  await expect(lab.admit(id, { kind: 'api', key: 'bob' })).rejects.toMatchObject({ kind: 'forbidden' });
  await expect(lab.admit('unknown', ANNE)).rejects.toMatchObject({ kind: 'not-found' });
  endPrincipal('session revoked');
  expect(closed).toEqual([4001]);
});

it('05 §14: a session that nobody connects to ends after five minutes', async () => {
  const { lab, clock } = setUp();
  const { session_id: id } = (await lab.create({ principal: ANNE }, null, {})) as { session_id: string };
  clock.advance(299_999);
  await lab.admit(id, ANNE);
  clock.advance(1);
  await expect(lab.admit(id, ANNE)).rejects.toMatchObject({ kind: 'gone' });
});

it('05 §14: a disabled lab creates nothing', async () => {
  await expect(setUp({ enabled: false }).lab.create({ principal: ANNE }, null, {})).rejects.toMatchObject({
    kind: 'not-found',
  });
});
