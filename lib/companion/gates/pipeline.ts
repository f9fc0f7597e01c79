import { describeError } from '../../errors.ts';
import { DeviceFailure } from '../device.ts';
import type { PhoneAnswer } from '../types.ts';
import { refusalAnswer } from './answers.ts';
import { autoDisableGate } from './auto-disable.ts';
import { inTime } from './consent.ts';
import { destructiveGate } from './destructive.ts';
import { type Call, CommandFailure, type Refusal, Refused } from './gate.ts';
import { keyguardGate } from './keyguard.ts';
import { ENTRY, firstRefusal, STANDING } from './standing.ts';

/** Gates 2 to 9 in the contract's order (contract 03 §8.1); gate 1 found the route, gate 10 is its handler. */
export const GATES = [...STANDING, destructiveGate, autoDisableGate, keyguardGate] as const;

export interface Outcome {
  answer: PhoneAnswer;
  /** As in `ActivityEntry`. */
  decision: string;
}

const refused = (refusal: Refusal): Outcome => ({ answer: refusalAnswer(refusal), decision: refusal.kind });

/** Gates, then the handler; every way to end is an answer. */
export async function runPipeline(call: Call): Promise<Outcome> {
  try {
    const verdict = await firstRefusal(call.route.ungated ? ENTRY : GATES, call);
    if (verdict.kind !== 'pass') return refused(verdict);
    const late = inTime(call);
    if (late.kind !== 'pass') return refused(late);
    return executed(call, await call.route.run(call));
  } catch (error) {
    return failure(call, error);
  }
}

function executed(call: Call, body: Record<string, unknown>): Outcome {
  // The relay's record tells by this member that a person said yes (contract 03 §6).
  if (call.consent === 'confirmed') {
    return { answer: { status: 200, result: { ...body, confirmed: true } }, decision: 'confirmed' };
  }
  return { answer: { status: 200, result: body }, decision: call.consent === 'trusted' ? 'trusted' : 'executed' };
}

const failed = (status: number, body: Record<string, unknown> & { error: string }): Outcome => ({
  answer: { status, result: body, error: body.error },
  decision: 'error',
});

function failure({ env, command }: Call, error: unknown): Outcome {
  if (error instanceof Refused) return refused(error.refusal);
  if (error instanceof CommandFailure) return failed(error.status, { ...error.body, error: error.message });
  if (error instanceof DeviceFailure) {
    const { code, permission } = error;
    const more = permission === undefined ? {} : { permission, required_permission: permission };
    return failed(code === 'service_unavailable' ? 503 : 400, {
      error: error.message,
      code,
      error_code: code,
      ...more,
    });
  }
  env.log.warn(`${command.method} ${command.path} failed: ${describeError(error)}`);
  return failed(500, { error: 'the phone could not carry this out' });
}
