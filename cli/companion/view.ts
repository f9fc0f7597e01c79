import type { LinkState } from '../../lib/companion/link/state.ts';
import type { OutgoingReply, ReceivedMessage, Surface } from '../../lib/companion/messages.ts';
import type { SafetySettings } from '../../lib/companion/safety-settings.ts';
import type { TriggerActivity } from '../../lib/companion/triggers.ts';
import type { Question } from '../../lib/companion/types.ts';
import type { Clock } from '../../lib/kit/clock.ts';
import type { FreezeState } from '../../lib/operations/freeze-state.ts';
import { type CommandContext, printJson } from '../output.ts';
import type { CommandRow } from './phone.ts';
import type { OpenQuestion, QuestionOutcome } from './questions.ts';
import { routeFacts } from './routes.ts';

/** Output of `svc companion run`: for people in `terminal-view.ts`, for scripts below. */
export interface View {
  state(state: LinkState): void;
  command(row: CommandRow): void;
  asked(question: OpenQuestion): void;
  answered(question: Question, outcome: QuestionOutcome): void;
  /** True if somebody sees it now. */
  message(message: ReceivedMessage, surface: Surface): boolean;
  /** All queued messages have arrived. */
  backlog(count: number): void;
  /** The relay has acknowledged a reply; `late` says why it counts no more. */
  replied(reply: OutgoingReply, lateReason: string | null): void;
  /** A question of the agent was withdrawn or has expired. */
  closed(message: ReceivedMessage, reason: string): void;
  subscribed(isSubscribed: boolean): void;
  /** Outcome of a notification trigger. */
  triggered(row: TriggerActivity): void;
  settings(settings: SafetySettings): void;
  /** A freeze of the relay has begun (null: ended). */
  frozen(freeze: FreezeState | null): void;
  /** The relay has a file that a script had it given, or why not. Only of a view for scripts. */
  uploaded?(path: string, outcome: { token: string } | { error: string }): void;
  notice(text: string): void;
  /** Restores the terminal. */
  close(): void;
}

/** The view for scripts: one JSON object per line, each with `event` and `time` (epoch ms). */
export function createJsonView(context: CommandContext, clock: Clock): View {
  const put = (event: string, members: object) => printJson(context.stdout, { event, time: clock.now(), ...members });
  return {
    state(state) {
      if (state.name === 'online') {
        const { expiresAt, grants, serverVersion } = state.relay;
        const relay = { server_version: serverVersion, expires_at: expiresAt, grants };
        return put('state', { state: 'online', ...routeFacts(state.endpoint), ...relay });
      }
      if ('endpoint' in state) {
        return put('state', { state: state.name, ...routeFacts(state.endpoint) });
      }
      put('state', {
        state: state.name,
        ...('reason' in state && { reason: state.reason }),
        ...('wait' in state && { retry_ms: state.wait }),
      });
    },
    command: ({ requestId, method, path, summary, decision, status, durationMs }) =>
      put('command', { request_id: requestId, method, path, summary, decision, status, ms: Math.round(durationMs) }),
    asked: ({ requestId, verb, title, detail, subject, timeoutMs }) =>
      put('confirm', { request_id: requestId, verb, title, detail, ...subject, timeout_ms: timeoutMs }),
    answered: ({ requestId }, outcome) => put('confirmed', { request_id: requestId, answer: outcome }),
    message({ messageId, chatId, title, text, surfacing, replyTo, sentAt, queued, answers, unsealed }, surface) {
      put('message', {
        message_id: messageId,
        chat_id: chatId,
        title,
        text,
        surfacing,
        reply_to: replyTo,
        sent_at: sentAt,
        queued,
        surface,
        ...(answers.length > 0 && { answers }),
        ...(unsealed && { sealed: false }),
      });
      // The reader may be a program, so it does not count as seen.
      return false;
    },
    backlog: (count) => put('backlog', { count }),
    replied: ({ message_id, chat_id, reply_to, answer_index }, lateReason) =>
      put('reply', {
        message_id,
        chat_id,
        reply_to,
        ...(answer_index !== undefined && { answer_index }),
        state: 'received',
        ...(lateReason !== null && { late: lateReason }),
      }),
    closed: ({ messageId }, reason) => put('closed', { message_id: messageId, reason }),
    subscribed: (isSubscribed) => put('messages', { subscribed: isSubscribed }),
    triggered: ({ at: _, ...row }) => put('trigger', row),
    settings: ({ masterEnabled, messagesEnabled, policy, capabilities, triggers }) =>
      put('settings', {
        master: masterEnabled,
        messages: messagesEnabled,
        policy,
        grants: capabilities,
        notification_triggers_enabled: triggers.notification_triggers_enabled,
        notification_triggers_kill_switch: triggers.notification_triggers_kill_switch,
      }),
    frozen: (freeze) => put('frozen', freeze ? { frozen: true, ...freeze } : { frozen: false }),
    uploaded: (path, outcome) => put('upload', { path, ...outcome }),
    notice: (text) => put('notice', { message: text }),
    close() {},
  };
}
