import { describeError } from '../../errors.ts';
import { DeviceFailure } from '../device.ts';
import type { PhoneAnswer } from '../types.ts';
import { checkDeadline, destructiveGate } from './consent.ts';
import { type CommandCall, CommandFailure, firstRefusal, PASS, Refused, type SafetyGate } from './gate.ts';
import { type Refusal, refusalAnswer, withCode } from './refusals.ts';
import { autoDisableGate, ENTRY_GATES, STANDING_GATES } from './standing.ts';

/** Gate 9: unattended access wakes the screen, unless a PIN or password prevents it. */
const keyguardGate: SafetyGate = async (call) => {
  if (call.route.readOnly || !call.env.settings.get().unattended) return PASS;
  switch (await call.env.device.wake()) {
    case 'awake':
      return PASS;
    case 'locked':
      return { kind: 'keyguard-blocked' };
    case 'woken':
      // Gates 6 and 7 saw the keyguard, so they run again for the app behind it.
      return firstRefusal([...STANDING_GATES, destructiveGate], call);
  }
};

/** Gates 2 to 9 in the contract's order (contract 03 §8.1). Gate 1 is `findRoute`, gate 10 the handler. */
const GATES: readonly SafetyGate[] = [...STANDING_GATES, destructiveGate, autoDisableGate, keyguardGate];

export interface Outcome {
  answer: PhoneAnswer;
  /** As in `ActivityEntry`. */
  decision: string;
}

export const refusedOutcome = (refusal: Refusal): Outcome => ({
  answer: refusalAnswer(refusal),
  decision: refusal.kind,
});

/** Runs the gates, then the handler. Never rejects: every failure becomes an answer. */
export async function runPipeline(call: CommandCall): Promise<Outcome> {
  try {
    const verdict = await firstRefusal(call.route.ungated ? ENTRY_GATES : GATES, call);
    if (verdict.kind !== 'pass') return refusedOutcome(verdict);
    const deadline = checkDeadline(call);
    if (deadline.kind !== 'pass') return refusedOutcome(deadline);
    return executedOutcome(call, await call.route.run(call));
  } catch (error) {
    return failedOutcome(call, error);
  }
}

function executedOutcome(call: CommandCall, body: Record<string, unknown>): Outcome {
  // The relay's activity record reads this member to see that a person allowed it (contract 03 §6).
  if (call.consent === 'confirmed') {
    return { answer: { status: 200, result: { ...body, confirmed: true } }, decision: 'confirmed' };
  }
  return { answer: { status: 200, result: body }, decision: call.consent === 'trusted' ? 'trusted' : 'executed' };
}

const errorOutcome = (status: number, body: Record<string, unknown> & { error: string }): Outcome => ({
  answer: { status, result: body, error: body.error },
  decision: 'error',
});

function failedOutcome({ env, command }: CommandCall, error: unknown): Outcome {
  if (error instanceof Refused) return refusedOutcome(error.refusal);
  if (error instanceof CommandFailure) return errorOutcome(error.status, { ...error.body, error: error.message });
  if (error instanceof DeviceFailure) {
    const { code, permission } = error;
    const more = permission === undefined ? {} : { permission, required_permission: permission };
    return errorOutcome(code === 'service_unavailable' ? 503 : 400, withCode(error.message, code, more));
  }
  env.log.warn(`${command.method} ${command.path} failed: ${describeError(error)}`);
  return errorOutcome(500, { error: 'the phone could not carry out the command' });
}
