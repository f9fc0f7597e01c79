import { floorLabel } from './floor.ts';
import type { Run } from './state.ts';
import type { Step } from './step.ts';

/** Progress reports of a run while it is alive (contract 06 §6.4). */

/** The heartbeat of the run. */
export function beat(step: Step): void {
  const { current } = step.state.run;
  if (!current) return;
  progress(step, current);
  step.setTimer('heartbeat', step.config.progressInterval);
}

export function progress(step: Step, run: Run): void {
  const { config, state, at } = step;
  const { status, message, key } = statusOf(run);
  const coarse = key.startsWith('progress:') ? 'progress' : key;
  const isDue = run.spokenStatus !== coarse || at - run.spokenAt >= config.progressRepeat;
  const shouldSpeak =
    config.progressSpokenAfter > 0 &&
    !config.isFinalAnswerOnly &&
    at - run.startedAt >= config.progressSpokenAfter &&
    !run.isDrafting &&
    state.floor.speaker === 'free' &&
    isDue;
  if (shouldSpeak) {
    run.spokenStatus = coarse;
    run.spokenAt = at;
  }
  emitProgress(step, run, { status, message, key, shouldSpeak });
}

interface Progress {
  status: string;
  message: string;
  key: string;
  shouldSpeak?: boolean;
}

function statusOf(run: Run): Progress {
  const { activeToolName: active, lastToolName: last, lastToolStatus, lastToolMessage, progress: text } = run;
  if (run.confirmationId !== null)
    return { status: 'waiting_for_confirmation', message: 'Waiting for a confirmation', key: 'confirmation' };
  if (run.isDrafting) return { status: 'running', message: 'Writing the answer', key: 'run:drafting' };
  if (active !== null && text) return { status: 'running', message: text, key: `progress:${text}` };
  if (active !== null) return { status: 'running', message: lastToolMessage, key: `tool:${active}:running` };
  if (last !== null) return { status: 'running', message: lastToolMessage, key: `tool:${last}:${lastToolStatus}` };
  return { status: 'running', message: 'Waiting for the agent', key: 'run:waiting_svc' };
}

export function emitProgress(step: Step, run: Run, { status, message, key, shouldSpeak }: Progress): void {
  step.emitSvc({
    type: 'svc.run.progress',
    status,
    message,
    status_key: key,
    should_speak: shouldSpeak,
    floor: floorLabel(step),
    tier: run.tier,
    run_id: run.isNamed ? run.runId : null,
    // Clients do not accept null for these.
    ...(run.activeToolName !== null && { active_tool_name: run.activeToolName }),
    ...(run.lastToolName !== null && { last_tool_name: run.lastToolName }),
    completed_tool_count: run.toolCount,
    elapsed_ms: Math.max(0, Math.round(step.at - run.startedAt)),
  });
}
