import type { Drain } from './state.ts';
import type { Step } from './step.ts';

/** Region F: one speaker at a time, and waits until the phone has played everything sent (contract 06 §6.3, §6.4). */

const MAX_DRAINS = 8;

/** Gives the floor to the provider. False while the relay speaks, in which case the provider's audio is dropped. */
export function takeFloor({ state }: Step): boolean {
  if (state.floor.speaker === 'relay_tts') return false;
  state.floor.speaker = 'provider';
  return true;
}

export function releaseFloor({ state }: Step, speaker: 'provider' | 'relay_tts'): void {
  if (state.floor.speaker === speaker) state.floor.speaker = 'free';
}

/** `floor` of `svc.run.progress`. */
export function floorLabel({ state }: Step): 'idle' | 'provider_speaking' | 'result_pending' {
  if (state.floor.speaker !== 'free') return 'provider_speaking';
  return state.delivery.current || state.delivery.backlog.length > 0 ? 'result_pending' : 'idle';
}

const timerOf = ({ id }: Drain): string => `drain:${id}`;

/** Asks the phone to report when it has played everything. Raises `drained` then, or after `playbackDrain`. */
export function drain(step: Step, callId: string, toolName: string, reason: Drain['reason']): void {
  const { state, config } = step;
  const wait: Drain = { id: step.next(), callId, toolName, reason };
  if (state.floor.drains.length >= MAX_DRAINS) {
    step.raise({ type: 'drained', drain: wait });
    return;
  }
  state.floor.drains = [...state.floor.drains, wait];
  step.emit({
    type: 'voice.playback_drain.requested',
    call_id: callId,
    tool_name: toolName,
    reason,
    timeout_ms: config.playbackDrain,
  });
  step.setTimer(timerOf(wait), config.playbackDrain);
}

/** `playback.drained` releases every wait. */
export function drained(step: Step): void {
  for (const wait of dropDrains(step)) {
    step.mark('voice.playback_drain.completed', { call_id: wait.callId, reason: wait.reason });
    step.raise({ type: 'drained', drain: wait });
  }
}

export function drainTimedOut(step: Step, id: number): void {
  const { floor } = step.state;
  const wait = floor.drains.find((other) => other.id === id);
  if (!wait) return;
  floor.drains = floor.drains.filter((other) => other !== wait);
  const { callId, reason } = wait;
  step.emit({
    type: 'voice.playback_drain.timeout',
    call_id: callId,
    reason,
    timeout_ms: step.config.playbackDrain,
  });
  step.raise({ type: 'drained', drain: wait });
}

/** Ends the matching waits without their continuations. Returns them. */
export function dropDrains(step: Step, matches: (drain: Drain) => boolean = () => true): readonly Drain[] {
  const { floor } = step.state;
  const matching = floor.drains.filter(matches);
  floor.drains = floor.drains.filter((wait) => !matching.includes(wait));
  for (const wait of matching) step.clearTimer(timerOf(wait));
  return matching;
}
