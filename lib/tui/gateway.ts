import type { Child, Exit } from '../host/index.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { deferred } from '../kit/deferred.ts';
import { parseObject } from '../kit/json.ts';
import { decodeUtf8, decodeUtf8Strict } from '../kit/text.ts';
import type { Log } from '../log.ts';
import { createLines } from './lines.ts';

const MAX_LINE = 32 * 1024 * 1024;
const MAX_STDERR_LINE = 4 * 1024;
const MAX_UNWRITTEN = 64 * 1024 * 1024;
/** Milliseconds from SIGTERM to SIGKILL, and from SIGKILL to giving up. */
const TERM_TIMEOUT = 2000;
const KILL_TIMEOUT = 2000;
/** An exiting child breaks its pipes first: a lost write is reported only if no exit follows. */
const LOST_DELAY = 1000;

export type LineKind = 'event' | 'response';

export interface GatewayEvents {
  /** One JSON object, as written by the gateway. Never called after `end()`. */
  received(kind: LineKind, text: string): void;
  /** The gateway exited by itself, after all of its output was delivered. Called at most once, never after `end()`. */
  exited(exit: Exit): void;
}

export type Gateway = ReturnType<typeof createGateway>;

/** Kind of a gateway's line (contract 02 §4.5); null when it is not a JSON object. */
export function classify(text: string): LineKind | null {
  const value = parseObject(text);
  if (!value) return null;
  return value.method === 'event' || !Object.hasOwn(value, 'id') ? 'event' : 'response';
}

/** Passes lines between one gateway process and its listener (contract 02 §4.4-4.6). */
export function createGateway(child: Child, { clock, log }: { clock: Clock; log: Log }, events: GatewayEvents) {
  const encoder = new TextEncoder();
  let state: 'running' | 'ending' | 'ended' = 'running';
  let cancel: Cancel | undefined;
  const over = deferred();

  const stdout = createLines(MAX_LINE, {
    line(bytes) {
      if (state !== 'running') return;
      const text = decodeUtf8Strict(bytes, { keepBom: true });
      const kind = text === null ? null : classify(text);
      if (text !== null && kind) events.received(kind, text);
      else log.warn(`gateway ${child.pid} wrote a line of ${bytes.length} bytes that is not a JSON object: dropped`);
    },
    tooLong() {
      if (state === 'running') log.warn(`gateway ${child.pid} wrote a line of more than ${MAX_LINE} bytes: dropped`);
    },
  });
  const logged = (bytes: Uint8Array) => log.debug(`gateway ${child.pid}: ${decodeUtf8(bytes)}`);
  const stderr = createLines(MAX_STDERR_LINE, { line: logged, tooLong: logged });

  child.onStdout((bytes) => {
    if (state === 'running') stdout.push(bytes);
  });
  child.onStderr(stderr.push);
  child.onExit((exit) => {
    stdout.end();
    stderr.end();
    // The last line may have closed the socket, which ended this gateway.
    const byItself = state === 'running';
    state = 'ended';
    cancel?.();
    over.resolve();
    if (byItself) events.exited(exit);
  });

  /**
   * Queues the pieces of one line, with its end. Returns false, and drops the line, if 64 MiB are waiting already. `lost` is
   * called if the gateway runs but no longer reads its input.
   */
  function writeLine(pieces: readonly Uint8Array[], lost: () => void = () => {}): boolean {
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    if (child.unwritten() + length > MAX_UNWRITTEN) return false;
    const report = () => {
      clock.after(LOST_DELAY, () => {
        if (state === 'running') lost();
      });
    };
    pieces.forEach((piece, at) => {
      child.write(piece, at === pieces.length - 1 ? report : () => {});
    });
    return true;
  }

  return {
    pid: child.pid,

    /** Queues one message for the gateway: the text of a JSON object, without line breaks. Results like `writeLine`. */
    write: (message: string, lost?: () => void): boolean => writeLine([encoder.encode(`${message}\n`)], lost),
    writeLine,

    pause(): void {
      if (state === 'running') child.pause();
    },

    resume: () => child.resume(),

    /**
     * Ends the process group: SIGTERM, then SIGKILL after 2 s. No event follows. Resolves when the process has exited, at
     * the latest 2 s after SIGKILL.
     */
    end(): Promise<void> {
      if (state === 'running') {
        state = 'ending';
        // Further output is read and discarded, so that the child does not block in a write.
        child.resume();
        child.closeStdin();
        child.kill('SIGTERM');
        cancel = clock.after(TERM_TIMEOUT, () => {
          child.kill('SIGKILL');
          cancel = clock.after(KILL_TIMEOUT, () => {
            log.error(`gateway ${child.pid} survived SIGKILL`);
            over.resolve();
          });
        });
      }
      return over.promise;
    },
  };
}
