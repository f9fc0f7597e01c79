import type { Clock } from '../lib/kit/clock.ts';
import type { View } from './companion-view.ts';
import { type CommandContext, line } from './output.ts';

/** The view for scripts: one JSON object per line, each with `event` and `time` (epoch milliseconds). */
export function createJsonView(context: CommandContext, clock: Clock): View {
  const put = (event: string, members: object) =>
    line(context.stdout, JSON.stringify({ event, time: clock.now(), ...members }));
  return {
    state(state) {
      if (state.name === 'online') {
        const { expiresAt, grants, serverVersion } = state.relay;
        const relay = { server_version: serverVersion, expires_at: expiresAt, grants };
        return put('state', { state: 'online', role: state.endpoint.role, url: state.endpoint.url, ...relay });
      }
      const { name, ...rest } = state;
      if ('endpoint' in rest) return put('state', { state: name, role: rest.endpoint.role, url: rest.endpoint.url });
      put('state', {
        state: name,
        ...('reason' in rest && { reason: rest.reason }),
        ...('wait' in rest && { retry_ms: rest.wait }),
      });
    },
    command: ({ requestId, method, path, summary, decision, status, took }) =>
      put('command', { request_id: requestId, method, path, summary, decision, status, ms: Math.round(took) }),
    asked: ({ requestId, verb, title, detail, timeoutMs }) =>
      put('confirm', { request_id: requestId, verb, title, detail, timeout_ms: timeoutMs }),
    answered: ({ requestId }, answer) => put('confirmed', { request_id: requestId, answer }),
    message: ({ messageId, chatId, title, text, surfacing, replyTo, sentAt, queued }, surface) =>
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
      }),
    backlog: (count) => put('backlog', { count }),
    replied: ({ message_id, chat_id, reply_to }) => put('reply', { message_id, chat_id, reply_to, state: 'received' }),
    subscribed: (isSubscribed) => put('messages', { subscribed: isSubscribed }),
    settings: ({ masterEnabled, messagesEnabled, policy, capabilities }) =>
      put('settings', { master: masterEnabled, messages: messagesEnabled, policy, grants: capabilities }),
    notice: (text) => put('notice', { message: text }),
    close() {},
  };
}
