import type { ReceivedMessage } from './message.ts';

const CAPACITY = 100;

export interface ThreadCache {
  /** Puts a message in front. False for one that is there already: it came twice. */
  add(message: ReceivedMessage): boolean;
  /** The newest first. */
  list(): readonly ReceivedMessage[];
  get(messageId: string): ReceivedMessage | undefined;
}

/** The 100 newest messages, each once (contract 04 §5.3). */
export function createThreadCache(): ThreadCache {
  let messages: readonly ReceivedMessage[] = [];
  const get = (messageId: string) => messages.find((message) => message.messageId === messageId);
  return {
    add(message) {
      if (get(message.messageId)) return false;
      messages = [message, ...messages].slice(0, CAPACITY);
      return true;
    },
    list: () => messages,
    get,
  };
}
