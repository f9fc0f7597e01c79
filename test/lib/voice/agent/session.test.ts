import { describe, expect, it } from 'vitest';
import { RelayError } from '../../../../lib/errors.ts';
import { base64 } from '../../../../lib/kit/bytes.ts';
import type { JsonObject } from '../../../../lib/kit/json.ts';
import { sha256 } from '../../../../lib/kit/sha256.ts';
import type { AgentConfig } from '../../../../lib/voice/agent/core/state.ts';
import type { ProviderEvent, ProviderOptions, ProviderSession } from '../../../../lib/voice/agent/provider/provider.ts';
import { AgentSession, type AgentSessionDeps, type UnreceivedAnswer } from '../../../../lib/voice/agent/session.ts';
import type { AgentUpstream, RunEvent, RunRequest } from '../../../../lib/voice/agent/upstream/run.ts';
import { createTestClock } from '../../../support/clock.ts';
import { createTestLog } from '../../../support/log.ts';
import { FakeTransport, TOKEN } from '../socket/support.ts';
import { ANSWER, CONFIG } from './core/support.ts';

/** One connection to the provider, as a list of what it was sent. */
class FakeProvider implements ProviderSession {
  readonly sent: [name: string, ...values: unknown[]][] = [];
  readonly options: ProviderOptions;
  readonly report: (event: ProviderEvent) => void;
  isBroken = false;

  constructor(options: ProviderOptions, report: (event: ProviderEvent) => void) {
    this.options = options;
    this.report = report;
  }

  #note(name: string, ...values: unknown[]): void {
    if (this.isBroken) throw new Error('the socket is closed');
    this.sent.push([name, ...values]);
  }

  sendAudio = (pcm: Uint8Array, rate: number): void => this.#note('audio', pcm.length, rate);
  commitAudio = (): void => this.#note('commit');
  clearAudio = (): void => this.#note('clear');
  sendText = (text: string): void => this.#note('text', text);
  cancelResponse = (): void => this.#note('cancel');
  sendToolResult = (callId: string, result: object): void => this.#note('toolResult', callId, result);
  appendContext = (role: string, text: string): void => this.#note('context', role, text);
  truncate = (itemId: string, index: number, ms: number): void => this.#note('truncate', itemId, index, ms);
  requestResponse = (request?: object): void => this.#note('request', request);
  pause = (): void => this.#note('pause');
  resume = (): void => this.#note('resume');
  close = (): void => void this.sent.push(['close']);

  names = (): string[] => this.sent.map(([name]) => name);
  last = (name: string): unknown[] | undefined => this.sent.findLast(([other]) => other === name);
}

/** A stream that a test feeds. */
class Feed<T> {
  readonly #items: T[] = [];
  #wake = () => {};
  #isOver = false;

  push(item: T): void {
    this.#items.push(item);
    this.#wake();
  }
  end(): void {
    this.#isOver = true;
    this.#wake();
  }
  async *read(signal: AbortSignal): AsyncGenerator<T, void> {
    signal.addEventListener('abort', () => this.end());
    for (;;) {
      const item = this.#items.shift();
      if (item !== undefined) yield item;
      else if (this.#isOver) return;
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
    }
  }
}

function setUp(config: Partial<AgentConfig> = {}, overrides: Partial<AgentSessionDeps> = {}) {
  const clock = createTestClock();
  const providers: FakeProvider[] = [];
  const requests: RunRequest[] = [];
  const stream = new Feed<RunEvent>();
  const speech = new Feed<Uint8Array>();
  const spoken: string[] = [];
  const handed: UnreceivedAnswer[] = [];
  const log: JsonObject[] = [];
  const ended: string[] = [];
  const approvals: unknown[] = [];
  const upstream: AgentUpstream = {
    run(request) {
      requests.push(request);
      return stream.read(request.signal);
    },
    approve: async (...answer) => void approvals.push(answer),
    history: async () => [],
  };
  const session = new AgentSession({
    id: 'voice-1',
    principal: { kind: 'api', key: 'k' },
    scope: { profile: null, configScope: 'relay', configPath: '/config.yaml' } as AgentSessionDeps['scope'],
    voice: { provider: 'openai_realtime', model: 'gpt-realtime-2.1', voice: 'marin', sampleRate: 24_000 },
    tokenHash: sha256(TOKEN),
    resumeTtl: 30_000,
    artifacts: {
      logPath: '/logs/voice-1.jsonl',
      record: (event) => void log.push(event),
      recordEnd: (event) => void log.push(event),
      startAudio: () => '',
      audio() {},
      endAudio() {},
      savedAudio: async (path) => path,
      settled: async () => {},
    },
    clock,
    log: createTestLog(),
    ended: (over) => void ended.push(over.id),
    config: { ...CONFIG, ...config },
    unattachedTtl: 120_000,
    context: [{ role: 'user', content: 'I have a cat' }],
    profileBlock: '',
    upstream,
    gate: { enter: () => ({ end() {} }) },
    runIds: new Set<string>(),
    connectProvider: async (options, report) => {
      const provider = new FakeProvider(options, report);
      providers.push(provider);
      return provider;
    },
    renderSpeech(text, signal) {
      spoken.push(text);
      return speech.read(signal);
    },
    keepsAudio: false,
    handOver: (answer) => void handed.push(answer),
    ...overrides,
  });
  const settle = (): Promise<void> => clock.advanceAsync(0);

  async function open(id: string): Promise<FakeTransport> {
    const transport = new FakeTransport(id);
    transport.events = session.open(transport);
    await settle();
    return transport;
  }

  /** A turn whose answer is a run; returns once the agent has been asked. */
  async function startRun(phone: FakeTransport, args: object = {}): Promise<void> {
    phone.say({ type: 'response.create', text: 'the kitchen?' });
    const { report } = providers.at(-1) as FakeProvider;
    report({ type: 'responseStarted', responseId: 'r1' });
    const call = { callId: 'c1', name: 'svc_run_task', args: JSON.stringify({ text: 'look', ...args }) };
    report({ type: 'functionCall', responseId: 'r1', ...call });
    report({ type: 'responseDone', responseId: 'r1' });
    await clock.advanceAsync(CONFIG.runLead);
  }

  return {
    session,
    clock,
    providers,
    requests,
    stream,
    speech,
    spoken,
    handed,
    log,
    ended,
    approvals,
    upstream,
    open,
    settle,
    get provider(): FakeProvider {
      return providers.at(-1) as FakeProvider;
    },
    startRun,
    /** Opens a phone and runs a turn up to the agent's answer, with everything before it played. */
    async answer(): Promise<FakeTransport> {
      const phone = await open('a');
      await startRun(phone);
      stream.push({ type: 'end', text: ANSWER });
      await settle();
      phone.say({ type: 'playback.drained' });
      return phone;
    },
  };
}

const of = (phone: FakeTransport, type: string): JsonObject[] => phone.messages.filter((event) => event.type === type);

describe('a session of the realtime agent (contract 06 §4)', () => {
  it('is ready once the provider is connected, with everything that the client wants to know', async () => {
    const setting = setUp();
    const phone = await setting.open('a');
    expect(phone.messages).toMatchObject([
      {
        type: 'voice.session.ready',
        session_id: 'voice-1',
        provider: 'openai_realtime',
        mode: 'realtime_agent',
        resume_ttl_ms: 30_000,
        last_event_id: 0,
        last_audio_event_id: 0,
        last_input_chunk_id: 0,
        profile: null,
        chat_session_id: null,
        config_scope: 'relay',
        config_path: null,
        tool_surface: ['svc_run_task', 'svc_get_status', 'svc_cancel', 'svc_confirm'],
        interface: { client_surface: 'android_voice_mode', engine: 'realtime_agent' },
      },
    ]);
    expect(setting.provider.options).toMatchObject({ model: 'gpt-realtime-2.1', voice: 'marin', sampleRate: 24_000 });
    expect(setting.provider.options.instructions).toContain('I have a cat');
    expect(setting.provider.options.tools).toHaveLength(4);
    expect(JSON.stringify(setting.log)).not.toContain('I have a cat');
  });

  it('sends speech of 3 MiB in pieces, no faster than the phone reads, and what follows after it', async () => {
    const setting = setUp();
    const phone = await setting.open('a');
    const { report } = setting.provider;
    report({ type: 'responseStarted', responseId: 'r1' });
    report({ type: 'audioDelta', responseId: 'r1', pcm: new Uint8Array(3 * 1024 * 1024) });
    report({ type: 'audioDone', responseId: 'r1' });
    report({ type: 'responseDone', responseId: 'r1' });
    expect(phone.end).toBeUndefined();
    expect(phone.waiting).toBeLessThan(4 * 1024 * 1024);
    expect(phone.types()).not.toContain('voice.response.done');
    expect(setting.provider.names()).toContain('pause');
    for (let read = 0; read < 4; read++) {
      phone.drain();
      await setting.settle();
    }
    const bytes = of(phone, 'voice.output_audio.delta').map(({ byte_count }) => byte_count as number);
    expect(bytes.reduce((sum, count) => sum + count, 0)).toBe(3 * 1024 * 1024);
    expect(Math.max(...bytes)).toBe(128 * 1024);
    expect(phone.types().slice(-2)).toEqual(['voice.output_audio.done', 'voice.response.done']);
    expect(setting.provider.names().at(-1)).toBe('resume');
  });

  it('reads a renewed provider no faster than the phone reads either', async () => {
    const setting = setUp();
    const phone = await setting.open('a');
    phone.say({ type: 'response.create', text: 'a story' });
    const [first] = setting.providers;
    first?.report({ type: 'responseStarted', responseId: 'r1' });
    for (let second = 0; second < 25; second++)
      first?.report({ type: 'audioDelta', responseId: 'r1', pcm: new Uint8Array(64 * 1024) });
    expect(first?.names().at(-1)).toBe('pause');
    first?.report({ type: 'closed', idle: false });
    await setting.settle();
    expect(setting.providers).toHaveLength(2);
    expect(setting.provider.names()).toContain('pause');
    expect(setting.provider.names()).not.toContain('resume');
    phone.drain();
    await setting.settle();
    expect(setting.provider.names().at(-1)).toBe('resume');
  });

  it('stays open when a provider that is closing accepts no truncation', async () => {
    const setting = setUp();
    const phone = await setting.open('a');
    phone.say({ type: 'response.create', text: 'a story' });
    const { report } = setting.provider;
    report({ type: 'responseStarted', responseId: 'r1' });
    const played = { responseId: 'r1', itemId: 'i1', contentIndex: 0 };
    report({ type: 'audioDelta', ...played, pcm: new Uint8Array(48_000) });
    setting.provider.isBroken = true;
    phone.say({ type: 'response.cancel' });
    expect(phone.end).toBeUndefined();
    report({ type: 'closed', idle: false });
    phone.say({ type: 'response.create', text: 'another story' });
    await setting.settle();
    expect(setting.providers).toHaveLength(2);
    expect(setting.provider.names()).toContain('request');
  });

  /** A delivery of the provider, of which nothing is sent until it has ended. */
  async function holdAnswer(seconds: number) {
    const setting = setUp({ provider: 'xai_realtime', speaksExactText: true });
    const phone = await setting.answer();
    const { report } = setting.provider;
    report({ type: 'responseStarted', responseId: 'r2' });
    for (let second = 0; second < seconds; second++)
      report({ type: 'audioDelta', responseId: 'r2', pcm: new Uint8Array(64 * 1024) });
    expect(phone.types()).not.toContain('voice.output_audio.delta');
    report({ type: 'responseDone', responseId: 'r2' });
    const bytes = () =>
      of(phone, 'voice.output_audio.delta').reduce((sum, { byte_count }) => sum + (byte_count as number), 0);
    return { setting, phone, bytes };
  }

  it('releases a held answer of 5 MiB no faster than the phone reads, and what follows after it', async () => {
    const { setting, phone, bytes } = await holdAnswer(80);
    expect(phone.end).toBeUndefined();
    expect(phone.waiting).toBeLessThan(4 * 1024 * 1024);
    expect(phone.types()).not.toContain('voice.response.done');
    for (let read = 0; read < 6; read++) {
      phone.drain();
      await setting.settle();
    }
    expect(bytes()).toBe(5 * 1024 * 1024);
    expect(phone.types().at(-1)).toBe('voice.response.done');
  });

  it('sends all of a released answer before an end of the session', async () => {
    const { setting, phone, bytes } = await holdAnswer(40);
    expect(bytes()).toBeLessThan(40 * 64 * 1024);
    setting.provider.report({ type: 'settingsRefused', setting: 'session', message: 'no' });
    expect(bytes()).toBe(40 * 64 * 1024);
    expect(phone.types().slice(-2)).toEqual(['voice.response.done', 'voice.error']);
    expect(phone.end).toMatchObject({ code: 1011 });
  });

  it('ends its runs when the relay is frozen, begins none, and says so once (09 §3)', async () => {
    const leases: ((why: RelayError) => void)[] = [];
    let isFrozen = false;
    const why = new RelayError('locked', 'frozen by Pixel: lost', { extra: { error_code: 'frozen' } });
    const enter = (stop: (why: RelayError) => void) => {
      if (isFrozen) throw why;
      leases.push(stop);
      return { end() {} };
    };
    const runIds = new Set<string>();
    const setting = setUp({}, { gate: { enter }, runIds });
    const phone = await setting.open('a');
    await setting.startRun(phone, { mode: 'background' });
    expect(setting.requests).toHaveLength(1);
    setting.stream.push({ type: 'svc.run.started', run_id: 'run-1' });
    await setting.settle();
    expect([...runIds]).toEqual(['run-1']);
    isFrozen = true;
    for (const stop of leases) stop(why);
    await setting.settle();
    expect(setting.requests[0]?.signal.aborted).toBe(true);
    expect(of(phone, 'svc.run.cancelled')).toHaveLength(1);
    expect([...runIds]).toEqual([]);
    expect(of(phone, 'svc.run.background_completed')).toMatchObject([{ ok: false, error: 'frozen by Pixel: lost' }]);

    const next = setUp({}, { gate: { enter } });
    const other = await next.open('a');
    await next.startRun(other);
    expect(next.requests).toEqual([]);
    expect(of(other, 'svc.run.cancelled')).toHaveLength(1);
    expect(JSON.stringify(next.provider.sent)).toContain('frozen by Pixel: lost');
  });

  it('stays attachable when the provider cannot be reached', async () => {
    let attempts = 0;
    const setting = setUp(
      {},
      {
        connectProvider: async (options, report) => {
          if (++attempts === 1) throw new RelayError('unavailable', 'OpenAI Realtime auth is not configured');
          return new FakeProvider(options, report);
        },
      },
    );
    const first = await setting.open('a');
    expect(first.messages).toMatchObject([{ type: 'voice.error', provider: 'openai_realtime' }]);
    expect(first.end).toMatchObject({ code: 1000 });
    const second = await setting.open('b');
    expect(second.types()).toEqual(['voice.session.ready']);
  });

  it('handles what its socket sends during the connection after ready', async () => {
    let connected = (_: ProviderSession): void => {};
    let fake: FakeProvider | undefined;
    const setting = setUp(
      {},
      {
        connectProvider: (options, report) =>
          new Promise((resolve) => {
            connected = resolve;
            fake = new FakeProvider(options, report);
          }),
      },
    );
    const phone = await setting.open('a');
    phone.say({ type: 'input_audio.append', audio_base64: base64(new Uint8Array(320)), sample_rate: 16_000 });
    expect(phone.messages).toEqual([]);
    connected(fake as FakeProvider);
    await setting.settle();
    expect(phone.types()).toEqual(['voice.session.ready', 'voice.input_audio.received']);
    expect(fake?.sent).toEqual([['audio', 320, 16_000]]);
  });

  it('closes a provider that is connected after the session has ended', async () => {
    let connected = (_: ProviderSession): void => {};
    let fake: FakeProvider | undefined;
    const setting = setUp(
      {},
      {
        connectProvider: (options, report) =>
          new Promise((resolve) => {
            connected = resolve;
            fake = new FakeProvider(options, report);
          }),
      },
    );
    await setting.open('a');
    setting.session.close(1001, 'relay stopping', 'stopping');
    expect(fake?.options.signal.aborted).toBe(true);
    connected(fake as FakeProvider);
    await setting.settle();
    expect(fake?.names()).toEqual(['close']);
    expect(setting.clock.pending).toBe(0);
  });

  it('records that a socket lost it to another one', async () => {
    const setting = setUp();
    const first = await setting.open('a');
    const second = await setting.open('b');
    second.say({ type: 'session.resume', resume_token: TOKEN });
    expect(first.end).toMatchObject({ code: 4000 });
    expect(setting.log.map(({ type }) => type)).toContain('voice.realtime_agent.websocket.superseded_closed');
    setting.provider.report({ type: 'transcriptDelta', text: 'he' });
    expect(second.types().at(-1)).toBe('voice.input_transcript.delta');
  });

  it('ends when something fails that must not', async () => {
    const setting = setUp();
    Object.assign(setting.upstream, {
      approve() {
        throw new TypeError('a bug');
      },
    });
    const phone = await setting.open('a');
    await setting.startRun(phone);
    setting.stream.push({ type: 'svc.run.started', run_id: 'run-1' });
    await setting.settle();
    phone.say({ type: 'svc.confirm', confirmation_id: 'k1', answer: 'deny' });
    expect(phone.end).toMatchObject({ code: 1011 });
    expect(setting.ended).toEqual(['voice-1']);
    expect(setting.clock.pending).toBe(0);
  });

  it('ends everything when it is closed', async () => {
    const setting = setUp();
    const phone = await setting.open('a');
    await setting.startRun(phone);
    expect(setting.requests).toHaveLength(1);
    phone.say({ type: 'session.close' });
    await setting.settle();
    expect(setting.requests[0]?.signal.aborted).toBe(true);
    expect(setting.provider.names().at(-1)).toBe('close');
    expect(setting.ended).toEqual(['voice-1']);
    expect(setting.clock.pending).toBe(0);
    expect(setting.log.at(-1)).toMatchObject({ type: 'voice.realtime_agent.session.closed', reason: 'closed' });
  });
});

describe('speech of the provider', () => {
  it('goes out as numbered audio, with its levels', async () => {
    const setting = setUp();
    const phone = await setting.open('a');
    const { report } = setting.provider;
    report({ type: 'responseStarted', responseId: 'r1' });
    report({ type: 'audioDelta', responseId: 'r1', itemId: 'i1', pcm: new Uint8Array([0, 64, 0, 192]) });
    expect(phone.messages.at(-1)).toMatchObject({
      type: 'voice.output_audio.delta',
      audio_event_id: 1,
      audio_base64: 'AEAAwA==',
      byte_count: 4,
      sample_rate: 24_000,
      channels: 1,
      sample_width: 2,
      peak_level: 0.5,
      rms_level: 0.5,
      response_id: 'r1',
    });
  });

  it('is cut in its history to what the phone has played', async () => {
    const setting = setUp();
    const phone = await setting.open('a');
    phone.say({ type: 'response.create', text: 'hello' });
    const { report } = setting.provider;
    report({ type: 'responseStarted', responseId: 'r1' });
    for (let n = 0; n < 3; n++) {
      report({ type: 'audioDelta', responseId: 'r1', itemId: 'i1', contentIndex: 0, pcm: new Uint8Array(4800) });
    }
    phone.say({ type: 'playback.drained', played_audio_event_id: 1 });
    phone.say({ type: 'client.ack', played_audio_event_id: 2 });
    phone.say({ type: 'response.cancel' });
    expect(setting.provider.last('truncate')).toEqual(['truncate', 'i1', 0, 200]);
    const names = setting.provider.names();
    expect(names.indexOf('cancel')).toBeLessThan(names.indexOf('truncate'));
  });

  it('is read no faster than the phone takes it', async () => {
    const setting = setUp();
    const phone = await setting.open('a');
    const { report } = setting.provider;
    report({ type: 'responseStarted', responseId: 'r1' });
    const MiB = 1024 * 1024;
    const delta = { type: 'audioDelta', responseId: 'r1', pcm: new Uint8Array(MiB) } as const;
    Object.defineProperty(phone, 'credit', { value: MiB });
    report(delta);
    expect(setting.provider.names()).toContain('pause');
    phone.drain();
    await setting.settle();
    expect(setting.provider.names().at(-1)).toBe('resume');
  });
});

describe('a run', () => {
  it('is asked of the agent, and its answer delivered', async () => {
    const setting = setUp({ chatSessionId: 'chat-1', profile: 'work' });
    const phone = await setting.open('a');
    await setting.startRun(phone);
    expect(setting.requests).toMatchObject([{ sessionId: 'chat-1', external: true, profile: 'work', message: 'look' }]);
    expect(setting.requests[0]?.systemMessage).toContain('realtime');
    setting.stream.push({ type: 'svc.run.started', run_id: 'run-1' });
    setting.stream.push({ type: 'end', text: ANSWER });
    setting.stream.end();
    await setting.settle();
    expect(of(phone, 'svc.run.started')).toMatchObject([
      { run_id: 'run-1', session_id: 'chat-1', source: 'svc', interface: { engine: 'realtime_agent' } },
    ]);
    expect(setting.provider.last('toolResult')).toMatchObject([
      'toolResult',
      'c1',
      { ok: true, status: 'completed', run_id: 'run-1', session_id: 'chat-1', profile: 'work', answer: ANSWER },
    ]);
    phone.say({ type: 'playback.drained' });
    expect(setting.provider.last('request')?.[1]).toMatchObject({
      instructions: expect.stringContaining(ANSWER),
      exactText: ANSWER,
    });
  });

  it('is aborted by response.cancel', async () => {
    const setting = setUp();
    const phone = await setting.open('a');
    await setting.startRun(phone);
    phone.say({ type: 'response.cancel' });
    expect(setting.requests[0]?.signal.aborted).toBe(true);
    expect(setting.provider.last('toolResult')?.[2]).toMatchObject({ ok: false, cancelled: true });
    expect(of(phone, 'svc.run.cancelled')).toHaveLength(1);
  });

  it('in the background goes on without a phone, and its answer is delivered when it is back', async () => {
    const setting = setUp();
    const phone = await setting.open('a');
    await setting.startRun(phone, { mode: 'background' });
    phone.events.closed({ code: 1006, reason: '' });
    await setting.clock.advanceAsync(120_000);
    setting.stream.push({ type: 'end', text: ANSWER });
    await setting.settle();
    expect(setting.provider.names().filter((name) => name === 'request')).toHaveLength(2);
    const again = await setting.open('b');
    again.say({ type: 'session.resume', resume_token: TOKEN, last_event_id: 1 });
    await setting.clock.advanceAsync(CONFIG.inputQuiet);
    const { report } = setting.provider;
    report({ type: 'responseStarted', responseId: 'handoff' });
    report({ type: 'responseDone', responseId: 'handoff' });
    await setting.clock.advanceAsync(CONFIG.floorWait);
    expect(setting.provider.last('request')?.[1]).toMatchObject({ instructions: expect.stringContaining(ANSWER) });
    report({ type: 'responseStarted', responseId: 'd1' });
    report({ type: 'textDelta', responseId: 'd1', text: ANSWER });
    report({ type: 'responseDone', responseId: 'd1' });
    expect(of(again, 'voice.response.delta').at(-1)).toMatchObject({ delta: ANSWER, delivery: 'forced_summary' });
    again.say({ type: 'session.close' });
    expect(setting.handed).toEqual([]);
  });

  it('whose answer nobody came for becomes a message to the phone', async () => {
    const setting = setUp({ chatSessionId: 'chat-1' });
    const phone = await setting.open('a');
    await setting.startRun(phone, { mode: 'background' });
    phone.events.closed({ code: 1000, reason: 'done' });
    expect(setting.session.isOver).toBe(false);
    setting.stream.push({ type: 'svc.run.started', run_id: 'run-1' });
    setting.stream.push({ type: 'end', text: ANSWER });
    await setting.settle();
    await setting.clock.advanceAsync(30_000);
    expect(setting.handed).toEqual([{ text: ANSWER, runId: 'run-1', chatSessionId: 'chat-1' }]);
    expect(setting.ended).toEqual(['voice-1']);
    expect(setting.clock.pending).toBe(0);
    expect(setting.log.at(-1)).toMatchObject({ type: 'voice.realtime_agent.session.closed' });
  });

  it('passes the answer to a confirmation on', async () => {
    const setting = setUp();
    const phone = await setting.open('a');
    await setting.startRun(phone);
    setting.stream.push({ type: 'svc.run.started', run_id: 'run-1' });
    setting.stream.push({ type: 'svc.confirmation.requested', confirmation_id: 'k1', message: 'Delete?' });
    await setting.settle();
    phone.say({ type: 'svc.confirm', confirmation_id: 'k1', answer: 'deny' });
    expect(setting.approvals).toEqual([['run-1', 'k1', 'deny']]);
  });
});

describe('the fallback', () => {
  async function fallenBack(overrides: Partial<AgentSessionDeps> = {}) {
    const setting = setUp({}, overrides);
    const phone = await setting.answer();
    const { report } = setting.provider;
    report({ type: 'responseStarted', responseId: 'd1' });
    report({ type: 'responseDone', responseId: 'd1' });
    await setting.settle();
    return { setting, phone };
  }

  it('is rendered by the relay', async () => {
    const { setting, phone } = await fallenBack();
    expect(setting.spoken).toEqual([ANSWER]);
    expect(setting.provider.last('context')).toEqual(['context', 'assistant', ANSWER]);
    setting.speech.push(new Uint8Array(960));
    setting.speech.end();
    await setting.settle();
    expect(of(phone, 'voice.output_audio.delta')).toMatchObject([{ delivery: 'fallback', source: 'svc' }]);
    expect(of(phone, 'voice.response.done').at(-1)).toMatchObject({
      final_text: ANSWER,
      audio_path: '',
      metrics: { first_audio_ms: 0, response_done_ms: 0 },
      metadata: {},
    });
  });

  it('ends although rendering fails', async () => {
    const { phone, setting } = await fallenBack({
      // biome-ignore lint/correctness/useYield: it fails before it has anything to yield.
      async *renderSpeech() {
        throw new RelayError('bad-gateway', 'no voice');
      },
    });
    await setting.settle();
    expect(of(phone, 'voice.response.done').at(-1)).toMatchObject({ delivery: 'fallback', final_text: ANSWER });
    expect(of(phone, 'voice.error')).toEqual([]);
  });

  it('stops when the user does not want it', async () => {
    const { phone, setting } = await fallenBack();
    phone.say({ type: 'response.cancel' });
    setting.speech.push(new Uint8Array(960));
    await setting.settle();
    expect(of(phone, 'voice.output_audio.delta')).toEqual([]);
  });

  it('is all that is left when the provider takes no result', async () => {
    const setting = setUp();
    const phone = await setting.open('a');
    await setting.startRun(phone);
    setting.provider.isBroken = true;
    setting.stream.push({ type: 'end', text: ANSWER });
    await setting.settle();
    expect(setting.spoken).toEqual([ANSWER]);
    setting.speech.end();
    await setting.settle();
    expect(of(phone, 'voice.error').at(-1)).toMatchObject({ error_code: 'provider_tool_result_send_failed' });
    expect(phone.end).toMatchObject({ code: 1000 });
  });
});
