import { createEvent } from './kit/event.ts';
export type LogLevel = 'DEBUG' | 'INFO' | 'WARNING' | 'ERROR';

const MAX_LINES = 500;
/** Maximum characters of one line, since a stack trace may have any number. */
const MAX_TEXT = 4096;

/** A line of the log. `ts` is epoch seconds. */
export interface LogLine {
  ts: number;
  level: LogLevel;
  name: string;
  text: string;
}

export type LogTail = ReturnType<typeof createLogTail>;

/** Lines of refused requests, in addition to the others. */
const MAX_REFUSED = 100;

/**
 * The last 500 lines of a log, for the operator's page (contract 09 §4), and separately up to 100 of refused requests, so
 * that these push out no others (contract 01 §9.1a).
 */
export function createLogTail() {
  const rings = { own: createLines(MAX_LINES), refused: createLines(MAX_REFUSED) };
  const lines = createEvent<[line: LogLine]>();

  return {
    push(level: LogLevel, name: string, text: string, ring: keyof typeof rings = 'own'): void {
      const line = { ts: Date.now() / 1000, level, name, text: text.slice(0, MAX_TEXT) };
      rings[ring].push(line);
      lines.emit(line);
    },

    /** At most `limit` lines, and as many of refused requests, ordered by time. */
    last: (limit: number): LogLine[] =>
      [...rings.own.last(limit), ...rings.refused.last(limit)].sort((one, other) => one.ts - other.ts),

    /** Calls back with every new line. Returns a function that ends it. */
    onLine: lines.on,
  };
}

function createLines(max: number) {
  const lines: LogLine[] = [];
  /** Index of the oldest line, once the ring is full. */
  let oldest = 0;
  return {
    push(line: LogLine): void {
      if (lines.length < max) lines.push(line);
      else {
        lines[oldest] = line;
        oldest = (oldest + 1) % max;
      }
    },
    last: (limit: number): LogLine[] => [...lines.slice(oldest), ...lines.slice(0, oldest)].slice(-limit),
  };
}
