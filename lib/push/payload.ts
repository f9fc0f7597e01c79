/** Encrypted payload of a push: names the message, and holds its text only if the device asked for it. */
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
