import type { Child, Exit, Signal } from '../../../lib/host/index.ts';
import { createGateway } from '../../../lib/tui/gateway.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';

/** A gateway over a child that the test controls. */
export function bench() {
  const clock = createTestClock();
  const log = createTestLog();
  const events: string[] = [];
  const signals: Signal[] = [];
  const written: string[] = [];
  let waiting = 0;
  let paused = false;
  let lose: (() => void) | undefined;
  let stdout: (bytes: Uint8Array) => void = () => {};
  let stderr: (bytes: Uint8Array) => void = () => {};
  let exit: (exit: Exit) => void = () => {};
  const child: Child = {
    pid: 4711,
    onStdout: (listener) => (stdout = listener),
    onStderr: (listener) => (stderr = listener),
    onExit: (listener) => (exit = listener),
    pause: () => (paused = true),
    resume: () => (paused = false),
    write(bytes, lost) {
      written.push(Buffer.from(bytes).toString());
      waiting += bytes.length;
      lose = lost;
    },
    unwritten: () => waiting,
    closeStdin: () => events.push('stdin closed'),
    kill: (signal) => signals.push(signal),
  };
  const gateway = createGateway(
    child,
    { clock, log },
    {
      received: (kind, text) => events.push(`${kind} ${text}`),
      exited: ({ code, signal }) => events.push(`exited ${code} ${signal}`),
    },
  );
  return {
    gateway,
    clock,
    log,
    events,
    signals,
    written,
    prints: (text: string | Uint8Array) => stdout(Buffer.from(text as string)),
    complains: (text: string) => stderr(Buffer.from(text)),
    exits: (code: number | null, signal: string | null = null) => exit({ code, signal }),
    losesInput: () => lose?.(),
    isPaused: () => paused,
    drains: () => (waiting = 0),
  };
}
