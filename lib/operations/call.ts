import { safeParse } from 'valibot';
import { RelayError } from '../errors.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { isObject } from '../kit/json.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Actor } from './actor.ts';
import type { Gate } from './gate.ts';
import { type InputRow, inputOf } from './input.ts';
import type { Operation, OperationRow, Outcome } from './operation.ts';

const MAX_REASON = 300;

export interface CallParts {
  gate: Gate;
  clock: Clock;
}

export type CallOperation = ReturnType<typeof createCaller>;

/** True if the actor's session has the grant, still. The operator, who has no session, has them all. */
export function mayCall({ grant }: Pick<OperationRow, 'grant'>, actor: Actor, clock: Clock): boolean {
  if (actor.kind === 'operator') return true;
  const { session } = actor;
  return !session.ended && (grant === null || isGranted(session.grants, grant, seconds(clock)));
}

/** Parses the input of an operation. @throws RelayError `invalid`, which names the field. */
export function parseInput(row: Pick<OperationRow, 'input'>, raw: unknown): unknown {
  const given = isObject(raw) && 'entries' in row.input ? inputOf(row as InputRow, raw) : raw;
  const parsed = safeParse(row.input, given, { abortEarly: true });
  if (parsed.success) return parsed.output;
  const [issue] = parsed.issues;
  const path = issue.path?.map(({ key }) => String(key)).join('.') ?? '';
  // Most sentences name the member by themselves.
  const reason = path === '' || issue.message.includes(path) ? issue.message : `${path} ${issue.message}`;
  throw new RelayError('invalid', reason.slice(0, MAX_REASON).toWellFormed());
}

/** The way from every door to an operation: grant, input, freeze, then the operation itself (contract 09 §9). */
export function createCaller({ gate, clock }: CallParts) {
  /**
   * @throws RelayError `unauthorized` and `forbidden` by the session, `invalid` for the input, `locked` while the relay is
   * frozen, and what the operation throws.
   */
  return async function call(
    operation: Operation,
    raw: unknown,
    actor: Actor,
    signal: AbortSignal,
    progress?: (message: string) => void,
  ): Promise<Outcome> {
    if (!mayCall(operation, actor, clock)) {
      if (actor.kind !== 'operator' && actor.session.ended)
        throw new RelayError('unauthorized', 'the session has ended');
      throw new RelayError('forbidden', `this device has no ${operation.grant} grant, or it has expired`);
    }
    const input = parseInput(operation, raw);
    if (operation.ignoresFreeze || operation.isGated) return operation.run(input, { actor, signal, progress });
    const frozen = new AbortController();
    const lease = gate.enter((why) => frozen.abort(why));
    const end = AbortSignal.any([signal, frozen.signal]);
    try {
      return await operation.run(input, { actor, signal: end, progress });
    } catch (error) {
      throw frozen.signal.aborted ? frozen.signal.reason : error;
    } finally {
      lease.end();
    }
  };
}
