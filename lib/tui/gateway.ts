import type { Child, Exit } from '../host/index.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { parseObject } from '../kit/json.ts';
import { decodeUtf8, decodeUtf8Strict } from '../kit/text.ts';
import type { Log } from '../log.ts';
import { createLines } from './lines.ts';

const MOST_LINE = 32 * 1024 * 1024;
const MOST_STDERR_LINE = 4 * 1024;
const MOST_UNWRITTEN = 64 * 1024 * 1024;
const TERM_WAIT = 2000;
const KILL_WAIT = 2000;
/** An ending child breaks its pipes first: its end is the better news, so a lost write waits for that. */
const LOST_WAIT = 1000;

export type LineKind = 'event' | 'response';

export interface GatewayEvents {
  /** One JSON object of the gateway, as the text it wrote. Never again after `end()`. */
  received(kind: LineKind, text: string): void;
  /** It ended by itself, after all of its output. Called at most once, and never after `end()`. */
  exited(exit: Exit): void;
}

export type Gateway = ReturnType<typeof createGateway>;

/** What a line of a gateway is (contract 02 §4.5); null for what is no JSON object. */
export function classify(text: string): LineKind | null {
  const value = parseObject(text);
  if (!value) return null;
  return value.method === 'event' || !Object.hasOwn(value, 'id') ? 'event' : 'response';
}

/** Pumps lines between one running gateway process and whoever listens (contract 02 §4.4-4.6). */
export function createGateway(child: Child, { clock, log }: { clock: Clock; log: Log }, events: GatewayEvents) {
  const encoder = new TextEncoder();
  let state: 'running' | 'ending' | 'ended' = 'running';
  let cancel: Cancel | undefined;
  let setOver: () => void;
  const over = new Promise<void>((resolve) => {
    setOver = resolve;
  });

  const stdout = createLines(MOST_LINE, {
    line(bytes) {
      if (state !== 'running') return;
      const text = decodeUtf8Strict(bytes, { keepBom: true });
      const kind = text === null ? null : classify(text);
      if (text !== null && kind) events.received(kind, text);
      else log.warn(`gateway ${child.pid} wrote a line of ${bytes.length} bytes that is no JSON object: dropped`);
    },
    tooLong() {
      if (state === 'running') log.warn(`gateway ${child.pid} wrote a line of more than ${MOST_LINE} bytes: dropped`);
    },
  });
  const logged = (bytes: Uint8Array) => log.debug(`gateway ${child.pid}: ${decodeUtf8(bytes)}`);
  const stderr = createLines(MOST_STDERR_LINE, { line: logged, tooLong: logged });

  child.onStdout((bytes) => {
    if (state === 'running') stdout.push(bytes);
  });
  child.onStderr(stderr.push);
  child.onExit((exit) => {
    stdout.end();
    stderr.end();
    // The last line may have ended the socket, and so this gateway.
    const byItself = state === 'running';
    state = 'ended';
    cancel?.();
    setOver();
    if (byItself) events.exited(exit);
  });

  return {
    pid: child.pid,

    /**
     * Queues one message for the gateway, the text of a JSON object without line ends. False when 64 MiB wait already:
     * it is dropped then. `lost` is called when the gateway runs but does not take input any more.
     */
    write(message: string, lost: () => void = () => {}): boolean {
      const line = encoder.encode(`${message}\n`);
      if (child.unwritten() + line.length > MOST_UNWRITTEN) return false;
      child.write(line, () => {
        clock.after(LOST_WAIT, () => {
          if (state === 'running') lost();
        });
      });
      return true;
    },

    pause(): void {
      if (state === 'running') child.pause();
    },

    resume: () => child.resume(),

    /**
     * Ends the process group: SIGTERM, and SIGKILL after 2 s. Silent from now on. Resolves when it is gone; also, 2 s
     * after the SIGKILL, when it is not.
     */
    end(): Promise<void> {
      if (state === 'running') {
        state = 'ending';
        // What still comes is thrown away, so that nothing hangs in a write.
        child.resume();
        child.closeStdin();
        child.kill('SIGTERM');
        cancel = clock.after(TERM_WAIT, () => {
          child.kill('SIGKILL');
          cancel = clock.after(KILL_WAIT, () => {
            log.error(`gateway ${child.pid} survived SIGKILL`);
            setOver();
          });
        });
      }
      return over;
    },
  };
}
