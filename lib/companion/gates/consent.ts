import { describeError } from '../../errors.ts';
import { cut, line } from '../text.ts';
import type { Decision, Question } from '../types.ts';
import { type Call, PASS, type Verdict } from './gate.ts';
import { firstRefusal, STANDING } from './standing.ts';

/** The relay gives up 30 s after it sent: a denial must be there before, and nothing may happen after (contract 03 §8.1). */
const ANSWER_BY_MS = 28_000;
const ACT_BY_MS = 29_000;

const elapsed = ({ env, receivedAt }: Call): number => env.clock.monotonic() - receivedAt;

const isTooLate = (call: Call): boolean => elapsed(call) > ACT_BY_MS || call.command.gone?.aborted === true;

/** A command whose caller has been told a failure does nothing any more, however long it had to wait for its turn. */
export const inTime = (call: Call): Verdict =>
  isTooLate(call) ? { kind: 'denied', detail: `${call.route.path.slice(1)} came too late` } : PASS;

const trustedVerbs = ({ env }: Call): Set<string> =>
  new Set(env.settings.get().trustedVerbs.map((verb) => verb.trim().toLowerCase()));

/** Milliseconds a question may stand (contract 03 §8.4). */
function patience(call: Call): number {
  const seconds = call.env.settings.get().confirmationTimeoutSeconds;
  const own = Math.min(Math.max(Number.isFinite(seconds) ? seconds : 30, 10), 60) * 1000;
  return Math.floor(Math.min(own, ANSWER_BY_MS - elapsed(call)));
}

/** Asks, and takes silence, failure and closing for a no. */
function decide({ env, command }: Call, question: Question): Promise<Exclude<Decision, boolean>> {
  const { confirm } = env;
  // A signal of the question's own: 64 questions on one that they share would be taken for a leak, and said so.
  const end = AbortSignal.any(command.gone ? [env.closed, command.gone] : [env.closed]);
  if (!confirm || end.aborted) return Promise.resolve({ allowed: false });
  return new Promise((resolve) => {
    const settle = (decision: Decision) => {
      cancel();
      end.removeEventListener('abort', deny);
      resolve(typeof decision === 'object' && decision !== null ? decision : { allowed: decision === true });
    };
    const deny = () => settle(false);
    const cancel = env.clock.after(question.timeoutMs, deny);
    end.addEventListener('abort', deny);
    Promise.resolve()
      .then(() => confirm({ ...question, gone: end }))
      .then(settle, (error) => {
        env.log.warn(`confirmation failed: ${describeError(error)}`);
        deny();
      });
  });
}

/**
 * Lets a person decide, unless every one of `verbs` is trusted. "Don't ask again" together with a yes makes them
 * trusted. After a yes the standing gates are asked again: the person may have switched the bridge off meanwhile.
 */
export async function consent(
  call: Call,
  { verbs, title, detail }: { verbs: string[]; title: string; detail: string },
): Promise<Verdict> {
  const trusted = trustedVerbs(call);
  if (verbs.every((verb) => trusted.has(verb))) {
    call.consent = 'trusted';
    return PASS;
  }
  const denied: Verdict = { kind: 'denied', detail: line(detail, 200) };
  const timeoutMs = patience(call);
  if (timeoutMs <= 0) return denied;
  const { allowed, dontAskAgain } = await decide(call, {
    requestId: call.command.requestId,
    verb: verbs.join(', '),
    title: line(title, 80),
    detail: line(detail, 200),
    timeoutMs,
  });
  if (allowed !== true || isTooLate(call)) return denied;
  const verdict = await firstRefusal(STANDING, call);
  if (verdict.kind !== 'pass') return verdict;
  if (dontAskAgain === true) {
    await call.env.settings.update({ trustedVerbs: [...new Set([...trustedVerbs(call), ...verbs])] });
  }
  call.consent = 'confirmed';
  return PASS;
}

/** For routes that always ask: their own verb is all that can be trusted (contract 03 §8.3). */
export async function alwaysAsk(call: Call, title: string, detail: string): Promise<Verdict> {
  if (!call.env.confirm) return { kind: 'no-safety-manager' };
  return consent(call, { verbs: [call.route.path.slice(1)], title, detail: cut(detail, 200) });
}
