import { dropDrains, releaseFloor } from './floor.ts';
import { cancelActive, doneEvent, startedEvent, withdraw } from './response.ts';
import type { Deliveries, Delivery, Result } from './state.ts';
import type { Step } from './step.ts';

/** The lower half of region D: an answer as text or rendered speech, without the provider, and the end of a delivery. */

const MAX_UNRECEIVED = 8;
/** Longest time for rendering one answer. */
const RENDER_TIMEOUT = 60_000;

const SVC = { source: 'svc' } as const;

/** A delivery that has not started. */
export const newDelivery = (step: Step, result: Result): Delivery => ({
  generation: step.next(),
  result,
  label: 'forced_summary',
  phase: 'waiting_floor',
  text: '',
  hasAudio: false,
  held: 0,
  isRepeated: false,
  isFloorDue: false,
  hasProgress: false,
  isShown: false,
});

export function stopWaiting(step: Step): void {
  step.clearTimer('floor');
  step.clearTimer('quiet');
}

/** Ends a delivery by showing its text, if nothing of it was heard (contract 06 §7.4). */
export function showInstead(step: Step, current: Delivery): void {
  stopAsking(step);
  showText(step, current.result);
  settle(step);
}

/** Withdraws all requests of the delivery. */
export function stopAsking(step: Step): void {
  const { state } = step;
  withdraw(step, 'delivery');
  if (state.turn.active?.request.kind === 'delivery') cancelActive(step);
  const ownCall = state.delivery.current?.result.callId;
  dropDrains(step, ({ callId, reason }) => callId === ownCall && reason !== 'pre_svc_ack');
}

/** The relay speaks the answer itself (contract 06 §7.3). */
export function fallBack(step: Step, current: Delivery, reason: string): void {
  const { state } = step;
  const { result } = current;
  stopAsking(step);
  step.clearTimer('confirm');
  stopWaiting(step);
  step.mark('voice.response.delivery_fallback', { reason, run_id: result.runId });
  seed(step, result);
  current.label = 'fallback';
  startRendering(step, current);
  state.turn.isSuppressing = true;
}

/** An answer that the provider did not speak goes into its history, and is mentioned in the next turn. */
function seed(step: Step, { request, answer, runId }: Result): void {
  step.provider({ type: 'context', role: 'assistant', text: answer });
  step.state.delivery.remembered = { request, answer };
  step.mark('voice.realtime_agent.result_seeded', { run_id: runId });
}

/** Id of the response that the relay is speaking. */
export function renderedId({ state: { delivery } }: Step): string | null {
  return delivery.current?.phase === 'fallback' ? idOf(delivery.current) : null;
}

const idOf = ({ label, generation }: Delivery): string => `svc-${label}-${generation}`;

function startRendering(step: Step, current: Delivery): void {
  const { state } = step;
  const { generation, label, result } = current;
  if (state.turn.active) {
    step.do({ type: 'truncate', isCertain: false });
    cancelActive(step);
  }
  current.phase = 'fallback';
  current.hasAudio = false;
  current.isShown = state.isAttached;
  state.floor.speaker = 'relay_tts';
  const labels = { ...SVC, delivery: label };
  step.emit(startedEvent(step, idOf(current), labels));
  step.emit({ type: 'voice.response.delta', delta: result.answer, response_id: idOf(current), ...labels });
  step.do({ type: 'render', id: generation, text: result.answer });
  step.setTimer('render', RENDER_TIMEOUT);
}

export function rendered(step: Step, id: number, pcm: Uint8Array, sampleRate: number): void {
  const { current } = step.state.delivery;
  if (current?.phase !== 'fallback' || current.generation !== id) return;
  current.hasAudio = true;
  const labels = { ...SVC, delivery: current.label };
  step.audio({ responseId: idOf(current), pcm, sampleRate, labels });
}

/** A failed render ends like any other: the text has arrived. */
export function renderEnded(step: Step, id: number, done: object = {}): void {
  const { current } = step.state.delivery;
  if (current?.phase !== 'fallback' || current.generation !== id) return;
  endRendering(step, current, done);
  if (current.hasAudio) settleSpoken(step, current);
  else settle(step);
}

export function renderTimedOut(step: Step): void {
  const { current } = step.state.delivery;
  if (current?.phase === 'fallback') stopRendering(step, current);
}

export function stopRendering(step: Step, current: Delivery): void {
  step.do({ type: 'stopRender', id: current.generation });
  endRendering(step, current, { cancelled: true });
  settle(step);
}

function endRendering(step: Step, current: Delivery, members: object): void {
  const labels = { ...SVC, delivery: current.label };
  const id = idOf(current);
  if (current.hasAudio) step.emit({ type: 'voice.output_audio.done', response_id: id, ...labels });
  const { answer: final_text, runId: run_id } = current.result;
  step.emit(doneEvent(step, id, { ...labels, run_id, final_text, ...members }));
}

/** Delivers as text alone. */
export function showText(step: Step, result: Result): void {
  const { delivery, isAttached } = step.state;
  const id = `svc-visual-${step.next()}`;
  const labels = { delivery: 'visual_only' };
  step.emit(startedEvent(step, id, { ...SVC, ...labels }));
  step.emit({ type: 'voice.response.delta', delta: result.answer, response_id: id, ...SVC, ...labels });
  step.emit(doneEvent(step, id, { ...labels, run_id: result.runId }));
  seed(step, result);
  if (!isAttached) noteUnreceived(delivery, result);
}

function noteUnreceived(delivery: Deliveries, result: Result): void {
  const others = delivery.unreceived.filter(({ runKey }) => runKey !== result.runKey);
  delivery.unreceived = [...others, result].slice(-MAX_UNRECEIVED);
}

export function settleSpoken(step: Step, current: Delivery): void {
  const { delivery } = step.state;
  if (current.label !== 'respeak') delivery.spoken = current.result;
  settle(step);
}

export function settle(step: Step): void {
  const { delivery, isAttached } = step.state;
  const { current } = delivery;
  for (const name of ['confirm', 'floor', 'quiet', 'render']) step.clearTimer(name);
  releaseFloor(step, 'relay_tts');
  if (!isAttached && current && !current.isShown && current.label !== 'respeak')
    noteUnreceived(delivery, current.result);
  delivery.current = null;
}

/** `svc.result.respeak`: the last result once more, if there is one and nothing else is being delivered. */
export function respeak(step: Step): void {
  const { delivery } = step.state;
  if (!delivery.last || delivery.current || step.state.phase !== 'open') {
    step.emitSvc({ type: 'svc.result.respeak_unavailable' });
    return;
  }
  step.mark('voice.result.respeak', { run_id: delivery.last.runId });
  delivery.current = { ...newDelivery(step, delivery.last), label: 'respeak' };
  startRendering(step, delivery.current);
}
