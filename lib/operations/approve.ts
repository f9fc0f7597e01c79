import * as v from 'valibot';
import { RelayError } from '../errors.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import type { Answered } from '../phone/asks.ts';
import { PHONE_GRANT, type PhoneMessaging } from '../phone/phone.ts';
import { actorText } from './actor.ts';
import type { Gate } from './gate.ts';
import { filledText, input } from './input.ts';
import type { Call, Operation } from './operation.ts';
import { shownCall, shownName } from './shown-call.ts';

/**
 * Milliseconds for a question to leave for a phone. If no phone is reachable, the caller is denied within 5 s (contract 09
 * §7).
 */
const PHONE_WITHIN = 4_000;
/** Seconds. */
const DEFAULT_TIMEOUT = 300;
const MAX_TIMEOUT = 3600;
const ANSWERS = ['Allow', 'Deny', 'Deny and stop'] as const;
const MAX_MESSAGE = 2_000;

/** Seconds that a question waits for its answer; longer times are reduced to the maximum (contract 09 §7). */
export const seconds = v.optional(
  v.pipe(
    v.number('timeout_s must be a number'),
    v.minValue(1, 'timeout_s must be at least 1'),
    v.transform((given) => Math.min(given, MAX_TIMEOUT)),
    v.description(`seconds to wait for the answer; ${DEFAULT_TIMEOUT} by default, at most ${MAX_TIMEOUT}`),
  ),
  DEFAULT_TIMEOUT,
);

const Input = input({
  tool_name: filledText('tool_name', 'the tool that the agent wants to use'),
  input: v.optional(
    v.pipe(v.record(v.string(), v.unknown(), 'input must be an object'), v.description('its input')),
    {},
  ),
  tool_use_id: v.optional(v.string('tool_use_id must be a string')),
  timeout_s: seconds,
});

/** The answer in the form of a permission prompt of Claude Code. */
export type Verdict = { behavior: 'allow'; updatedInput: Record<string, unknown> } | Denial;

interface Denial {
  behavior: 'deny';
  message: string;
  /** True if the agent should stop and wait for its owner. */
  interrupt?: true;
}

export interface ApprovalDeps {
  phone: Pick<PhoneMessaging, 'ask'>;
  gate: Gate;
  clock: Clock;
}

const deny = (message: string): Denial => ({ behavior: 'deny', message });

/** `phone_approve`: a permission prompt that the owner answers on the phone. Anything but a tap on "Allow" denies. */
export function createApproval({ phone, gate, clock }: ApprovalDeps): Operation<v.InferOutput<typeof Input>> {
  return {
    name: 'phone_approve',
    title: 'Ask the owner for permission',
    description:
      "For permission prompts of coding agents (Claude Code: --permission-prompt-tool). Shows the owner's phone what would " +
      'be run and waits. Answers {"behavior":"allow","updatedInput":…} or {"behavior":"deny","message":…}; no answer in ' +
      'time, no phone and a frozen relay deny. Not for questions: use phone_ask.',
    grant: PHONE_GRANT,
    effect: 'act',
    hints: { openWorld: true },
    ignoresFreeze: true,
    input: Input,
    async run({ tool_name: tool, input: args, timeout_s: timeout }, call) {
      const verdict = await decide({ tool, args, timeout }, call);
      return { json: JSON.stringify(verdict) };
    },
  };

  async function decide(
    { tool, args, timeout }: { tool: string; args: Record<string, unknown>; timeout: number },
    { actor, signal, progress }: Call,
  ): Promise<Verdict> {
    const end = new AbortController();
    let why: string | undefined;
    const stop = (reason: string) => {
      why ??= reason;
      end.abort();
    };
    let cancelAlone: Cancel = () => {};
    const awaitPhone = () => {
      cancelAlone();
      cancelAlone = clock.after(PHONE_WITHIN, () => stop('no phone is connected, so nobody could be asked'));
    };
    try {
      const lease = gate.enter(({ message }) => stop(message));
      awaitPhone();
      try {
        const result = await phone.ask({
          title: `Allow ${shownName(tool)}?`,
          text: shownCall(tool, args),
          answers: ANSWERS,
          urgency: 'high',
          by: actorText(actor),
          timeoutMs: timeout * 1000,
          signal: AbortSignal.any([signal, end.signal]),
          onProgress(state) {
            if (state === 'queued') return awaitPhone();
            cancelAlone();
            progress?.(state === 'shown' ? 'the phone shows the request' : 'the request was sent to the phone');
          },
        });
        if (result.answer !== null && why === undefined) return verdictOf(result, args);
        return deny(
          why ?? (signal.aborted ? 'the request was cancelled' : `the owner did not answer within ${timeout} s`),
        );
      } finally {
        lease.end();
        cancelAlone();
      }
    } catch (error) {
      if (error instanceof RelayError) return deny(error.message);
      throw error;
    }
  }
}

/** Only a tapped answer allows. A typed text denies, and tells the agent what to do instead. */
function verdictOf({ answer, answer_index: index, by }: Answered, args: Record<string, unknown>): Verdict {
  switch (index === undefined ? undefined : ANSWERS[index]) {
    case 'Allow':
      return { behavior: 'allow', updatedInput: args };
    case 'Deny':
      return deny(`the owner denied this on ${by}`);
    case 'Deny and stop':
      return { ...deny(`the owner denied this on ${by}, and wants you to stop`), interrupt: true };
    default:
      return deny(answer.trim().slice(0, MAX_MESSAGE).toWellFormed());
  }
}
