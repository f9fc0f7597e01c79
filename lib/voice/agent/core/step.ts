import type { JsonObject } from '../../../kit/json.ts';
import type { EventBody } from '../../socket/types.ts';
import type { Drain, Effect, Event, FunctionCall, OutputAudio, Playback, ProviderCommand, State } from './state.ts';

/** A message of one region to the others, handled after the region is done. */
export type Signal =
  /** The user has said something, so an unfinished delivery gives way. */
  | { type: 'userTurn' }
  /** An utterance without words. */
  | { type: 'noise' }
  | ({ type: 'call'; isDelivery: boolean } & FunctionCall)
  /** The response of a delivery. */
  | { type: 'deliveryText'; text: string }
  | { type: 'deliveryRestarted' }
  | { type: 'deliveryAudio'; bytes: number }
  | { type: 'deliveryEnded'; id: string | null; hasCalls: boolean; cut: JsonObject }
  | { type: 'deliveryCancelled' }
  | { type: 'deliveryRefused' }
  | { type: 'drained'; drain: Drain };

/** A mutable copy of the state during a step. */
type Draft = { -readonly [Key in keyof State]: State[Key] };

/** For events to which playback does not matter. */
const UNKNOWN: Playback = { played: 0, isAllPlayed: true };

/** One step of the state machine: a copy of the state to change, and the effects so far. */
export class Step {
  readonly state: Draft;
  readonly at: number;
  readonly playback: Playback;
  readonly effects: Effect[] = [];
  readonly signals: Signal[] = [];

  constructor(state: State, event: Event) {
    this.state = copyOf(state);
    this.at = event.at;
    this.playback = 'playback' in event ? event.playback : UNKNOWN;
  }

  get config() {
    return this.state.config;
  }

  do(effect: Effect): void {
    this.effects.push(effect);
  }

  raise(signal: Signal): void {
    this.signals.push(signal);
  }

  next(): number {
    return ++this.state.counter;
  }

  emit(event: EventBody, hold?: string): void {
    this.do({ type: 'emit', event, ...(hold !== undefined && { hold }) });
  }

  audio(audio: OutputAudio, hold?: string): void {
    this.do({ type: 'audio', audio, ...(hold !== undefined && { hold }) });
  }

  /** Publishes an `svc.*` event, with the chat session once it is known. */
  emitSvc(event: EventBody): void {
    const { chatSessionId: id } = this.state;
    this.emit({ ...event, source: 'svc', ...(id !== null && { session_id: id, chat_session_id: id }) });
  }

  error(message: string, members: JsonObject = {}): void {
    this.emit({ type: 'voice.error', message, ...members });
  }

  mark(type: string, members: JsonObject = {}): void {
    this.do({ type: 'mark', event: { type, ...members } });
  }

  provider(command: ProviderCommand): void {
    this.do({ type: 'provider', command });
  }

  /** Sets a timer, replacing one of the same name. */
  setTimer(name: string, delay: number): void {
    const generation = this.next();
    this.state.timers = { ...this.state.timers, [name]: generation };
    this.do({ type: 'setTimer', name, generation, delay });
  }

  clearTimer(name: string): void {
    const { [name]: generation, ...others } = this.state.timers;
    if (generation === undefined) return;
    this.state.timers = others;
    this.do({ type: 'clearTimer', name, generation });
  }

  isSet(name: string): boolean {
    return this.state.timers[name] !== undefined;
  }

  /** Handles a fired timer. False if it was cleared or set again. */
  takeTimer(name: string, generation: number): boolean {
    if (this.state.timers[name] !== generation) return false;
    const { [name]: _, ...others } = this.state.timers;
    this.state.timers = others;
    return true;
  }

  clearAllTimers(): void {
    for (const name of Object.keys(this.state.timers)) this.clearTimer(name);
  }
}

/** One handler per member of a union. */
export type Handlers<U extends { type: string }> = {
  readonly [T in U['type']]: (step: Step, value: Extract<U, { type: T }>) => void;
};

export function dispatch<U extends { type: string }>(handlers: Handlers<U>, step: Step, value: U): void {
  (handlers[value.type as U['type']] as (step: Step, value: U) => void)(step, value);
}

/** Copies everything that regions assign to; lists and results are replaced, never changed. */
function copyOf(state: State): Draft {
  const { turn, floor, delivery, run } = state;
  return {
    ...state,
    link: { ...state.link },
    turn: { ...turn, active: turn.active && { ...turn.active } },
    floor: { ...floor },
    delivery: { ...delivery, current: delivery.current && { ...delivery.current } },
    run: { ...run, current: run.current && { ...run.current }, fast: run.fast && { ...run.fast } },
    reported: { ...state.reported },
  };
}
