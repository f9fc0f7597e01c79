import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { JsonObject } from '../../../../../lib/kit/json.ts';
import type { Effect, ResponseRequest } from '../../../../../lib/voice/agent/core/state.ts';
import type { ResultDelivery } from '../../../../../lib/voice/agent/settings.ts';
import { CONFIG, TestAgent } from './support.ts';

/** A response that the provider was asked for. */
interface Response {
  id: string;
  request: ResponseRequest;
  phase: 'asked' | 'started' | 'done';
  /** The relay has cancelled it. The provider may begin it nevertheless, and then ends it as cancelled. */
  isCancelled: boolean;
  /** When the provider has read of that. */
  readAt: number;
}

/** Milliseconds in which a provider reads of a cancelled response. */
const CANCEL_READ = 1000;
/** Time moves in such steps, so that a cancellation is seen when it is made. */
const TICK = 250;

interface ModelRun {
  key: number;
  answer: string;
  outcome: 'alive' | 'ok' | 'failed' | 'cancelled';
  isFast: boolean;
}

type Saying = 'answer' | 'garbage' | 'nothing' | 'call' | 'task' | 'background' | 'status' | 'stop';

/** A phone, a provider and the agent's API, as they may behave, around the state machine. */
class World {
  readonly agent: TestAgent;
  readonly responses: Response[] = [];
  readonly runs: ModelRun[] = [];
  readonly renders: number[] = [];
  /** Events that the phone has received, now or after a resume. */
  readonly received: JsonObject[] = [];
  #seen = 0;
  #effects = 0;
  #ids = 0;
  isOver = false;
  /** The provider is gone for good. */
  isLost = false;
  /** A connection to the provider is being opened. */
  isDialling = false;

  constructor(resultDelivery: ResultDelivery) {
    this.agent = new TestAgent({ resultDelivery });
    this.sync();
  }

  /** Takes part in what the state machine has just done. */
  sync(): void {
    const { agent } = this;
    while (this.#effects < agent.effects.length) this.#take(agent.effects[this.#effects++] as Effect);
    if (agent.state.isAttached && !this.isOver) this.#receive();
    this.check();
  }

  #receive(): void {
    this.received.push(...this.agent.events.slice(this.#seen));
    this.#seen = this.agent.events.length;
  }

  #take(effect: Effect): void {
    switch (effect.type) {
      case 'request':
        // One response in flight.
        expect(this.responses.filter(({ phase, isCancelled }) => phase !== 'done' && !isCancelled)).toEqual([]);
        this.responses.push({
          id: `r${++this.#ids}`,
          request: effect.request,
          phase: 'asked',
          isCancelled: false,
          readAt: Number.POSITIVE_INFINITY,
        });
        break;
      case 'dial':
        expect(this.isDialling).toBe(false);
        this.isDialling = true;
        break;
      case 'hangUp':
        this.isDialling = false;
        this.#dropResponses();
        break;
      case 'provider':
        if (effect.command.type === 'cancel') for (const response of this.responses) this.#cancel(response);
        break;
      case 'startRun': {
        const isFast = this.agent.state.run.current?.key !== effect.key;
        this.runs.push({ key: effect.key, answer: answerOf(effect.key), outcome: 'alive', isFast });
        break;
      }
      case 'abortRun': {
        const run = this.runs.find(({ key }) => key === effect.key);
        if (run) run.outcome = 'cancelled';
        break;
      }
      case 'render':
        this.renders.push(effect.id);
        break;
      case 'stopRender':
        this.#endRender(effect.id);
        break;
      case 'close':
        // A phone that is away cannot come back for the rest.
        if (this.agent.state.isAttached) this.#receive();
        this.isOver = true;
        break;
    }
  }

  #cancel(response: Response): void {
    if (response.phase === 'done' || response.isCancelled) return;
    response.isCancelled = true;
    response.readAt = this.agent.now + CANCEL_READ;
  }

  /** A connection ends with its responses. */
  #dropResponses(): void {
    for (const response of this.responses) response.phase = 'done';
  }

  #endRender(id: number): void {
    const at = this.renders.indexOf(id);
    if (at >= 0) this.renders.splice(at, 1);
  }

  get response(): Response | undefined {
    return this.responses.find(({ phase }) => phase !== 'done');
  }

  get liveRun(): ModelRun | undefined {
    return this.runs.findLast(({ outcome }) => outcome === 'alive');
  }

  /** The provider goes one step on with the response whose turn it is. */
  provide(saying: Saying, isForgotten: boolean): void {
    const { agent, response } = this;
    if (!response || this.isLost || this.agent.state.link.phase !== 'up') return;
    const { id, request, isCancelled } = response;
    if (response.phase === 'asked') {
      if (isCancelled && isForgotten) response.phase = 'done';
      else {
        response.phase = 'started';
        agent.started(id);
      }
    } else if (isCancelled && saying === 'answer') {
      // Sent before the provider had read of the end.
      agent.text(id, `too late: ${request.prompt?.type === 'delivery' ? request.prompt.result.answer : id}`);
      agent.audio(id);
    } else if (isCancelled && saying === 'task') {
      agent.call(id, `call-${++this.#ids}`, 'svc_run_task', { text: 'too late' });
    } else if (isCancelled) this.#end(response, 'cancelled');
    else {
      const said = request.prompt?.type === 'delivery' ? request.prompt.result.answer : `chat ${id}`;
      if (saying === 'answer') agent.text(id, said);
      if (saying === 'garbage') agent.text(id, 'One moment please.');
      if (saying === 'call') agent.call(id, `call-${++this.#ids}`, 'svc_run_task', { text: `task ${id}` });
      if (saying === 'task' || saying === 'background') {
        const mode = saying === 'background' ? saying : 'chat';
        if (request.kind === 'user')
          agent.call(id, `call-${++this.#ids}`, 'svc_run_task', { text: `task ${id}`, mode });
      }
      if (saying === 'status' && request.kind === 'user') agent.call(id, `call-${++this.#ids}`, 'svc_get_status');
      if (saying === 'stop' && request.kind === 'user') agent.call(id, `call-${++this.#ids}`, 'svc_cancel');
      if (saying === 'answer' || saying === 'garbage') agent.audio(id);
      this.sync();
      if (response.phase === 'started' && !response.isCancelled && saying !== 'answer')
        this.#end(response, 'completed');
    }
    this.sync();
  }

  /** A turn of the user whose answer is a task, if the provider is free for it. */
  ask(saying: 'task' | 'background'): void {
    this.#readCancelled(this.agent.now + CANCEL_READ);
    this.do((agent) => agent.speak('could you?'));
    for (let tries = 0; tries < 2 && this.response?.request.kind === 'user'; tries++) this.provide(saying, false);
    this.do((agent) => agent.say('playback.drained'));
    this.pass(CONFIG.runLead);
  }

  #end(response: Response, status: string): void {
    response.phase = 'done';
    this.agent.done(response.id, status);
  }

  finish(): void {
    const { response } = this;
    if (response?.phase === 'started' && !this.isLost)
      this.#end(response, response.isCancelled ? 'cancelled' : 'completed');
    this.sync();
  }

  endRun(how: 'ok' | 'failed' | 'empty'): void {
    const run = this.liveRun;
    if (!run || this.agent.state.phase === 'closed') return;
    run.outcome = how === 'ok' ? 'ok' : 'failed';
    if (how === 'failed') this.agent.run({ type: 'error', message: 'the agent has failed' }, run.key);
    else this.agent.run({ type: 'end', text: how === 'ok' ? run.answer : '' }, run.key);
    this.sync();
  }

  /** A late event of a run that was cancelled. */
  lateEvent(): void {
    const run = this.runs.find(({ outcome }) => outcome === 'cancelled');
    if (run) this.agent.run({ type: 'end', text: run.answer }, run.key);
    this.sync();
  }

  render(isLast: boolean): void {
    const [id] = this.renders;
    if (id === undefined) return;
    this.agent.post({ type: 'rendered', id, pcm: new Uint8Array(64), sampleRate: 24_000 });
    if (isLast) {
      this.renders.shift();
      this.agent.post({ type: 'renderEnded', id });
    }
    this.sync();
  }

  /** Moves time. The provider reads of each cancelled response when that is due, however small the steps are. */
  pass(ms: number): void {
    for (let left = ms; left > 0; left -= TICK) {
      this.do((agent) => agent.pass(Math.min(left, TICK)));
      this.#readCancelled(this.agent.now);
    }
  }

  /** The provider reads of the responses that were cancelled a while before `now`. */
  #readCancelled(now: number): void {
    for (const response of this.responses) {
      if (this.isLost || response.readAt > now || response.phase === 'done') continue;
      if (response.phase === 'started') this.#end(response, 'cancelled');
      response.phase = 'done';
      this.sync();
    }
  }

  do(happen: (agent: TestAgent) => void): void {
    happen(this.agent);
    this.sync();
  }

  /** The provider is gone for good. */
  lose(idle: boolean): void {
    this.isLost = true;
    this.drop(idle);
  }

  /** The connection to the provider ends, or the attempt to open one. */
  drop(idle: boolean): void {
    if (this.isDialling) this.dial(false);
    else if (this.agent.state.link.phase === 'up') {
      this.#dropResponses();
      this.#keepsRuns(() => this.do((agent) => agent.lose(idle)));
    }
  }

  /** The end of a connection is no reason to abort a run. */
  #keepsRuns(happen: () => void): void {
    const { current } = this.agent.state.run;
    happen();
    expect(this.agent.did('abortRun').filter(({ key }) => key === current?.key)).toEqual([]);
  }

  dial(isOpen: boolean): void {
    if (!this.isDialling) return;
    this.isDialling = false;
    const isUp = isOpen && !this.isLost;
    this.#keepsRuns(() =>
      this.do((agent) => (isUp ? agent.dialled() : agent.post({ type: 'dialFailed', message: 'no' }))),
    );
  }

  end(): void {
    // The socket may be gone while runs go on.
    if (this.agent.state.phase === 'closed') return;
    this.do((agent) => agent.post({ type: 'ended', why: 'closed' }));
    this.isOver = true;
  }

  /** Lets everything come to an end, with a phone that is there. */
  settle(): void {
    this.do((agent) => agent.post({ type: 'attached' }));
    for (let round = 0; round < 60; round++) {
      this.do((agent) => agent.say('playback.drained'));
      this.dial(true);
      this.provide('answer', false);
      this.finish();
      this.render(true);
      if (round > 5) this.endRun('ok');
      this.pass(2000);
    }
    if (this.isOver) return;
    const { state } = this.agent;
    expect({
      active: state.turn.active,
      queue: state.turn.queue,
      delivery: state.delivery.current,
      backlog: state.delivery.backlog,
      run: state.run.current,
      tasks: state.run.queue,
    }).toEqual({ active: null, queue: [], delivery: null, backlog: [], run: null, tasks: [] });
    expect(this.agent.timers).toEqual([]);
    expect(this.agent.heldResponses).toEqual([]);
  }

  /** Invariants at every moment. */
  check(): void {
    const { turn, delivery, run, floor, phase } = this.agent.state;
    expect(turn.queue.length).toBeLessThanOrEqual(4);
    expect(turn.ended.length).toBeLessThanOrEqual(32);
    expect(delivery.backlog.length).toBeLessThanOrEqual(4);
    expect(delivery.unreceived.length).toBeLessThanOrEqual(8);
    expect(run.queue.length).toBeLessThanOrEqual(3);
    expect(floor.drains.length).toBeLessThanOrEqual(8);
    expect(this.renders.length).toBeLessThanOrEqual(1);
    if (floor.speaker === 'relay_tts') expect(turn.active?.hasSpoken ?? false).toBe(false);
    if (phase === 'closed') expect(this.agent.timers).toEqual([]);
  }

  /** Invariants of the whole history. */
  checkHistory(): void {
    this.#checkResponses();
    const ends = this.agent.events.filter(({ type }) => /^svc\.run\.(?:completed|cancelled)$/.test(String(type)));
    const ids = ends.map(({ run_id }) => run_id);
    expect(new Set(ids).size).toBe(ids.length);
    for (const run of this.runs) this.#checkResult(run);
  }

  /** Responses begin and end once, and nobody speaks into the speech of another. */
  #checkResponses(): void {
    expect(this.agent.did('startRun').filter(({ task }) => task.text === 'too late')).toEqual([]);
    expect(this.agent.events.filter(({ delta }) => String(delta).startsWith('too late'))).toEqual([]);
    const open = new Map<unknown, JsonObject>();
    const over = new Set<unknown>();
    for (const event of this.agent.log) {
      const { type, response_id: id } = event;
      if (type === 'voice.response.started') {
        expect(open.has(id) || over.has(id)).toBe(false);
        open.set(id, event);
        // The relay and the provider take turns.
        if (event.source === 'svc' && event.delivery !== 'visual_only') expect([...open.keys()]).toEqual([id]);
      } else if (type === 'voice.response.delta' || String(type).startsWith('voice.output_audio')) {
        expect(open.has(id)).toBe(true);
        if (type === 'voice.output_audio.delta') expect(soundingIn(open)).toEqual([id]);
      } else if (type === 'voice.response.intermediate_done') open.delete(id);
      else if (type === 'voice.response.done' && id !== null) {
        expect(open.delete(id)).toBe(true);
        over.add(id);
      }
    }
  }

  /** The result of a run reaches the user exactly once; that of a cancelled one never does. */
  #checkResult({ answer, outcome, isFast }: ModelRun): void {
    const saying = (text: unknown): boolean => String(text).includes(answer);
    const heard = new Set(
      this.received
        .filter(
          ({ type, delta, delivery }) => type === 'voice.response.delta' && delivery !== 'respeak' && saying(delta),
        )
        .map(({ response_id }) => response_id),
    );
    const messages = this.agent.did('phoneMessage').filter(({ text }) => saying(text)).length;
    if (outcome === 'cancelled') expect(heard.size + messages).toBe(0);
    if (outcome !== 'ok' || isFast) return;
    // An answer that was cut may be offered again, once; one that was stopped before its first word, never.
    const cuts = this.agent.did('truncate').length;
    const stopped = this.#stops > 0;
    expect(heard.size + messages).toBeGreaterThanOrEqual(stopped ? 0 : 1);
    expect(heard.size + messages).toBeLessThanOrEqual(stopped && cuts > 0 ? 2 : 1);
  }

  #stops = 0;
  stop(isAllPlayed: boolean): void {
    this.#stops++;
    this.do((agent) => {
      agent.playback = { played: 0, isAllPlayed };
      agent.say('response.cancel');
      agent.playback = { played: 0, isAllPlayed: true };
    });
  }
}

const answerOf = (key: number): string =>
  `The report number ${1000 + key} lists thermostat readings and nothing unusual.`;

const soundingIn = (open: ReadonlyMap<unknown, JsonObject>): unknown[] =>
  [...open].filter(([, { delivery }]) => delivery !== 'visual_only').map(([id]) => id);

type Command = { name: string; run(world: World): void };
const command = <T>(name: string, argument: fc.Arbitrary<T>, run: (world: World, value: T) => void) =>
  argument.map((value): Command => ({ name: `${name}(${JSON.stringify(value)})`, run: (world) => run(world, value) }));
const plain = (name: string, run: (world: World) => void) => command(name, fc.constant(null), run);

const sayings = fc.constantFrom<Saying>(
  'answer',
  'answer',
  'garbage',
  'nothing',
  'call',
  'task',
  'background',
  'status',
  'stop',
);

const commands = (withEnd: boolean) =>
  fc.oneof(
    {
      weight: 12,
      arbitrary: command('provide', fc.tuple(sayings, fc.boolean()), (world, [saying, isForgotten]) =>
        world.provide(saying, isForgotten),
      ),
    },
    {
      weight: 5,
      arbitrary: command('ask', fc.constantFrom('task', 'background'), (world, saying) => world.ask(saying as 'task')),
    },
    { weight: 4, arbitrary: plain('finish', (world) => world.finish()) },
    {
      weight: 2,
      arbitrary: command('drop', fc.constantFrom(false, false, false, true), (world, idle) => world.drop(idle)),
    },
    { weight: 4, arbitrary: command('dial', fc.boolean(), (world, isOpen) => world.dial(isOpen)) },
    {
      weight: 4,
      arbitrary: command('speak', fc.constantFrom('hello', 'and then?', ''), (world, text) =>
        world.do((agent) => agent.speak(text)),
      ),
    },
    {
      weight: 2,
      arbitrary: command('utter', fc.boolean(), (world, isFailed) =>
        world.do((agent) => {
          agent.append();
          if (isFailed) agent.say('input_audio.commit');
          if (isFailed) agent.provider({ type: 'transcriptFailed' });
        }),
      ),
    },
    {
      weight: 2,
      arbitrary: plain('type', (world) => world.do((agent) => agent.say('response.create', { text: 'do' }))),
    },
    { weight: 2, arbitrary: command('stop', fc.boolean(), (world, isAllPlayed) => world.stop(isAllPlayed)) },
    {
      weight: 5,
      arbitrary: command('endRun', fc.constantFrom('ok', 'ok', 'ok', 'failed', 'empty'), (world, how) =>
        world.endRun(how as 'ok'),
      ),
    },
    { weight: 3, arbitrary: plain('lateEvent', (world) => world.lateEvent()) },
    {
      weight: 1,
      arbitrary: plain('longTool', (world) =>
        world.do((agent) =>
          agent.run({ type: 'svc.tool.started', tool_name: 'terminal', tool_call_id: 't', message: 'm' }),
        ),
      ),
    },
    { weight: 4, arbitrary: command('render', fc.boolean(), (world, isLast) => world.render(isLast)) },
    {
      weight: 8,
      arbitrary: command('pass', fc.constantFrom(10, 800, 1500, 3000, 6000, 12_000, 31_000), (world, ms) =>
        world.pass(ms),
      ),
    },
    { weight: 3, arbitrary: plain('drained', (world) => world.do((agent) => agent.say('playback.drained'))) },
    {
      weight: 2,
      arbitrary: plain('detach', (world) => {
        if (world.agent.state.isAttached) world.do((agent) => agent.post({ type: 'detached' }));
      }),
    },
    {
      weight: 3,
      arbitrary: plain('attach', (world) => {
        if (!world.agent.state.isAttached) world.do((agent) => agent.post({ type: 'attached' }));
      }),
    },
    { weight: 1, arbitrary: plain('respeak', (world) => world.do((agent) => agent.say('svc.result.respeak'))) },
    ...(withEnd
      ? [
          { weight: 1, arbitrary: command('lose', fc.boolean(), (world, idle) => world.lose(idle)) },
          {
            weight: 1,
            arbitrary: plain('end', (world) => {
              // A phone that is there has what it was sent.
              world.end();
            }),
          },
        ]
      : []),
  );

const modes = fc.constantFrom<ResultDelivery>('speak_verbatim', 'speak_when_idle', 'visual_only');
const RUNS = Number(process.env.AGENT_MODEL_RUNS ?? 250);
const TIMEOUT = 120_000;

it('delivers every result exactly once, with one speaker at a time, whatever happens', { timeout: TIMEOUT }, () => {
  fc.assert(
    fc.property(modes, fc.array(commands(false), { maxLength: 60 }), (mode, history) => {
      const world = new World(mode);
      for (const { run } of history) run(world);
      world.settle();
      world.checkHistory();
    }),
    { numRuns: RUNS },
  );
});

it('keeps back a cancelled response that is read of between short steps of time', () => {
  const world = new World('speak_verbatim');
  world.do((agent) => agent.speak('hello'));
  world.stop(false);
  world.do((agent) => agent.speak('hello'));
  world.provide('answer', false);
  world.provide('answer', false);
  world.pass(800);
  world.pass(1500);
  world.settle();
  world.checkHistory();
});

it('loses no result when the provider is lost or the session ends', { timeout: TIMEOUT }, () => {
  fc.assert(
    fc.property(modes, fc.array(commands(true), { maxLength: 60 }), fc.boolean(), (mode, history, isHeard) => {
      const world = new World(mode);
      for (const { run } of history) run(world);
      if (isHeard) world.settle();
      world.end();
      expect(world.agent.timers).toEqual([]);
      world.checkHistory();
    }),
    { numRuns: RUNS },
  );
});

it('ends every timer that it sets', { timeout: TIMEOUT }, () => {
  fc.assert(
    fc.property(fc.array(commands(true), { maxLength: 40 }), (history) => {
      const world = new World('speak_verbatim');
      for (const { run } of history) run(world);
      world.do((agent) => agent.pass(CONFIG.backgroundRunMax * 5));
      world.end();
      expect(world.agent.timers).toEqual([]);
      expect(world.agent.state.phase).toBe('closed');
    }),
    { numRuns: RUNS },
  );
});
