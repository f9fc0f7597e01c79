import type { CommandContext } from './output.ts';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/**
 * Calls `quit` on a signal, on the context's `stop`, and when the reader of stdout exits. A second signal ends the process
 * at once. Returns a function that stops this.
 */
export function onSignals(quit: () => void, { stop, stdout }: CommandContext): () => void {
  for (const signal of SIGNALS) process.once(signal, quit);
  stdout.on?.('error', quit);
  stop?.addEventListener('abort', quit);
  if (stop?.aborted) quit();
  return () => {
    for (const signal of SIGNALS) process.off(signal, quit);
    stdout.off?.('error', quit);
    stop?.removeEventListener('abort', quit);
  };
}
