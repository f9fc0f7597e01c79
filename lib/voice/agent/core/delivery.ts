import { MiB } from '../../../kit/units.ts';
import { createSummaryCheck } from '../text/validation.ts';
import {
  fallBack,
  newDelivery,
  settle,
  settleSpoken,
  showInstead,
  showText,
  stopAsking,
  stopRendering,
  stopWaiting,
} from './fallback.ts';
import { drain } from './floor.ts';
import { cancelActive, doneEvent, request } from './response.ts';
import type { Delivery, Drain, Result } from './state.ts';
import type { Signal, Step } from './step.ts';

/** Region D: every result reaches the user exactly once (contract 06 §7). */

/** Bytes of audio and characters of text that are held back until the response is known to be good. */
const MAX_HELD = 8 * MiB;
/** Bytes counted for an event besides its text or audio, as there may be many small ones. */
const HELD_EVENT = 256;
const MAX_SAID = 64 * 1024;
const MAX_BACKLOG = 4;
/** Milliseconds after a cut in which noise offers the answer again. */
const CUT_TTL = 10_000;
/** Name of the function whose result is delivered. */
const RUN_TOOL = 'svc_run_task';

/** Delivers the outcome of a run. That of a foreground run goes first, because the user is waiting for it. */
export function deliver(step: Step, result: Result): void {
  const { state, config } = step;
  const { delivery } = state;
  if (result.isBackground && result.isOk) delivery.last = result;
  const { current } = delivery;
  if (config.resultDelivery === 'visual_only') showText(step, result);
  else if (!current) begin(step, result);
  else if (!result.isBackground) {
    const isWaiting = current.phase === 'waiting_floor' || current.phase === 'held';
    if (isWaiting) {
      stopWaiting(step);
      delivery.current = null;
    }
    addToBacklog(step, isWaiting ? [current.result, ...delivery.backlog] : [result, ...delivery.backlog]);
    if (isWaiting) begin(step, result);
  } else addToBacklog(step, [...delivery.backlog, result]);
}

function addToBacklog(step: Step, results: readonly Result[]): void {
  const { delivery } = step.state;
  delivery.backlog = results.slice(0, MAX_BACKLOG);
  for (const result of results.slice(MAX_BACKLOG)) showText(step, result);
}

function begin(step: Step, result: Result): void {
  const { state } = step;
  const current = newDelivery(step, result);
  state.delivery.current = current;
  if (!state.isAttached) hold(step, current);
  else if (result.isBackground || result.isReoffered) waitForFloor(step, current);
  else {
    current.phase = 'draining';
    drain(step, result.callId, RUN_TOOL, 'tool_result_summary');
  }
}

function hold(step: Step, current: Delivery): void {
  stopWaiting(step);
  current.phase = 'held';
  step.mark('voice.realtime_agent.result_deferred', { run_id: current.result.runId });
}

function waitForFloor(step: Step, current: Delivery): void {
  current.phase = 'waiting_floor';
  current.isFloorDue = false;
  step.setTimer('floor', step.config.floorWait);
}

export function floorTimedOut(step: Step): void {
  const { current } = step.state.delivery;
  if (current?.phase === 'waiting_floor') current.isFloorDue = true;
}

/** Advances everything that can move: the next result, one that waits for the floor, one that was held for the phone. */
export function advanceDelivery(step: Step): void {
  const { state } = step;
  const { delivery } = state;
  if (!delivery.current) {
    const [next, ...others] = delivery.backlog;
    if (!next) return;
    delivery.backlog = others;
    begin(step, { ...next, isBackground: true });
  }
  const { current } = delivery;
  if (!current || state.phase === 'outliving') return;
  if (state.phase === 'closing') {
    if (!['streaming', 'fallback'].includes(current.phase)) fallBack(step, current, 'provider_lost');
    return;
  }
  if (current.phase === 'held' && state.isAttached) waitForFloor(step, current);
  if (current.phase !== 'waiting_floor') return;
  if (!state.isAttached) hold(step, current);
  else if (current.isFloorDue) {
    if (state.floor.speaker === 'provider' || state.turn.active) cancelActive(step);
    requestDelivery(step, current);
  } else if (isFloorFree(step) && isQuiet(step)) requestDelivery(step, current);
}

const isFloorFree = ({ state: { floor, turn } }: Step): boolean =>
  floor.speaker === 'free' && !turn.active && turn.queue.length === 0 && turn.input !== 'awaiting_transcript';

/** True if nobody has spoken for a while; otherwise sets a timer to check again. */
function isQuiet(step: Step): boolean {
  const { micAt } = step.state.turn;
  const left = micAt === null ? 0 : micAt + step.config.inputQuiet - step.at;
  if (left > 0 && !step.isSet('quiet')) step.setTimer('quiet', left);
  return left <= 0;
}

function requestDelivery(step: Step, current: Delivery): void {
  const { result } = current;
  stopWaiting(step);
  current.phase = 'requested';
  forgetSaid(current);
  step.state.turn.isSuppressing = true;
  step.setTimer('confirm', step.config.deliveryConfirm);
  request(step, { kind: 'delivery', prompt: { type: 'delivery', mode: step.config.resultDelivery, result } });
}

function forgetSaid(current: Delivery): void {
  current.text = '';
  current.hasAudio = false;
  current.held = 0;
  current.hasProgress = false;
}

/** The phone has played everything before. False if no delivery waited for that. */
export function drainedForDelivery(step: Step, { callId, reason }: Drain): boolean {
  const { current } = step.state.delivery;
  if (current?.phase !== 'draining' || (reason !== 'forced_summary' && current.result.callId !== callId)) return false;
  requestDelivery(step, current);
  return true;
}

export function deliveryText(step: Step, text: string): void {
  const { current } = step.state.delivery;
  if (!current) return;
  current.text = (current.text + text).slice(0, MAX_SAID);
  current.hasProgress = true;
  if (current.phase !== 'requested') return;
  const { active } = step.state.turn;
  const mayCommit = !active?.isSuspect && createSummaryCheck(current.result.answer).mayCommit(current.text);
  if (mayCommit) commitDelivery(step, current);
  else countHeld(step, current, text.length);
}

export function deliveryAudio(step: Step, bytes: number): void {
  const { current } = step.state.delivery;
  if (!current) return;
  current.hasAudio = true;
  current.hasProgress = true;
  if (current.phase === 'requested') countHeld(step, current, bytes);
}

/** Replaces a response whose held-back events exceed the limit. */
function countHeld(step: Step, current: Delivery, size: number): void {
  current.held += size + HELD_EVENT;
  if (current.held <= MAX_HELD) return;
  cancelActive(step);
  fallBack(step, current, 'too_long');
}

/** The response of the delivery turned out to be that of a cancelled request; the right one is still to come. */
export function deliveryRestarted(step: Step): void {
  const { current } = step.state.delivery;
  if (current) forgetSaid(current);
}

/** Early commit: the text so far is heard now, and the rest as it comes. */
function commitDelivery(step: Step, current: Delivery): void {
  const { active } = step.state.turn;
  if (active?.request.kind !== 'delivery' || active.id === null) return;
  current.phase = 'streaming';
  step.do({ type: 'release', hold: active.id });
  step.mark('voice.response.forced_summary_streaming', { response_id: active.id, run_id: current.result.runId });
}

/** The response has ended. `id` is its own; a response that never started has none. */
export function deliveryEnded(step: Step, { id, hasCalls, cut }: Extract<Signal, { type: 'deliveryEnded' }>): void {
  const { current } = step.state.delivery;
  if (!current) return;
  const labels = { delivery: current.label, run_id: current.result.runId };
  if (current.phase === 'streaming') {
    step.emit(doneEvent(step, id, { ...labels, ...cut }));
    settleSpoken(step, current);
  } else if (current.phase !== 'requested') return;
  else if (hasCalls && !current.isRepeated && current.text === '' && id !== null) {
    step.do({ type: 'discard', hold: id });
    step.clearTimer('confirm');
    current.isRepeated = true;
    current.phase = 'draining';
    drain(step, current.result.callId, RUN_TOOL, 'forced_summary');
  } else {
    const isExactSpeech =
      step.config.speaksExactText && step.config.resultDelivery === 'speak_verbatim' && current.hasAudio;
    const fault = createSummaryCheck(current.result.answer).fault(current.text, { isExactSpeech });
    if (fault === null && id !== null) {
      step.do({ type: 'release', hold: id });
      step.emit(doneEvent(step, id, { ...labels, ...cut }));
      step.mark('voice.response.forced_summary_delivered', { response_id: id, run_id: current.result.runId });
      settleSpoken(step, current);
    } else {
      if (id !== null) step.do({ type: 'discard', hold: id });
      step.mark('voice.response.forced_summary_fallback', { reason: fault, run_id: current.result.runId });
      fallBack(step, current, fault ?? 'empty_summary');
    }
  }
}

/** The provider refused the request, or its socket did not accept it. */
export function deliveryRefused(step: Step): void {
  const { current } = step.state.delivery;
  if (current?.phase === 'requested') fallBack(step, current, 'refused');
}

/** The response was cancelled for another request. */
export function deliveryCancelled(step: Step): void {
  const { current } = step.state.delivery;
  if (current?.phase === 'requested') showInstead(step, current);
  else if (current?.phase === 'streaming') settle(step);
}

/** The user is speaking, so an old answer gives way. */
export function preempt(step: Step): void {
  const { delivery } = step.state;
  const { current } = delivery;
  delivery.cut = null;
  // The unheard rest can be requested.
  if (delivery.spoken && !step.playback.isAllPlayed) delivery.last = delivery.spoken;
  else if (current?.phase === 'streaming') delivery.last = current.result;
  delivery.spoken = null;
  if (current?.phase === 'requested' || current?.phase === 'draining') {
    step.mark('voice.realtime_agent.delivery_preempted', { run_id: current.result.runId });
    showInstead(step, current);
  } else if (current?.phase === 'fallback') stopRendering(step, current);
  else if (current?.phase === 'streaming' && step.state.turn.active?.request.kind !== 'delivery') {
    // Its rest waits for the provider.
    stopAsking(step);
    settle(step);
  }
}

/** The client stops the speech. */
export function cancelDelivery(step: Step): void {
  const { delivery } = step.state;
  const { current } = delivery;
  if (current && !['waiting_floor', 'held'].includes(current.phase)) {
    if (current.phase === 'fallback') step.do({ type: 'stopRender', id: current.generation });
    if (current.label !== 'respeak') noteCut(step, current.result);
    settle(step);
  } else if (!step.playback.isAllPlayed) noteStopped(step);
}

/** The phone stops playing the last answer. Returns false if it was not playing one. */
export function noteStopped(step: Step): boolean {
  const { spoken } = step.state.delivery;
  if (spoken) noteCut(step, spoken);
  return spoken !== null;
}

function noteCut({ state: { delivery }, at }: Step, result: Result): void {
  delivery.spoken = null;
  delivery.last = result;
  if (!result.isReoffered) delivery.cut = { result, at };
}

/**
 * Puts an answer that an utterance without words has interrupted back into the queue (contract 06 §6.6). Returns false if
 * the utterance interrupted none, or too long ago.
 */
export function reoffer({ state: { delivery }, at }: Step): boolean {
  const { cut } = delivery;
  delivery.cut = null;
  if (!cut || at - cut.at > CUT_TTL) return false;
  delivery.backlog = [{ ...cut.result, isReoffered: true }, ...delivery.backlog];
  return true;
}

/** The delivery showed no progress for too long. A streaming one continues while anything arrives. */
export function confirmTimedOut(step: Step): void {
  const { current } = step.state.delivery;
  if (current?.phase === 'requested') {
    step.mark('voice.realtime_agent.delivery_unconfirmed', { run_id: current.result.runId });
    showInstead(step, current);
  } else if (current?.phase === 'streaming') {
    if (current.hasProgress) {
      current.hasProgress = false;
      step.setTimer('confirm', step.config.deliveryConfirm);
    } else {
      stopAsking(step);
      settle(step);
    }
  }
}

/** The provider was lost in the middle of the answer: the rest is shown. */
export function lostWhileSpeaking(step: Step): void {
  const { current } = step.state.delivery;
  if (current?.phase === 'streaming') showInstead(step, current);
}

/** The results that nobody has received. */
export function undelivered({ state: { delivery, isAttached } }: Step): readonly Result[] {
  const { current, backlog, unreceived } = delivery;
  const isReceived = current && isAudible(current) && (isAttached || current.isShown);
  const isUnsaid = current && current.label !== 'respeak' && !isReceived;
  return [...unreceived, ...(isUnsaid ? [current.result] : []), ...backlog];
}

const isAudible = ({ phase }: Delivery): boolean => phase === 'streaming' || phase === 'fallback';
