export type LogLevel = 'DEBUG' | 'INFO' | 'WARNING' | 'ERROR';

const MAX_LINES = 500;
/** Characters of one line: a stack trace may have any number. */
const MAX_TEXT = 4096;

/** A line of the log. `ts` is epoch seconds. */
export interface LogLine {
  ts: number;
  level: LogLevel;
  name: string;
  text: string;
}

export type LogTail = ReturnType<typeof createLogTail>;

/** The last 500 lines of a log, for the operator's page (contract 09 §4). */
export function createLogTail() {
  const lines: LogLine[] = [];
  /** Index of the oldest line, once there are as many as are kept. */
  let oldest = 0;
  const listeners = new Set<(line: LogLine) => void>();

  return {
    push(level: LogLevel, name: string, text: string): void {
      const line = { ts: Date.now() / 1000, level, name, text: text.slice(0, MAX_TEXT) };
      if (lines.length < MAX_LINES) lines.push(line);
      else {
        lines[oldest] = line;
        oldest = (oldest + 1) % MAX_LINES;
      }
      for (const listener of listeners) listener(line);
    },

    /** At most `limit` lines, oldest first. */
    last: (limit: number): LogLine[] => [...lines.slice(oldest), ...lines.slice(0, oldest)].slice(-limit),

    /** Calls back with every new line. Returns a function that ends it. */
    onLine(listener: (line: LogLine) => void): () => void {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}
