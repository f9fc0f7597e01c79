import type { JsonObject } from '../../../kit/json.ts';
import { trimmedText } from '../../../kit/json.ts';
import { readToolCall } from '../text/tools.ts';
import { deliver } from './delivery.ts';
import { showText } from './fallback.ts';
import { drain } from './floor.ts';
import { emitProgress, progress } from './progress.ts';
import { request } from './response.ts';
import { answerTask, endFast, fastEvent, isLong, MAX_QUEUE, outcomeOf, whileBusy } from './second-task.ts';
import type { Result, Run, RunEvent, Task, ToolOutcome } from './state.ts';
import type { Signal, Step } from './step.ts';

/** Region R: the functions that the provider calls, the run slot, its queue and the fast lane (contract 06 §6). */

/** Milliseconds that the next task waits for the delivery of the previous result to start. */
const QUEUE_WAIT = 10_000;
const MAX_ID = 200;
const MAX_ERROR = 240;
export const NO_ANSWER = 'the run ended without an answer';

type Call = Extract<Signal, { type: 'call' }>;

/** A function call of the provider. */
export function call(step: Step, { callId, name, args, isDelivery, hasSpoken }: Call): void {
  const { run, delivery } = step.state;
  const asked = readToolCall(name, args);
  const answer = (outcome: ToolOutcome) => step.do({ type: 'toolResult', callId, toolName: name, outcome });
  if (isDelivery && delivery.current) {
    // The response that should speak the result requests it instead.
    answer(outcomeOf(delivery.current.result, false));
    return;
  }
  switch (asked.name) {
    case 'svc_run_task': {
      const { text, profile, sessionId, mode } = asked;
      const task = { callId, localId: `task-${step.next()}`, text, profile, sessionId };
      if (run.current) whileBusy(step, task, mode);
      else lead(step, task, mode, hasSpoken);
      return;
    }
    case 'svc_get_status':
      answer({ type: 'status', facts: run.current ?? run.last, queue: run.queue });
      break;
    case 'svc_cancel': {
      const runId = run.current?.runId ?? run.last?.runId ?? null;
      const hadRun = run.current !== null;
      cancelRuns(step);
      answer({ type: 'cancel', runId, hadRun });
      break;
    }
    case 'svc_confirm':
      forwardConfirmation(step, asked.confirmationId, asked.answer);
      answer({ type: 'confirmed', confirmationId: asked.confirmationId });
      break;
    case 'refused':
      answer({ type: 'refused', result: asked.result });
  }
  drain(step, callId, name, 'tool_result_summary');
}

/** Starts a run: the phone plays the speech so far, then announces the check, then the agent is called. */
function lead(step: Step, task: Task, mode: Run['mode'], hasCallerSpoken: boolean): void {
  const run = newRun(step, task, mode);
  run.hasCallerSpoken = hasCallerSpoken;
  step.state.run.current = run;
  if (hasCallerSpoken) drain(step, task.callId, 'svc_run_task', 'pre_svc_ack');
  else announceCheck(step, run);
}

const newRun = (step: Step, task: Task, mode: Run['mode']): Run => ({
  runId: task.localId,
  status: 'running',
  confirmationId: null,
  activeToolName: null,
  lastToolName: null,
  lastToolStatus: null,
  lastToolMessage: '',
  toolCount: 0,
  key: step.next(),
  task,
  mode,
  phase: 'draining',
  tier: 'foreground',
  origin: 'provider_tool_call',
  hasCallerSpoken: false,
  startedAt: step.at,
  isDrafting: false,
  progress: null,
  announced: 0,
  isNamed: false,
  spokenStatus: null,
  spokenAt: 0,
});

export function drainedForRun(step: Step, callId: string): void {
  const { current } = step.state.run;
  if (current?.phase === 'draining' && current.task.callId === callId) announceCheck(step, current);
}

function announceCheck(step: Step, run: Run): void {
  run.phase = 'lead';
  run.startedAt = step.at;
  const [status, message] = ['starting', 'Checking with the agent'];
  emitProgress(step, run, { status, message, key: 'run:checking_svc', shouldSpeak: false });
  step.setTimer('lead', step.config.runLead);
}

export function leadElapsed(step: Step): void {
  const { current } = step.state.run;
  if (current?.phase !== 'lead') return;
  current.phase = 'foreground';
  startStream(step, current);
  if (current.mode === 'background') promote(step, 'durable');
  else if (step.config.promotes) step.setTimer('grace', step.config.promoteAfter);
}

function startStream(step: Step, { key, task }: Run): void {
  const { state } = step;
  if (task.sessionId !== null && task.sessionId !== state.chatSessionId) {
    state.chatSessionId = task.sessionId;
    state.isChatSessionExternal = true;
  }
  const { chatSessionId: sessionId, isChatSessionExternal: isExternal } = state;
  step.do({ type: 'startRun', key, task, sessionId, isExternal });
  step.setTimer('heartbeat', step.config.progressInterval);
}

/** Starts a run that no provider requested, at once. */
export function startForeground(step: Step, text: string): void {
  const task = { callId: '', localId: `task-${step.next()}`, text, profile: null, sessionId: null };
  const run = { ...newRun(step, task, 'foreground'), phase: 'foreground' as const };
  step.state.run.current = run;
  startStream(step, run);
}

/** Ends the run that `startForeground` began, with its result. */
export function endForeground(step: Step, run: Run, answer: string, isOk: boolean): Result {
  const result = resultOf(run, answer, isOk, false);
  end(step, run, isOk ? 'completed' : 'error');
  return result;
}

/** Moves the run to the background, and lets the provider continue without its result. */
export function promote(step: Step, tier: 'promoted' | 'durable'): void {
  const { current } = step.state.run;
  if (current?.phase !== 'foreground') return;
  const spoken_handoff = speaksHandoff(step) && !current.hasCallerSpoken;
  toBackground(step, current, tier, spoken_handoff);
  answerTask(step, current.task, { type: 'promoted' });
  if (spoken_handoff) request(step, { kind: 'handoff', prompt: { type: 'handoff' } });
}

const speaksHandoff = ({ config }: Step): boolean =>
  config.spokenHandoff && !config.isFinalAnswerOnly && config.resultDelivery !== 'visual_only';

function toBackground(step: Step, run: Run, tier: 'promoted' | 'durable', spoken_handoff: boolean): void {
  const { config, state } = step;
  run.phase = 'background';
  run.tier = tier;
  step.clearTimer('grace');
  step.clearTimer('quick');
  step.setTimer('cap', config.backgroundRunMax);
  step.emitSvc({
    type: 'svc.run.promoted',
    run_id: run.runId,
    tier,
    promote_after_ms: config.promoteAfter,
    spoken_handoff,
    provider_acknowledged: run.hasCallerSpoken,
    result_delivery: config.resultDelivery,
    call_id: run.task.callId,
    queued_count: state.run.queue.length,
    origin: run.origin,
  });
  const type = run.origin === 'queued' ? 'voice.svc_run.queued_started' : 'voice.svc_run.promoted';
  step.mark(type, { run_id: run.runId, tier });
}

/** Starts the next task of the queue once the previous result has settled. */
export function advanceRuns(step: Step): void {
  const { run, delivery, phase } = step.state;
  const [task, ...others] = run.queue;
  if (run.current || phase === 'closing' || !task) return;
  if (phase === 'open' && !run.isQueueDue && (delivery.current || delivery.backlog.length > 0)) return;
  run.queue = others;
  run.isQueueDue = false;
  step.clearTimer('queue');
  const next = newRun(step, task, 'background');
  next.origin = 'queued';
  run.current = next;
  startStream(step, next);
  const speaks = phase === 'open' && speaksHandoff(step);
  toBackground(step, next, 'durable', speaks);
  if (speaks) request(step, { kind: 'handoff', prompt: { type: 'transition' } });
}

export function queueTimedOut(step: Step): void {
  step.state.run.isQueueDue = true;
}

/** An event of the agent's stream. Events of a finished run have another key and are ignored. */
export function runEvent(step: Step, key: number, event: RunEvent): void {
  const { current, fast } = step.state.run;
  if (current?.key === key) slotEvent(step, current, event);
  else if (fast?.key === key) fastEvent(step, fast, event);
}

function slotEvent(step: Step, run: Run, event: RunEvent): void {
  switch (event.type) {
    case 'answer':
      if (run.isDrafting) break;
      run.isDrafting = true;
      progress(step, run);
      break;
    case 'end':
      ended(step, run, event.text);
      break;
    case 'error':
      failed(step, run, event);
      break;
    case 'frozen':
      frozen(step, run, event.message);
      break;
    default:
      svcEvent(step, run, event as JsonObject & { type: string });
  }
}

function svcEvent(step: Step, run: Run, event: JsonObject & { type: string }): void {
  const { state } = step;
  const runId = trimmedText(event.run_id);
  const isNews = runId !== '' && !run.isNamed;
  if (isNews) {
    run.runId = runId.slice(0, MAX_ID);
    run.isNamed = true;
  }
  if (event.type === 'svc.session.bound') {
    state.chatSessionId = trimmedText(event.session_id) || state.chatSessionId;
    state.isChatSessionExternal = false;
  } else if (event.type === 'svc.run.started') {
    // Repeated at most once, for an id that came late.
    if (run.announced > 0 && !(run.announced === 1 && isNews)) return;
    run.announced++;
  } else if (event.type === 'svc.confirmation.requested') {
    run.status = 'waiting_for_confirmation';
    run.confirmationId = trimmedText(event.confirmation_id).slice(0, MAX_ID);
  } else toolEvent(step, run, event);
  const confirmation = event.type === 'svc.confirmation.requested' && { confirmation_id: run.confirmationId };
  step.emitSvc({ ...event, ...confirmation, ...(run.isNamed && { run_id: run.runId }) });
}

function toolEvent(step: Step, run: Run, { type, tool_name, message }: JsonObject): void {
  const name = trimmedText(tool_name);
  const text = trimmedText(message);
  if (type === 'svc.tool.started') {
    run.activeToolName = name;
    run.lastToolName = name;
    run.lastToolStatus = 'running';
    run.progress = null;
    hastenPromotion(step, run, name);
  } else if (type === 'svc.tool.delta') {
    // Drafting text has the name of no tool that was started.
    if (name === run.activeToolName) run.progress = text;
    return;
  } else if (type === 'svc.tool.completed' || type === 'svc.tool.failed') {
    run.activeToolName = null;
    run.lastToolName = name;
    run.lastToolStatus = type === 'svc.tool.completed' ? 'done' : 'failed';
    run.toolCount++;
    run.progress = null;
  } else return;
  run.lastToolMessage = text;
}

/** A slow tool does not keep the user waiting for the whole grace time. */
function hastenPromotion(step: Step, run: Run, toolName: string): void {
  const { config } = step;
  if (!config.promotes || run.phase !== 'foreground' || step.isSet('quick') || !isLong(step, toolName)) return;
  step.setTimer('quick', Math.min(config.longToolQuickFinish, config.promoteAfter));
}

function ended(step: Step, run: Run, text: string): void {
  if (text.trim() === '') failed(step, run, { message: NO_ANSWER });
  else deliver(step, complete(step, run, 'completed', text));
}

function failed(step: Step, run: Run, { message, code }: { message: string; code?: string }): void {
  const result = complete(step, run, 'error', message.slice(0, MAX_ERROR).toWellFormed());
  if (result.isBackground) showText(step, result);
  // The client ends the session at this error, so nobody is left to deliver to.
  else if (code !== undefined) step.error(result.answer, { error_code: code, call_id: result.callId });
  else deliver(step, result);
}

/** The relay was frozen: ends the run and the queue, and has that said once. */
function frozen(step: Step, run: Run, message: string): void {
  step.state.run.queue = [];
  step.clearTimer('queue');
  deliver(step, complete(step, run, 'cancelled', message));
}

/** A background run has reached its maximum duration. */
export function capElapsed(step: Step): void {
  const { current } = step.state.run;
  if (current?.phase !== 'background') return;
  step.do({ type: 'abortRun', key: current.key });
  showText(step, complete(step, current, 'timeout', 'background run timed out'));
}

/** Ends a run, and has the client and the provider know. `answer` is its error unless it has completed. */
function complete(step: Step, run: Run, status: EndStatus, answer: string): Result {
  const result = resultOf(run, answer, status === 'completed', run.phase === 'background');
  end(step, run, status);
  if (!result.isBackground) answerTask(step, run.task, outcomeOf(result, false));
  else {
    step.emitSvc({
      type: 'svc.run.background_completed',
      run_id: run.runId,
      ok: result.isOk,
      tool_count: run.toolCount,
      queued_count: step.state.run.queue.length,
      ...(!result.isOk && { error: answer }),
    });
  }
  return result;
}

type EndStatus = 'completed' | 'error' | 'cancelled' | 'timeout';

const resultOf = (run: Run, answer: string, isOk: boolean, isBackground: boolean): Result => ({
  runKey: run.key,
  runId: run.runId,
  request: run.task.text,
  answer,
  isOk,
  isBackground,
  callId: run.task.callId,
  toolCount: run.toolCount,
  lastToolName: run.lastToolName,
  isReoffered: false,
});

/** Reports the end of a run, and frees the slot. */
function end(step: Step, run: Run, status: EndStatus): void {
  const { state, config } = step;
  const type = status === 'cancelled' || status === 'timeout' ? 'svc.run.cancelled' : 'svc.run.completed';
  step.emitSvc({ type, run_id: run.runId });
  for (const name of ['lead', 'heartbeat', 'grace', 'quick', 'cap']) step.clearTimer(name);
  run.status = status;
  run.confirmationId = null;
  run.activeToolName = null;
  state.run.last = run;
  state.run.current = null;
  state.run.isQueueDue = false;
  if (state.run.queue.length > 0) step.setTimer('queue', QUEUE_WAIT + config.deliveryConfirm);
}

/** Cancels the run, the fast lane and the whole queue. A finished run is unchanged. */
export function cancelRuns(step: Step): void {
  const { run } = step.state;
  run.queue = [];
  run.isQueueDue = false;
  step.clearTimer('queue');
  const { fast, current } = run;
  if (fast) {
    endFast(step);
    step.do({ type: 'abortRun', key: fast.key });
    answerTask(step, fast.task, { type: 'cancelled', runId: current?.runId ?? fast.task.localId });
  }
  if (!current) return;
  step.do({ type: 'abortRun', key: current.key });
  end(step, current, 'cancelled');
  if (current.phase !== 'background') answerTask(step, current.task, { type: 'cancelled', runId: current.runId });
}

/** `svc.confirm` of the client. Long members are cut, like the announced id was, since an error ends the session. */
export function confirm(step: Step, { confirmation_id, answer }: JsonObject): void {
  const id = trimmedText(confirmation_id).slice(0, MAX_ID);
  const decision = trimmedText(answer).slice(0, MAX_ID);
  if (id === '') step.error('svc.confirm missing confirmation_id');
  else if (decision === '') step.error('svc.confirm missing answer');
  else forwardConfirmation(step, id, decision);
}

function forwardConfirmation(step: Step, confirmationId: string, answer: string): void {
  const { current } = step.state.run;
  step.emitSvc({ type: 'svc.confirmation.forwarded', confirmation_id: confirmationId, answer });
  if (!current) return;
  if (current.isNamed) step.do({ type: 'approve', runId: current.runId, confirmationId, answer });
  if (current.confirmationId === null) return;
  current.confirmationId = null;
  if (current.status === 'waiting_for_confirmation') current.status = 'running';
}

/** The session ends without its provider: runs continue in the background. False if none does. */
export function detachRuns(step: Step): boolean {
  const { run } = step.state;
  const { fast, current } = run;
  if (fast) {
    endFast(step);
    step.do({ type: 'abortRun', key: fast.key });
    run.queue = [...run.queue, fast.task].slice(0, MAX_QUEUE);
  }
  if (current && current.phase !== 'background') {
    const hasBegun = current.phase === 'foreground';
    step.clearTimer('lead');
    if (!hasBegun) startStream(step, current);
    toBackground(step, current, 'durable', false);
  }
  if (current) current.tier = 'durable';
  step.clearTimer('heartbeat');
  step.clearTimer('queue');
  return current !== null || run.queue.length > 0;
}
