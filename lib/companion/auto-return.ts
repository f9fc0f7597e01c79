import type { Cancel, Clock } from '../kit/clock.ts';
import type { CommandRoute } from './gates/gate.ts';

/**
 * Returns to the companion app when no command follows one that left it (contract 03 §8.8): calls `run` when `idleMs` have
 * passed since the last logged command.
 */
export function createAutoReturn(clock: Clock, idleMs: number, run: () => void) {
  let running = 0;
  let away = false;
  let cancel: Cancel | null = null;
  const disarm = () => {
    cancel?.();
    cancel = null;
  };
  return {
    /** A logged command has started; nothing happens while it runs. */
    begin(): void {
      running++;
      disarm();
    },
    /** The command has ended. `route` is null for an unknown command. */
    end(route: CommandRoute | null, status: number): void {
      running--;
      if (status === 200 && route?.leaves) away = true;
      if (status === 200 && route?.path === '/return_to_hermes') away = false;
      if (!away || running > 0) return;
      disarm();
      cancel = clock.after(idleMs, () => {
        // Cleared first, so that a refused return is not retried.
        away = false;
        run();
      });
    },
    close(): void {
      away = false;
      disarm();
    },
  };
}
