import type { Input } from './output.ts';

/** Maximum characters of a line; the rest is dropped. */
const MAX_LINE = 16 * 1024;
/** Maximum queued lines. Reading pauses while the queue is full. */
const MAX_WAITING = 64;

/** Lines of stdin, one at a time. */
export interface Lines {
  /** The next line without its end, trimmed; undefined after the last one. */
  next(): Promise<string | undefined>;
  /** Stops reading; pending reads resolve with undefined. */
  end(): void;
}

/** Reads lines of stdin as they are asked for. */
export function createLines(stdin: Input): Lines {
  const waiting: string[] = [];
  const decoder = new TextDecoder();
  let rest = '';
  let isEnded = false;
  let wake = () => {};

  function onData(data: Buffer | string): void {
    rest += typeof data === 'string' ? data : decoder.decode(data, { stream: true });
    const lines = rest.split(/\r?\n/);
    rest = (lines.pop() ?? '').slice(0, MAX_LINE);
    for (const text of lines) waiting.push(text.slice(0, MAX_LINE).trim());
    if (waiting.length > MAX_WAITING) stdin.pause();
    wake();
  }

  function onEnd(): void {
    if (rest.trim() !== '') waiting.push(rest.trim());
    rest = '';
    end();
  }

  function end(): void {
    isEnded = true;
    stdin.off('data', onData);
    stdin.off('end', onEnd);
    stdin.pause();
    wake();
  }

  stdin.on('data', onData);
  stdin.on('end', onEnd);
  return {
    async next() {
      while (waiting.length === 0 && !isEnded) {
        stdin.resume();
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      return waiting.shift();
    },
    end,
  };
}
