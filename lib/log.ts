import { type ConsolaInstance, createConsola, type LogType } from 'consola/core';

export type LogLevel = 'DEBUG' | 'INFO' | 'WARNING' | 'ERROR';

/** The only logger there is. Never give it tokens, keys, codes, frame bodies or `Authorization` values (contract 01 §10). */
export interface Log {
  debug(message: string): void;
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
  /** The same log under another name. */
  named(name: string): Log;
}

const LEVELS: Record<LogLevel, number> = { ERROR: 0, WARNING: 1, INFO: 3, DEBUG: 4 };
const NAMES: Partial<Record<LogType, LogLevel>> = { error: 'ERROR', warn: 'WARNING', info: 'INFO', debug: 'DEBUG' };

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what must not reach a terminal or a log line
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g;

const two = (value: number) => String(value).padStart(2, '0');
const stamp = (date: Date) =>
  `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
  `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;

/** One line per entry, `YYYY-MM-DD HH:MM:SS [LEVEL] name: message` (contract 07 §5.1), handed to `write` without its line end. */
export function createLog(level: LogLevel, write: (line: string) => void): Log {
  const consola = createConsola({
    level: LEVELS[level],
    throttle: 0,
    reporters: [
      {
        log(entry) {
          const text = entry.args.map(String).join(' ').replace(CONTROL, ' ');
          write(`${stamp(entry.date)} [${NAMES[entry.type] ?? 'INFO'}] ${entry.tag}: ${text}`);
        },
      },
    ],
  });
  const named = (instance: ConsolaInstance): Log => ({
    debug: (message) => instance.debug(message),
    info: (message) => instance.info(message),
    warn: (message) => instance.warn(message),
    error: (message) => instance.error(message),
    named: (name) => named(consola.withTag(name)),
  });
  return named(consola.withTag('relay'));
}
