import { describeError } from '../../errors.ts';
import { singleLine, truncate, wordsIn } from '../text.ts';
import type { Decision, Question } from '../types.ts';
import { type CommandCall, firstRefusal, PASS, type SafetyGate, type Verdict } from './gate.ts';
import { STANDING_GATES } from './standing.ts';
import { subjectOf } from './subject.ts';

/**
 * The relay gives up after 30 s, unless it has said that it waits for the owner. A denial must arrive before that, and
 * nothing may be done after it (contract 03 §8.1).
 */
const RELAY_WAITS_MS = 30_000;
const ANSWER_BEFORE_MS = 2_000;
const ACT_BEFORE_MS = 1_000;

const relayWaits = ({ relayWaits = RELAY_WAITS_MS }: CommandCall): number => relayWaits;

const elapsed = ({ env, receivedAt }: CommandCall): number => env.clock.monotonic() - receivedAt;

const hasExpired = (call: CommandCall): boolean =>
  elapsed(call) > relayWaits(call) - ACT_BEFORE_MS || call.command.gone?.aborted === true;

/** Refuses a command whose caller has already been told that it failed, however long it was queued. */
export const checkDeadline = (call: CommandCall): Verdict =>
  hasExpired(call) ? { kind: 'denied', detail: `${call.route.path.slice(1)} came too late` } : PASS;

const trustedVerbs = ({ env }: CommandCall): Set<string> =>
  new Set(env.settings.get().trustedVerbs.map((verb) => verb.trim().toLowerCase()));

/** Milliseconds for which a question may stay open (contract 03 §8.4). */
function questionTimeout(call: CommandCall): number {
  const seconds = call.env.settings.get().confirmationTimeoutSeconds;
  const configured = Math.min(Math.max(Number.isFinite(seconds) ? seconds : 30, 10), 60) * 1000;
  return Math.floor(Math.min(configured, relayWaits(call) - ANSWER_BEFORE_MS - elapsed(call)));
}

/** Asks the person. Silence, a failure and closing the phone all count as a denial. */
function ask({ env, command }: CommandCall, question: Question): Promise<Exclude<Decision, boolean>> {
  const { confirm } = env;
  // Each question has a separate signal, since Node warns of a leak when 64 questions listen on a shared one.
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
 * Lets a person decide, unless all `verbs` are trusted. "Don't ask again" with a yes makes them trusted. After a yes
 * the standing gates are checked again, because the owner may have switched the bridge off meanwhile.
 */
async function requireConsent(
  call: CommandCall,
  { verbs, title, detail }: { verbs: string[]; title: string; detail: string },
): Promise<Verdict> {
  const trusted = trustedVerbs(call);
  if (verbs.every((verb) => trusted.has(verb))) {
    call.consent = 'trusted';
    return PASS;
  }
  const denied: Verdict = { kind: 'denied', detail: singleLine(detail, 200) };
  const subject = await subjectOf(call);
  call.relayWaits ??= (await call.command.ownerAsked?.()) ?? undefined;
  const timeoutMs = questionTimeout(call);
  if (timeoutMs <= 0) return denied;
  const { allowed, dontAskAgain } = await ask(call, {
    requestId: call.command.requestId,
    verb: verbs.join(', '),
    title: singleLine(title, 80),
    detail: singleLine(detail, 200),
    subject: { ...subject, app: singleLine(subject.app, 80) },
    timeoutMs,
  });
  if (allowed !== true || hasExpired(call)) return denied;
  const verdict = await firstRefusal(STANDING_GATES, call);
  if (verdict.kind !== 'pass') return verdict;
  if (dontAskAgain === true) {
    await call.env.settings.update({ trustedVerbs: [...new Set([...trustedVerbs(call), ...verbs])] });
  }
  call.consent = 'confirmed';
  return PASS;
}

/** For routes that always ask. Only their own verb can be trusted, not words in the prompt (contract 03 §8.3). */
export async function alwaysAsk(call: CommandCall, title: string, detail: string): Promise<Verdict> {
  if (!call.env.confirm) return { kind: 'no-safety-manager' };
  return requireConsent(call, { verbs: [call.route.path.slice(1)], title, detail: truncate(detail, 200) });
}

/** Gate 7: text that contains a destructive word needs a confirmation (contract 03 §8.3). */
export const destructiveGate: SafetyGate = async (call) => {
  const { route, env } = call;
  const text = (await route.destructiveText?.(call)) ?? '';
  if (text === '' || text === call.allowedText) return PASS;
  const words = wordsIn(text, env.settings.get().destructiveVerbs);
  if (words.length === 0) return PASS;
  const detail = `${route.path.slice(1)}: ${text}`;
  const verdict = await requireConsent(call, { verbs: words, title: `Allow "${words.join(', ')}"?`, detail });
  if (verdict.kind !== 'pass') return verdict;
  // The yes was for this button, not for a different one that has replaced it.
  if (call.consent === 'confirmed' && (await route.destructiveText?.(call)) !== text) return { kind: 'denied', detail };
  call.allowedText = text;
  return PASS;
};
