import { visibleLine } from './kit/text.ts';
import { createLogTail, type LogLevel, type LogTail } from './log-tail.ts';

/** The relay's logger. Never pass it tokens, keys, codes, frame bodies or `Authorization` values (contract 01 §10). */
export interface Log {
  debug(message: string): void;
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
  /** A logger of another name with the same output. */
  named(name: string): Log;
  /** The last lines, if the log keeps them. */
  readonly tail?: LogTail;
}

/** Name of the logger for refused requests, which anyone can cause, so their lines have a separate ring. */
export const REFUSED = 'refused';

const LEVELS: readonly LogLevel[] = ['ERROR', 'WARNING', 'INFO', 'DEBUG'];

const two = (value: number) => String(value).padStart(2, '0');
const stamp = (date: Date) =>
  `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
  `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;

/** Writes one line per entry, `YYYY-MM-DD HH:MM:SS [LEVEL] name: message` (contract 07 §5.1), without a line end. */
export function createLog(level: LogLevel, write: (line: string) => void): Log {
  const tail = createLogTail();
  const shown = LEVELS.slice(0, LEVELS.indexOf(level) + 1);
  let second = -1;
  let time = '';

  const now = (): string => {
    const at = Date.now();
    if (Math.floor(at / 1000) !== second) {
      second = Math.floor(at / 1000);
      time = stamp(new Date(at));
    }
    return time;
  };

  const at = (entry: LogLevel, name: string): ((message: string) => void) => {
    if (!shown.includes(entry)) return () => {};
    const head = ` [${entry}] ${name}: `;
    return (message) => {
      const text = visibleLine(message);
      write(now() + head + text);
      tail.push(entry, name, text, name === REFUSED ? 'refused' : 'own');
    };
  };

  const named = (name: string): Log => ({
    debug: at('DEBUG', name),
    info: at('INFO', name),
    warn: at('WARNING', name),
    error: at('ERROR', name),
    named,
    tail,
  });
  return named('relay');
}
