/** Encrypted payload of a push: the id of the message, and its text only if the device requested it. */
export type PushPayload =
  | {
      type: 'message';
      message_id: string;
      chat_id: string | null;
      question: boolean;
      /** Epoch milliseconds. */
      sent_at: number;
      title?: string | null;
      text?: string;
      /** Answers to choose from (contract 09 §10). */
      answers?: string[];
    }
  | { type: 'read'; message_id: string };

/**
 * Notice of the end of a chat turn (contract 10 §1). `message_id` is the id of the turn, with which `read` removes the
 * notification.
 */
export interface AnswerPayload {
  type: 'answer';
  message_id: string;
  turn_id: string;
  session_id: string | null;
  state: 'done' | 'cancelled' | 'failed' | 'interrupted';
  /** Epoch milliseconds. */
  sent_at: number;
  /** The beginning of the question. */
  title?: string | null;
  /** The beginning of the answer. */
  text?: string;
}

/** The device's own session ends soon (contract 11 §2). `ends_at` is epoch seconds. */
export interface EndsPayload {
  type: 'ends';
  message_id: string;
  ends_at: number;
}
