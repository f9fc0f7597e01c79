import type { JsonObject } from '../../../kit/json.ts';
import { newDelivery } from './fallback.ts';
import { releaseFloor } from './floor.ts';
import { activeResponse, doneEvent, startedEvent } from './response.ts';
import * as run from './run.ts';
import type { Event, Run, RunEvent } from './state.ts';
import type { Step } from './step.ts';
import * as turn from './turn.ts';

/** Model and voice of the stub in answers. */
const VOICE = { model: 'local-tone', voice: 'sine' };
const MAX_TEXT = 5000;
const SVC = { source: 'svc' } as const;

/**
 * The session of the stub (contract 06 §9), which cannot talk: each text is one foreground run, and its answer is shown and
 * read aloud as a tone. Returns false for events that are handled the same for all providers.
 */
export function applyStub(step: Step, event: Event): boolean {
  switch (event.type) {
    case 'client':
      return clientMessage(step, event.message);
    case 'run':
      if (step.state.run.current?.key === event.key) runEvent(step, step.state.run.current, event.event);
      return true;
    case 'rendered':
      rendered(step, event.id, event.pcm, event.sampleRate);
      return true;
    case 'renderEnded':
      renderEnded(step, event.id, event.done);
      return true;
    default:
      return false;
  }
}

function clientMessage(step: Step, message: JsonObject): boolean {
  const { turn: input } = step.state;
  switch (message.type) {
    case 'input_audio.commit':
      begin(step, message, input.uncommitted);
      input.uncommitted = 0;
      input.input = 'idle';
      return true;
    case 'response.create':
      begin(step, message, 0);
      return true;
    case 'response.cancel':
      cancel(step);
      return true;
    case 'playback.drained':
      return true;
    default:
      return false;
  }
}

/** Starts a turn with the client's text. */
function begin(step: Step, message: JsonObject, audioBytes: number): void {
  const { state, config } = step;
  const given = [message.text, message.prompt].find((value) => typeof value === 'string' && value.trim() !== '');
  if (typeof given !== 'string') {
    step.error('the stub hears nothing: client transcript text is required');
    return;
  }
  if (state.turn.active) {
    step.error('response already running');
    return;
  }
  const text = given.trim().slice(0, MAX_TEXT).toWellFormed();
  step.emit({
    type: 'voice.input_transcript.final',
    text,
    source: 'client_text',
    sample_rate: config.sampleRate,
    input_audio_bytes: audioBytes,
  });
  const id = `stub-${step.next()}`;
  state.turn.active = { ...activeResponse({ kind: 'user', prompt: null }), id, isAnnounced: true };
  step.emit(startedEvent(step, id, SVC));
  run.startForeground(step, text);
}

function runEvent(step: Step, current: Run, event: RunEvent): void {
  switch (event.type) {
    case 'answer':
      run.runEvent(step, current.key, event);
      step.emit({ type: 'voice.response.delta', delta: event.text, response_id: step.state.turn.active?.id, ...SVC });
      break;
    case 'end':
      if (event.text.trim() === '') fail(step, current, { message: run.NO_ANSWER });
      else answer(step, current, event.text);
      break;
    case 'error':
    // There is no provider to deliver the sentence about a freeze.
    case 'frozen':
      fail(step, current, event);
      break;
    default:
      run.runEvent(step, current.key, event);
  }
}

/** The answer has arrived and is read aloud. */
function answer(step: Step, current: Run, text: string): void {
  const { state } = step;
  const result = run.endForeground(step, current, text, true);
  const delivery = newDelivery(step, result);
  state.delivery.current = { ...delivery, phase: 'fallback', label: 'fallback' };
  state.floor.speaker = 'relay_tts';
  step.do({ type: 'render', id: delivery.generation, text });
}

function fail(step: Step, current: Run, { message, code }: { message: string; code?: string }): void {
  run.endForeground(step, current, message, false);
  step.error(message, { ...(code !== undefined && { error_code: code }) });
  endTurn(step, {});
}

function rendered(step: Step, id: number, pcm: Uint8Array, sampleRate: number): void {
  const { delivery, turn: turns } = step.state;
  if (delivery.current?.generation !== id || !turns.active?.id) return;
  step.audio({ responseId: turns.active.id, pcm, sampleRate, labels: {} });
}

function renderEnded(step: Step, id: number, done: object = {}): void {
  const { delivery, turn: turns } = step.state;
  const { current } = delivery;
  if (current?.generation !== id) return;
  step.emit({ type: 'voice.output_audio.done', response_id: turns.active?.id ?? null });
  endTurn(step, { final_text: current.result.answer, run_id: current.result.runId, ...done });
}

function endTurn(step: Step, members: object): void {
  const { state } = step;
  const id = state.turn.active?.id ?? null;
  state.turn.active = null;
  state.delivery.current = null;
  releaseFloor(step, 'relay_tts');
  step.emit(doneEvent(step, id, { ...VOICE, ...members }));
}

function cancel(step: Step): void {
  const { state } = step;
  const { current } = state.delivery;
  const runId = state.run.current?.runId;
  turn.clear(step);
  if (current) step.do({ type: 'stopRender', id: current.generation });
  run.cancelRuns(step);
  endTurn(step, { cancelled: true, ...(runId !== undefined && { run_id: runId }) });
}
