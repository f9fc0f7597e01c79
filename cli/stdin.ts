import { type CommandContext, sentence, UsageError } from './output.ts';

const MAX_INPUT = 256 * 1024;

/**
 * Reads stdin to its end as text. On a terminal, reports on stderr that it waits for `what`.
 * @throws UsageError with `surplus` as its message over 256 KiB.
 */
export function readAll(
  { stdin, stderr }: Pick<CommandContext, 'stdin' | 'stderr'>,
  what: string,
  surplus: string,
): Promise<string> {
  if (stdin.isTTY) sentence(stderr, `Type or paste ${what}, then press Enter and Ctrl-D.`);
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const done = () => {
      stdin.off('data', onData);
      stdin.off('end', onEnd);
      stdin.pause();
    };
    const onEnd = () => {
      done();
      resolve(Buffer.concat(chunks).toString('utf8'));
    };
    const onData = (data: Buffer | string) => {
      size += data.length;
      chunks.push(Buffer.from(data));
      if (size <= MAX_INPUT) return;
      done();
      reject(new UsageError(surplus));
    };
    stdin.on('data', onData);
    stdin.on('end', onEnd);
    stdin.resume();
  });
}

/** Reads the chunks of stdin as text. A character may arrive in two of them. */
export function createChunkReader(): (data: Buffer | string) => string {
  const decoder = new TextDecoder();
  return (data) => (typeof data === 'string' ? data : decoder.decode(data, { stream: true }));
}
