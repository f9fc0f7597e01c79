import { describeValue, type JsonObject } from '../../../kit/json.ts';
import { visibleLine } from '../../../kit/text.ts';
import type { ProviderEvent } from '../provider/provider.ts';
import { added } from '../usage.ts';
import * as delivery from './delivery.ts';
import * as fallback from './fallback.ts';
import { drained, drainTimedOut, dropDrains, releaseFloor } from './floor.ts';
import * as link from './link.ts';
import { beat } from './progress.ts';
import * as response from './response.ts';
import * as run from './run.ts';
import { abandonFast } from './second-task.ts';
import type { Effect, Ending, Event, State } from './state.ts';
import { dispatch, type Handlers, type Signal, Step } from './step.ts';
import { applyStub } from './stub.ts';
import * as turn from './turn.ts';

const STUB = 'stub';
const MAX_TYPE = 64;
/** Minimum milliseconds that a session without its phone waits after a run has ended. */
const MIN_DETACHED = 30_000;

/**
 * Applies one event (contract 06 §8). Pure and total: an event that does not apply to the state changes nothing. The effects
 * must be performed in order; `close` is the last effect of a session.
 */
export function reduce(state: State, event: Event): [State, Effect[]] {
  if (state.phase === 'closed') return [state, []];
  const step = new Step(state, event);
  const isDone = step.config.provider === STUB && applyStub(step, event);
  if (!isDone) apply(step, event);
  advance(step);
  report(step);
  return [step.state, step.effects];
}

/** Events that apply after the client's socket has closed. */
const OUTLIVING = new Set<Event['type']>(['run', 'timer', 'ended']);

function apply(step: Step, event: Event): void {
  if (step.state.phase === 'outliving' && !OUTLIVING.has(event.type)) return;
  dispatch(EVENTS, step, event);
}

const EVENTS: Handlers<Event> = {
  client: (step, { message }) => clientMessage(step, message),
  provider: (step, { event }) => providerEvent(step, event),
  dialled: link.dialled,
  dialFailed: (step, { message }) => link.dialFailed(step, message),
  providerRefused: (step, { what }) => providerRefused(step, what),
  run: (step, { key, event }) => run.runEvent(step, key, event),
  rendered: (step, { id, pcm, sampleRate }) => fallback.rendered(step, id, pcm, sampleRate),
  renderEnded(step, { id, error, done }) {
    if (error !== undefined) step.mark('voice.realtime_agent.render_failed', { message: error });
    fallback.renderEnded(step, id, done);
  },
  timer(step, { name, generation }) {
    if (step.takeTimer(name, generation)) timer(step, name);
  },
  attached({ state }) {
    state.isAttached = true;
    state.detachedAt = null;
    state.delivery.unreceived = [];
  },
  detached({ state, at }) {
    state.isAttached = false;
    state.detachedAt = at;
  },
  ended: finish,
};

/** Handles signals first, then advances everything until nothing moves. */
function advance(step: Step): void {
  do {
    for (let signal = step.signals.shift(); signal; signal = step.signals.shift()) dispatch(SIGNALS, step, signal);
    if (step.state.phase === 'closed') return;
    delivery.advanceDelivery(step);
    run.advanceRuns(step);
    if (step.state.phase === 'open') {
      advanceLink(step);
      response.advanceQueue(step);
    }
  } while (step.signals.length > 0);
  if (step.state.phase === 'outliving') {
    step.clearTimer('heartbeat');
    handOver(step);
    if (!step.state.run.current) finish(step);
    return;
  }
  const { phase, ending, delivery: due, isAttached } = step.state;
  const isDone = !isAttached || (!due.current && due.backlog.length === 0);
  if (phase === 'closing' && ending && isDone) close(step, ending);
}

/** Dials a lost provider on demand, and renews one that will end soon while nobody speaks. */
function advanceLink(step: Step): void {
  const { turn: input, delivery: due, floor, link: line } = step.state;
  if (line.phase === 'asleep' && isActive(step)) link.reconnect(step, 'idle');
  const isDelivering = due.current !== null && due.current.phase !== 'waiting_floor' && due.current.phase !== 'held';
  const isQuiet = input.input === 'idle' && !turn.isTurnActive(step) && !isDelivering && floor.speaker === 'free';
  if (line.phase !== 'up' || !line.isRenewalDue || !isQuiet) return;
  step.do({ type: 'hangUp' });
  link.reconnect(step, 'session_limit');
}

const SIGNALS: Handlers<Signal> = {
  userTurn(step) {
    step.do({ type: 'truncate', isCertain: false });
    delivery.preempt(step);
    turn.requestAnswer(step);
  },
  noise,
  call: run.call,
  deliveryText: (step, { text }) => delivery.deliveryText(step, text),
  deliveryAudio: (step, { bytes }) => delivery.deliveryAudio(step, bytes),
  deliveryRestarted: delivery.deliveryRestarted,
  deliveryEnded: delivery.deliveryEnded,
  deliveryCancelled: delivery.deliveryCancelled,
  deliveryRefused: delivery.deliveryRefused,
  drained(step, { drain }) {
    if (drain.reason === 'pre_svc_ack') run.drainedForRun(step, drain.callId);
    else if (!delivery.drainedForDelivery(step, drain)) response.request(step, { kind: 'tool_followup', prompt: null });
  },
};

/**
 * An utterance without words cancels no answer. If it has cut something else, it is answered, so that no silence remains;
 * while idle, it requests no answer (contract 06 §6.9).
 */
function noise(step: Step): void {
  const { state, playback } = step;
  const wasStopped = !playback.isAllPlayed && playback.played <= state.turn.playedBefore;
  if (wasStopped && delivery.noteStopped(step)) step.do({ type: 'truncate', isCertain: true });
  if (delivery.reoffer(step)) return;
  const phase = state.run.current?.phase;
  const isRunning = phase !== undefined && phase !== 'background';
  const isAnswerDue = isRunning || state.delivery.current !== null || (state.delivery.spoken && !playback.isAllPlayed);
  if (!isAnswerDue && (wasStopped || state.turn.isCut)) turn.requestAnswer(step);
}

function clientMessage(step: Step, message: JsonObject): void {
  const { type } = message;
  // Without a provider, only the last answer is still pending.
  if (step.state.phase === 'closing' && type !== 'response.cancel') return;
  const handler = typeof type === 'string' ? CLIENT_MESSAGES.get(type) : undefined;
  if (handler) handler(step, message);
  else step.error(`unsupported message type: ${visibleLine(describeValue(type)).slice(0, MAX_TYPE)}`);
}

const CLIENT_MESSAGES = new Map<string, (step: Step, message: JsonObject) => void>([
  ['input_audio.append', turn.append],
  ['input_audio.commit', turn.commit],
  ['input_audio.clear', turn.clear],
  ['response.create', turn.textTurn],
  ['response.cancel', cancel],
  ['playback.drained', drained],
  ['svc.confirm', run.confirm],
  ['svc.result.respeak', fallback.respeak],
]);

/**
 * `response.cancel` of the client stops the run and the speech (contract 06 §6.6). The end of the run precedes that of the
 * response, which ends the client's turn.
 */
function cancel(step: Step): void {
  const id = response.shownId(step) ?? fallback.renderedId(step);
  const runId = step.state.run.current?.runId;
  const { state } = step;
  const isAtWork = state.turn.active !== null || state.turn.queue.length > 0 || state.delivery.current !== null;
  if (isAtWork || runId !== undefined || !step.playback.isAllPlayed) state.turn.isCut = true;
  turn.cancelTurn(step);
  run.cancelRuns(step);
  step.emit(response.doneEvent(step, id, { cancelled: true, ...(runId !== undefined && { run_id: runId }) }));
  step.do({ type: 'truncate', isCertain: !step.playback.isAllPlayed });
  delivery.cancelDelivery(step);
}

function providerEvent(step: Step, event: ProviderEvent): void {
  if (step.state.phase !== 'open') return;
  switch (event.type) {
    case 'ready':
      if (event.model !== undefined && event.model !== step.config.model)
        step.mark('voice.realtime_agent.provider_model_resolved', { model: event.model });
      if (event.expiresIn !== undefined) link.planRenewal(step, event.expiresIn);
      break;
    case 'transcriptDelta':
      step.emit({ type: 'voice.input_transcript.delta', delta: event.text });
      break;
    case 'transcriptFinal':
      turn.transcriptFinal(step, event.text);
      break;
    case 'transcriptFailed':
      turn.transcriptFailed(step);
      break;
    case 'usage':
      step.state.usage = added(step.state.usage, event.usage);
      break;
    case 'notice':
      step.mark('voice.realtime_agent.provider_notice', { message: event.message });
      if (/active response/i.test(event.message) && !/no active/i.test(event.message)) response.refusedForNow(step);
      break;
    case 'error':
      // A refused delivery falls back, which is not an error for the client.
      if (response.refused(step)) step.mark('voice.realtime_agent.provider_notice', { message: event.message });
      else step.error(event.message, { provider: step.config.provider, ...response.adviceOf(event) });
      break;
    case 'settingsRefused':
      settingsRefused(step, event);
      break;
    case 'closed':
      providerLost(step, event);
      break;
    default:
      response.responseEvent(step, event);
  }
}

/** A model without its instructions and tools never talks to the owner (contract 06 §6.9). */
function settingsRefused(step: Step, { setting, message }: { setting: string; message: string }): void {
  const id = response.shownId(step);
  if (id !== null) step.emit(response.doneEvent(step, id, { cancelled: true }));
  const why = 'provider_settings_refused';
  const error = { type: 'voice.error', message, provider: step.config.provider, error_code: why, setting };
  close(step, { code: 1011, reason: 'provider refused settings', why, error, keepsRuns: true });
}

/** The connection has ended. If that was because of its age or inactivity, an idle session ends too. */
function providerLost(step: Step, { idle, message = 'the realtime provider disconnected' }: Closed): void {
  const { link: line } = step.state;
  if (idle) step.mark('voice.realtime_agent.provider_idle_close');
  if (line.phase === 'dialling') link.dialFailed(step, message);
  if (line.phase !== 'up') return;
  line.message = message;
  if (isActive(step)) link.reconnect(step, idle ? 'session_expired' : 'provider_disconnected');
  else if (idle) close(step, { code: 1000, reason: 'provider idle timeout', why: 'provider_idle_timeout' });
  else link.sleep(step);
}

type Closed = Extract<ProviderEvent, { type: 'closed' }>;

/** No connection was established in time. */
const gaveUp = (step: Step): void => losing(step, step.state.link.message, 'provider_disconnected');

function providerRefused(step: Step, what: 'toolResult' | 'request'): void {
  if (step.state.phase !== 'open') return;
  step.mark('voice.realtime_agent.summary_send_failed', { what });
  if (what === 'toolResult')
    losing(step, 'the realtime provider did not take a result', 'provider_tool_result_send_failed');
  else losing(step, 'the realtime provider did not take a request', 'provider_response_request_failed');
}

const isActive = (step: Step): boolean => {
  const { run: runs, delivery: due } = step.state;
  const isWorking = runs.current !== null || runs.fast !== null || runs.queue.length > 0;
  return isWorking || due.current !== null || due.backlog.length > 0 || turn.isTurnActive(step);
};

/** The provider is lost for good: a pending answer is rendered, then the session ends. */
function losing(step: Step, message: string, error_code: string): void {
  const { state } = step;
  const { provider } = step.config;
  const { active } = state.turn;
  const id = response.shownId(step);
  if (active?.id && id === null) step.do({ type: 'discard', hold: active.id });
  state.turn.active = null;
  state.turn.queue = [];
  dropDrains(step);
  releaseFloor(step, 'provider');
  if (id !== null) step.emit(response.doneEvent(step, id, { cancelled: true }));
  delivery.lostWhileSpeaking(step);
  link.endLink(step);
  for (const name of ['transcript', 'response', 'suspect']) step.clearTimer(name);
  const error = { type: 'voice.error', message, provider, error_code };
  state.phase = 'closing';
  state.ending = { code: 1000, reason: 'provider disconnected', why: error_code, error, keepsRuns: true };
}

/** Closes the session. With `keepsRuns`, running work continues without it, and its answers go to the phone as messages. */
function close(step: Step, { code, reason, why, error, keepsRuns = false }: Ending): void {
  const { state } = step;
  const outlives = keepsRuns && run.detachRuns(step);
  if (outlives) {
    link.endLink(step);
    handOver(step);
    for (const name of Object.keys(state.timers)) if (name !== 'cap') step.clearTimer(name);
    state.isAttached = false;
    state.phase = 'outliving';
  } else finish(step);
  if (error) step.emit(error);
  step.do({ type: 'close', code, reason, why });
}

function finish(step: Step): void {
  run.cancelRuns(step);
  handOver(step);
  step.clearAllTimers();
  step.state.phase = 'closed';
}

/** Sends unreceived answers to the phone as messages. */
function handOver(step: Step): void {
  const { state } = step;
  const { current } = state.delivery;
  if (current?.phase === 'fallback') step.do({ type: 'stopRender', id: current.generation });
  for (const { answer: text, runId } of delivery.undelivered(step)) {
    step.mark('voice.realtime_agent.result_pushed_proactive', { run_id: runId });
    step.do({ type: 'phoneMessage', text, runId, chatSessionId: state.chatSessionId });
  }
  state.delivery = { ...state.delivery, current: null, backlog: [], unreceived: [] };
}

function timer(step: Step, name: string): void {
  if (name.startsWith('drain:')) {
    drainTimedOut(step, Number(name.slice('drain:'.length)));
    return;
  }
  TIMERS[name]?.(step);
}

const TIMERS: Readonly<Record<string, (step: Step) => void>> = {
  transcript: turn.transcriptTimedOut,
  response: response.responseTimedOut,
  suspect: response.settleSuspect,
  dial: link.dialDue,
  gap: gaveUp,
  renew: (step) => {
    step.state.link.isRenewalDue = true;
  },
  floor: delivery.floorTimedOut,
  // Checked again after every event.
  quiet: () => {},
  confirm: delivery.confirmTimedOut,
  render: fallback.renderTimedOut,
  lead: run.leadElapsed,
  grace: (step) => run.promote(step, 'promoted'),
  quick: (step) => run.promote(step, 'promoted'),
  cap: run.capElapsed,
  heartbeat: beat,
  fast: abandonFast,
  queue: run.queueTimedOut,
};

/** Reports the session's activity to the socket: how long to wait for its phone, and what may end it. */
function report(step: Step): void {
  const { state, config, at } = step;
  if (state.phase === 'closed' || state.phase === 'outliving') return;
  const { current, queue } = state.run;
  const phase = state.delivery.current?.phase;
  const isBusy = current?.phase === 'background' || queue.length > 0;
  const isAlive = current !== null || queue.length > 0 || (phase !== undefined && phase !== 'held');
  if (isBusy !== state.reported.isBusy) step.do({ type: 'activity', isBusy });
  if (isAlive !== state.reported.isAlive) {
    const { detachedAt } = state;
    const longest = Math.max(config.backgroundDetachedMax, config.resumeTtl);
    const shortest = detachedAt === null ? config.resumeTtl : Math.max(MIN_DETACHED, config.resumeTtl);
    const left = longest - (at - (detachedAt ?? at));
    step.do({ type: 'resumeTtl', ttl: isAlive ? Math.max(1000, left) : shortest });
  }
  state.reported = { isBusy, isAlive };
}
