import { errnoOf } from '../errors.ts';

/**
 * Sends a signal to a process, or to a group by its negative id; 0 only checks that it exists.
 * Returns false if it does not exist, and true if it belongs to another user.
 */
export function sendSignal(target: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(target, signal);
  } catch (error) {
    return errnoOf(error) === 'EPERM';
  }
}
