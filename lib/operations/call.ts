import { safeParse } from 'valibot';
import { RelayError } from '../errors.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { isObject } from '../kit/json.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Session } from '../sessions/session.ts';
import type { Actor } from './actor.ts';
import type { Gate } from './gate.ts';
import { type InputRow, inputOf } from './input.ts';
import type { Operation, OperationRow, Outcome } from './operation.ts';

const MAX_REASON = 300;

export interface CallDeps {
  gate: Gate;
  clock: Clock;
  /** At the edge, the error for a device of home that calls what only home serves (contract 12 §2). */
  homeRefusal?(session: Session): RelayError | undefined;
}

/** Grants of the operations that act on connected devices, which are connected to home. */
const OF_HOME: ReadonlySet<string | null> = new Set(['bridge', 'desktop']);

/** True if the actor's session still has the grant. The operator, who has no session, has all grants. */
export function mayCall({ grant }: Pick<OperationRow, 'grant'>, actor: Actor, clock: Clock): boolean {
  if (actor.kind === 'operator') return true;
  const { session } = actor;
  return !session.ended && (grant === null || isGranted(session.grants, grant, seconds(clock)));
}

/** Parses the input of an operation. @throws RelayError `invalid`, which names the field. */
function parseInput(row: Pick<OperationRow, 'input'>, raw: unknown): unknown {
  const given = isObject(raw) && 'entries' in row.input ? inputOf(row as InputRow, raw) : raw;
  const parsed = safeParse(row.input, given, { abortEarly: true });
  if (parsed.success) return parsed.output;
  const [issue] = parsed.issues;
  const path = issue.path?.map(({ key }) => String(key)).join('.') ?? '';
  // Most sentences name the member by themselves.
  const reason = path === '' || issue.message.includes(path) ? issue.message : `${path} ${issue.message}`;
  throw new RelayError('invalid', reason.slice(0, MAX_REASON).toWellFormed());
}

/** The single path from every door to an operation: grant, input, freeze, then the operation itself (contract 09 §9). */
export function createCaller({ gate, clock, homeRefusal }: CallDeps) {
  /**
   * @throws RelayError `unauthorized` and `forbidden` by the session, `unavailable` where only home serves it, `invalid` for
   * the input, `locked` while the relay is frozen, and any error of the operation.
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
    const refusal =
      actor.kind === 'operator' || !OF_HOME.has(operation.grant) ? undefined : homeRefusal?.(actor.session);
    if (refusal) throw refusal;
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
