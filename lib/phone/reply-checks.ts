import type { Reply } from '../../storage/schema.ts';
import type { Log } from '../log.ts';
import type { createAsks } from './asks.ts';
import { type Closed, closedBy, type PhoneHistory } from './history.ts';
import { isHashOf, strayed } from './shown.ts';

export interface ReplyChecksDeps {
  history: Pick<PhoneHistory, 'findMessage' | 'isSecond'>;
  asks: Pick<ReturnType<typeof createAsks>, 'wordsOf'>;
  log: Log;
}

/** Checks replies against the messages that they answer. */
export function createReplyChecks({ history, asks, log }: ReplyChecksDeps) {
  /**
   * Why a reply to a question is too late; undefined if it is not. The agent still reads the owner's text; a tap has no
   * effect (`isVoid`) if no caller waits any more, so no reader gets it.
   */
  function latenessOf(reply: Reply): { reason: Closed; isVoid: boolean } | undefined {
    const question = history.findMessage(reply.reply_to);
    const reason = question && closedBy(question);
    if (!question || !reason) return undefined;
    const isTap = reply.answer_index !== undefined;
    if (reason !== 'answered') return { reason, isVoid: isTap };
    // Further words about a question without a waiting caller are conversation.
    const isLate = (isTap || question.asked === true) && history.isSecond(reply);
    return isLate ? { reason, isVoid: isTap && question.asked === true } : undefined;
  }

  /**
   * Returns the reply as it is if its device showed this relay's own words (`shown` is their hash), or if it answers no message
   * of this relay; otherwise as an answer to nothing. Older clients, which send no `shown`, reply to home directly.
   */
  function meant(reply: Reply, shown: string | undefined): Reply {
    const { reply_to: replyTo, message_id: messageId } = reply;
    if (replyTo === null || shown === undefined) return reply;
    const item = history.findMessage(replyTo);
    // The history forgets, and its item may be the edge's.
    const own = asks.wordsOf(replyTo) ?? (item?.unsealed || item?.sealed ? undefined : item);
    if (!own || isHashOf(shown, { ...own, answers: own.answers ?? [] })) return reply;
    log.warn(
      `reply ${messageId} answers other words than those of message ${replyTo}: it counts as an answer to nothing`,
    );
    return strayed(reply);
  }

  return { latenessOf, meant };
}
