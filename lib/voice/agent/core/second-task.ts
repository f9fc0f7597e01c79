import type { JsonObject } from '../../../kit/json.ts';
import { trimmedText } from '../../../kit/json.ts';
import { drain } from './floor.ts';
import type { FastRun, Result, Run, RunEvent, Task, ToolOutcome } from './state.ts';
import type { Step } from './step.ts';

/** A task beside a living run: in the fast lane, silent for the client, or in the queue (contract 06 §6.7). */

/** Tasks that may wait. */
export const MAX_QUEUE = 3;
const MAX_PREVIEW = 120;

/** A second task: the fast lane beside a background run, else the queue. */
export function whileBusy(step: Step, task: Task, mode: Run['mode']): void {
  const { state, config } = step;
  const { run } = state;
  if (run.current?.phase !== 'background' || !config.promotes || mode === 'background' || run.fast) {
    enqueue(step, task);
    return;
  }
  run.fast = { key: step.next(), task, toolCount: 0, lastToolName: null };
  step.do({ type: 'startRun', key: run.fast.key, task, sessionId: run.fastSessionId, isExternal: false });
  step.setTimer('fast', config.promoteAfter);
}

function enqueue(step: Step, task: Task): void {
  const { run } = step.state;
  if (run.queue.length >= MAX_QUEUE)
    answerTask(step, task, { type: 'already_running', runId: run.current?.runId ?? '' });
  else {
    run.queue = [...run.queue, task];
    const position = run.queue.length;
    step.emitSvc({
      type: 'svc.run.queued',
      run_id: task.localId,
      queued_count: position,
      queue_position: position,
      transcript_preview: task.text.slice(0, MAX_PREVIEW).toWellFormed(),
    });
    answerTask(step, task, { type: 'queued', position });
  }
  drain(step, task.callId, 'svc_run_task', 'tool_result_summary');
}

export function fastEvent(step: Step, fast: FastRun, event: RunEvent): void {
  const { run } = step.state;
  if (event.type === 'end' && event.text.trim() !== '') {
    endFast(step);
    const { callId, localId: runId, text } = fast.task;
    const { key: runKey, toolCount, lastToolName } = fast;
    const base = { runKey, runId, request: text, answer: event.text, isOk: true, isBackground: false };
    answerTask(step, fast.task, outcomeOf({ ...base, callId, toolCount, lastToolName, isReoffered: false }, true));
    step.mark('voice.svc_fast_lane.completed', { call_id: callId });
    drain(step, callId, 'svc_run_task', 'tool_result_summary');
  } else if (event.type === 'end' || event.type === 'error') {
    step.mark('voice.svc_fast_lane.error', { call_id: fast.task.callId });
    endFast(step);
    enqueue(step, fast.task);
  } else if (event.type === 'frozen') {
    endFast(step);
    answerTask(step, fast.task, { type: 'failed', error: event.message, runId: fast.task.localId });
  } else if (event.type === 'svc.session.bound') {
    run.fastSessionId = trimmedText((event as JsonObject).session_id) || run.fastSessionId;
  } else if (event.type === 'svc.tool.started') {
    const name = trimmedText((event as JsonObject).tool_name);
    fast.lastToolName = name;
    if (isLong(step, name)) abandonFast(step);
  } else if (event.type === 'svc.tool.completed' || event.type === 'svc.tool.failed') fast.toolCount++;
}

/** The second task takes longer than the fast lane allows, so it is queued. */
export function abandonFast(step: Step): void {
  const { fast } = step.state.run;
  if (!fast) return;
  step.mark('voice.svc_fast_lane.abandoned', { call_id: fast.task.callId });
  endFast(step);
  step.do({ type: 'abortRun', key: fast.key });
  enqueue(step, fast.task);
}

export function endFast(step: Step): void {
  step.state.run.fast = null;
  step.clearTimer('fast');
}

export const isLong = ({ config }: Step, toolName: string): boolean =>
  config.longToolHints.some((hint) => toolName.toLowerCase().includes(hint));

/** The result of `svc_run_task` for the provider. */
export const answerTask = (step: Step, { callId }: Task, outcome: ToolOutcome): void =>
  step.do({ type: 'toolResult', callId, toolName: 'svc_run_task', outcome });

/** A result in the form for the function's caller. */
export const outcomeOf = (result: Result, isFast: boolean): ToolOutcome =>
  result.isOk ? { type: 'completed', result, isFast } : { type: 'failed', error: result.answer, runId: result.runId };
