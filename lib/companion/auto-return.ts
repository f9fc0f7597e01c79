import type { Cancel, Clock } from '../kit/clock.ts';
import type { Route } from './gates/gate.ts';

/** Brings the companion back when nothing follows a command that left it (contract 03 §8.8). */
export interface AutoReturn {
  /** A logged command arrived: nothing happens while it runs. */
  begin(): void;
  /** It ended; `route` is null for one that does not exist. */
  end(route: Route | null, status: number): void;
  close(): void;
}

/** `idleMs` after the last logged command, `run` is called. */
export function createAutoReturn(clock: Clock, idleMs: number, run: () => void): AutoReturn {
  let running = 0;
  let away = false;
  let cancel: Cancel | null = null;
  const disarm = () => {
    cancel?.();
    cancel = null;
  };
  return {
    begin() {
      running++;
      disarm();
    },
    end(route, status) {
      running--;
      if (status === 200 && route?.leaves) away = true;
      if (status === 200 && route?.path === '/return_to_hermes') away = false;
      if (!away || running > 0) return;
      disarm();
      cancel = clock.after(idleMs, () => {
        // Once: a return that is refused is not tried again.
        away = false;
        run();
      });
    },
    close() {
      away = false;
      disarm();
    },
  };
}
