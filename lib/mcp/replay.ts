import type { EventStore, JSONRPCMessage } from '@modelcontextprotocol/server';

const MAX_EVENTS = 256;
/** Maximum characters of all events. An image is at most 1.4 million. */
const MAX_CHARACTERS = 2 * 1024 * 1024;

interface StoredEvent {
  stream: string;
  message: JSONRPCMessage;
  size: number;
}

/** The last events of one MCP session, so that a client whose connection broke resumes its streams. */
export function createReplay(): EventStore {
  const events = new Map<number, StoredEvent>();
  let last = 0;
  let characters = 0;

  function forgetOldest(): void {
    for (const [id, { size }] of events) {
      if (events.size <= MAX_EVENTS && characters <= MAX_CHARACTERS) return;
      events.delete(id);
      characters -= size;
    }
  }

  const find = (id: string): StoredEvent | undefined => (/^\d{1,15}$/.test(id) ? events.get(Number(id)) : undefined);

  return {
    async storeEvent(stream, message) {
      const size = sizeOf(message);
      events.set(++last, { stream, message, size });
      characters += size;
      forgetOldest();
      return String(last);
    },

    getStreamIdForEventId: async (id) => find(id)?.stream,

    async replayEventsAfter(id, { send }) {
      const stream = find(id)?.stream ?? '';
      // Copied, since more events may be stored meanwhile.
      for (const [later, event] of [...events]) {
        const isMessage = 'jsonrpc' in event.message;
        if (later > Number(id) && event.stream === stream && isMessage) await send(String(later), event.message);
      }
      return stream;
    },
  };
}

/** Approximate characters: a result is not serialized only to be counted. */
function sizeOf(message: JSONRPCMessage): number {
  const { content } = ('result' in message ? message.result : {}) as { content?: unknown };
  if (!Array.isArray(content)) return 1024;
  return content.reduce((sum, { text, data }) => sum + (text?.length ?? 0) + (data?.length ?? 0), 1024);
}
