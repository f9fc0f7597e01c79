import { base64 } from '../../../../../lib/kit/bytes.ts';
import type { JsonObject } from '../../../../../lib/kit/json.ts';
import { reduce } from '../../../../../lib/voice/agent/core/reduce.ts';
import {
  type AgentConfig,
  type Effect,
  type Event,
  initialState,
  type Playback,
  type RunEvent,
  type State,
} from '../../../../../lib/voice/agent/core/state.ts';
import type { ProviderEvent } from '../../../../../lib/voice/agent/provider/provider.ts';

export const CONFIG: AgentConfig = {
  sessionId: 'voice-1',
  provider: 'openai_realtime',
  model: 'gpt-realtime-2.1',
  voice: 'marin',
  sampleRate: 24_000,
  eventLogPath: '/logs/voice-1.jsonl',
  profile: null,
  chatSessionId: null,
  isFinalAnswerOnly: false,
  promotes: true,
  promoteAfter: 6000,
  spokenHandoff: true,
  progressSpokenAfter: 0,
  progressRepeat: 30_000,
  resultDelivery: 'speak_verbatim',
  speaksExactText: false,
  longToolHints: ['cron', 'browser', 'terminal'],
  resumeTtl: 30_000,
  backgroundDetachedMax: 360_000,
  backgroundRunMax: 300_000,
  progressInterval: 5000,
  playbackDrain: 2500,
  runLead: 750,
  floorWait: 12_000,
  inputQuiet: 1500,
  deliveryConfirm: 30_000,
  longToolQuickFinish: 1500,
  transcriptWait: 8000,
};

export const ANSWER = 'The kitchen thermostat reports 21 degrees and the window sensor is closed.';

/** Freezes a value with everything in it, so that a step that changes its input throws. */
function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value) || ArrayBuffer.isView(value)) return value;
  Object.freeze(value);
  for (const member of Object.values(value)) deepFreeze(member);
  return value;
}

/** The state machine with its effects performed as the actor performs them, on a clock that only `pass` moves. */
export class TestAgent {
  state: State;
  now = 1000;
  readonly effects: Effect[] = [];
  /** Events that the client was sent, or finds in the ring. */
  readonly events: JsonObject[] = [];
  readonly marks: JsonObject[] = [];
  /** Both, in order. */
  readonly log: JsonObject[] = [];
  /** Playback as the phone reports it. */
  playback: Playback = { played: 0, isAllPlayed: true };
  readonly #held = new Map<string, JsonObject[]>();
  readonly #timers = new Map<string, { generation: number; due: number }>();

  constructor(config: Partial<AgentConfig> = {}) {
    this.state = deepFreeze(initialState({ ...CONFIG, ...config }));
    this.post({ type: 'attached' });
  }

  post(event: Event extends infer E ? (E extends { at: number } ? Omit<E, 'at'> : never) : never): Effect[] {
    const [state, effects] = reduce(this.state, { ...event, at: this.now } as Event);
    this.state = deepFreeze(state);
    for (const effect of effects) this.#perform(effect);
    this.effects.push(...effects);
    return effects;
  }

  #perform(effect: Effect): void {
    switch (effect.type) {
      case 'emit':
        this.#publish(effect.event, effect.hold);
        break;
      case 'audio': {
        const { responseId, pcm, labels } = effect.audio;
        const event = { type: 'voice.output_audio.delta', response_id: responseId, byte_count: pcm.length, ...labels };
        this.#publish(event, effect.hold);
        break;
      }
      case 'release':
        for (const event of this.#held.get(effect.hold) ?? []) this.#publish(event, undefined);
        this.#held.delete(effect.hold);
        break;
      case 'discard':
        this.#held.delete(effect.hold);
        break;
      case 'mark':
        this.marks.push(effect.event);
        this.log.push(effect.event);
        break;
      case 'setTimer':
        this.#timers.set(effect.name, { generation: effect.generation, due: this.now + effect.delay });
        break;
      case 'clearTimer':
        if (this.#timers.get(effect.name)?.generation !== effect.generation) throw new Error(`${effect.name} not set`);
        this.#timers.delete(effect.name);
        break;
    }
  }

  #publish(event: JsonObject, hold: string | undefined): void {
    if (hold === undefined) {
      this.events.push(event);
      this.log.push(event);
    } else {
      const held = this.#held.get(hold);
      if (held) held.push(event);
      else this.#held.set(hold, [event]);
    }
  }

  /** Names of the timers that are set. */
  get timers(): string[] {
    return [...this.#timers.keys()].sort();
  }

  get heldResponses(): string[] {
    return [...this.#held.keys()];
  }

  /** Moves time, and fires the timers that fall due, in order. */
  pass(ms: number): void {
    const until = this.now + ms;
    for (;;) {
      const due = [...this.#timers].filter(([, timer]) => timer.due <= until).sort((a, b) => a[1].due - b[1].due)[0];
      if (!due) break;
      const [name, timer] = due;
      this.#timers.delete(name);
      this.now = Math.max(this.now, timer.due);
      this.post({ type: 'timer', name, generation: timer.generation });
    }
    this.now = until;
  }

  say = (type: string, members: JsonObject = {}): Effect[] =>
    this.post({ type: 'client', message: { type, ...members }, playback: this.playback });
  provider = (event: ProviderEvent): Effect[] => this.post({ type: 'provider', event, playback: this.playback });
  run = (event: RunEvent | JsonObject, key = this.runKey): Effect[] =>
    this.post({ type: 'run', key, event: event as RunEvent });

  /** Key of the run that was started last. */
  get runKey(): number {
    return this.effects.findLast((effect) => effect.type === 'startRun')?.key ?? -1;
  }

  append = (bytes = 320, members: JsonObject = {}): Effect[] =>
    this.say('input_audio.append', { audio_base64: base64(new Uint8Array(bytes)), sample_rate: 16_000, ...members });

  /** A spoken turn of the user, up to its transcript. */
  speak(text: string): void {
    this.append();
    this.say('input_audio.commit');
    this.provider({ type: 'transcriptFinal', text });
  }

  started = (responseId: string): Effect[] => this.provider({ type: 'responseStarted', responseId });
  text = (responseId: string, text: string): Effect[] => this.provider({ type: 'textDelta', responseId, text });
  audio = (responseId: string, bytes = 960): Effect[] =>
    this.provider({
      type: 'audioDelta',
      responseId,
      itemId: `i-${responseId}`,
      contentIndex: 0,
      pcm: new Uint8Array(bytes),
    });
  done = (responseId: string, status = 'completed'): Effect[] =>
    this.provider({ type: 'responseDone', responseId, status });
  call = (responseId: string, callId: string, name: string, args: JsonObject = {}): Effect[] =>
    this.provider({ type: 'functionCall', responseId, callId, name, args: JSON.stringify(args) });

  /** The connection to the provider ends. */
  lose = (idle = false): Effect[] => this.provider({ type: 'closed', idle, message: 'reset' });
  dialled = (): Effect[] => this.post({ type: 'dialled' });
  /** No connection can be had: five tries, and the end of the session. */
  loseForGood(): void {
    this.lose();
    for (let tries = 0; this.state.link.phase !== 'up' && this.state.phase === 'open' && tries < 6; tries++) {
      this.post({ type: 'dialFailed', message: 'refused' });
      this.pass(4000);
    }
  }

  /** A whole response of the provider. */
  respond(id: string, text: string): void {
    this.started(id);
    this.text(id, text);
    this.audio(id);
    this.provider({ type: 'audioDone', responseId: id });
    this.done(id);
  }

  /** A turn of the user whose answer is a run; returns once the agent's stream is open. */
  startRun(args: JsonObject = {}, callId = 'call-1'): void {
    this.speak('what about the kitchen?');
    const id = `asks-${callId}`;
    this.started(id);
    this.call(id, callId, 'svc_run_task', { text: 'look at the kitchen', ...args });
    this.done(id);
    this.pass(CONFIG.runLead);
  }

  /** As `startRun`, in the background, with the handoff spoken. */
  startBackgroundRun(callId = 'call-1'): void {
    this.startRun({ mode: 'background' }, callId);
    this.respond(`handoff-${callId}`, 'I am on it.');
    this.pass(CONFIG.inputQuiet);
  }

  types = (): unknown[] => this.events.map(({ type }) => type);
  of = (type: string): JsonObject[] => this.events.filter((event) => event.type === type);
  last = (type: string): JsonObject | undefined => this.of(type).at(-1);
  marked = (type: string): JsonObject[] => this.marks.filter((mark) => mark.type === type);
  did = <T extends Effect['type']>(type: T): Extract<Effect, { type: T }>[] =>
    this.effects.filter((effect): effect is Extract<Effect, { type: T }> => effect.type === type);
  /** Kinds of the responses that were asked for. */
  requests = (): string[] => this.did('request').map(({ request }) => request.kind);
  /** Types of the commands to the provider. */
  commands = (): string[] => this.did('provider').map(({ command }) => command.type);
  outcomes = (): string[] => this.did('toolResult').map(({ outcome }) => outcome.type);
}
