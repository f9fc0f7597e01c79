import { beforeEach, describe, expect, test } from 'vitest';
import type { Host, Terminal } from '../../../lib/host/index.ts';
import type { Connection } from '../../../lib/socket/channel.ts';
import { createTerminals, type TerminalsDeps } from '../../../lib/terminal/terminals.ts';
import type { Viewer } from '../../../lib/terminal/viewer.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';

const SIZE = { cols: 80, rows: 24 };

/** A program controlled by the test; by itself it only dies of SIGKILL. */
function fakeTerminal(pid: number) {
  let onOutput: (bytes: Uint8Array) => void = () => {};
  let onExit: (exitCode: number) => void = () => {};
  let onWriteFailed = () => {};
  const done: string[] = [];
  const terminal: Terminal = {
    pid,
    onOutput: (listener) => {
      onOutput = listener;
    },
    onExit: (listener) => {
      onExit = listener;
    },
    onWriteFailed: (listener) => {
      onWriteFailed = listener;
    },
    pause: () => void done.push('pause'),
    resume: () => void done.push('resume'),
    write: (bytes) => void done.push(`write ${new TextDecoder().decode(bytes)}`),
    unwritten: () => 0,
    resize: ({ cols, rows }) => void done.push(`resize ${cols}x${rows}`),
    kill: (signal) => {
      done.push(signal);
      if (signal === 'SIGKILL') onExit(137);
    },
    close: () => void done.push('close'),
  };
  return {
    terminal,
    done,
    print: (bytes: Uint8Array | string) =>
      onOutput(typeof bytes === 'string' ? new TextEncoder().encode(bytes) : bytes),
    exit: (exitCode: number) => onExit(exitCode),
    breakWriting: () => onWriteFailed(),
  };
}

function createViewer() {
  const seen: string[] = [];
  let limits: Parameters<Viewer['follow']>[0] | undefined;
  const viewer: Viewer = {
    attached: ({ pid, reattach }) => void seen.push(`attached ${pid}${reattach ? ' again' : ''}`),
    output: (text) => void seen.push(text),
    detached: (reason, { exitCode }) =>
      void seen.push(`detached: ${reason}${exitCode === undefined ? '' : ` ${exitCode}`}`),
    follow: (given) => {
      limits = given;
      return () => {
        limits = undefined;
      };
    },
  };
  return { viewer, seen, limits: () => limits };
}

describe('terminal sessions', () => {
  let clock: ReturnType<typeof createTestClock>;
  let programs: ReturnType<typeof fakeTerminal>[];
  let failing: boolean;
  let session: { family: string; device: { id: string }; grants: Record<string, number | null> };
  beforeEach(() => {
    clock = createTestClock();
    programs = [];
    failing = false;
    session = { family: 'f', device: { id: 'd' }, grants: { terminal: null } };
  });

  const host = (over: Partial<Host> = {}) =>
    ({
      env: {},
      files: { stat: async () => null },
      children: { find: async (file: string) => (file === '/bin/sh' ? file : null) },
      terminals: {
        open: () => {
          if (failing) throw new Error('no more');
          const program = fakeTerminal(100 + programs.length);
          programs.push(program);
          return program.terminal;
        },
      },
      ...over,
    }) as unknown as Host;
  const create = (deps: Partial<TerminalsDeps> = {}) =>
    createTerminals({
      host: host(),
      config: { terminalShell: undefined, terminalTmux: false, terminalGraceSeconds: 600 },
      sessions: {
        byFamily: () => session,
        onEnd() {},
        onReduce() {},
        list: () => [],
        takeExpiredWhileDown: () => [],
      } as never,
      gate: { requireThawed() {}, onChange: () => () => {} },
      clock,
      log: createTestLog(),
      ...deps,
    });
  const connect = () => ({ isOpen: true, session }) as unknown as Connection;
  const program = (at = 0) => programs[at] as ReturnType<typeof fakeTerminal>;

  test.each([
    ['without a host', { host: undefined }, 'no-host'],
    ['without pseudo-terminals', { host: host({ terminals: undefined }) }, 'no-pty'],
    ['without a shell', { host: host({ children: { find: async () => null } as never }) }, 'no-shell'],
  ])('%s', async (_, deps, kind) => {
    const terminals = create(deps);
    const { viewer, seen } = createViewer();
    expect((await terminals.attach(connect(), { name: 'a', size: SIZE }, viewer)).kind).toBe(kind);
    expect(seen).toEqual([]);
  });

  test('a session that fails to start takes no place', async () => {
    const terminals = create();
    const connection = connect();
    failing = true;
    for (let attempt = 0; attempt < 100; attempt++) {
      const result = await terminals.attach(connection, { name: 'a', size: SIZE }, createViewer().viewer);
      expect(result.kind).toBe('failed');
    }
    failing = false;
    expect((await terminals.attach(connection, { name: 'a', size: SIZE }, createViewer().viewer)).kind).toBe(
      'attached',
    );
  });

  test("a freeze that is over before a run's shell has started ends it all the same (contract 09 §3)", async () => {
    const listeners = new Set<Parameters<TerminalsDeps['gate']['onChange']>[0]>();
    const onChange = (listener: Parameters<TerminalsDeps['gate']['onChange']>[0]) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    };
    const terminals = create({ gate: { requireThawed() {}, onChange } });
    const ofRun = createViewer();
    const own = createViewer();
    const attaching = [
      terminals.attach(connect(), { name: 'a', size: SIZE, runId: 'run-1' }, ofRun.viewer),
      terminals.attach(connect(), { name: 'b', size: SIZE }, own.viewer),
    ];
    for (const listener of listeners) listener({ frozen: true, since: 1, by: 'operator', reason: null });
    for (const listener of listeners) listener(undefined);
    await Promise.all(attaching);
    expect(ofRun.seen.at(-1)).toMatch(/^detached: frozen/);
    expect(own.seen).toEqual([expect.stringMatching(/^attached/)]);
    expect(listeners.size).toBe(1);
  });

  test('keeps characters whole across reads, and replaces invalid bytes', async () => {
    const terminals = create();
    const { viewer, seen } = createViewer();
    await terminals.attach(connect(), { name: 'a', size: SIZE }, viewer);
    const bytes = new TextEncoder().encode('\ufeffé漢🎈');
    for (const byte of bytes) {
      program().print(Uint8Array.of(byte));
      await clock.advanceAsync(20);
    }
    expect(seen.slice(1)).toEqual(['\ufeff', 'é', '漢', '🎈']);
    program().print(Uint8Array.of(0xff, 0x41, 0xe6));
    program().exit(3);
    expect(seen.slice(5)).toEqual(['\ufffdA', '\ufffd', 'detached: eof 3']);
  });

  test('a permanent write failure ends the session', async () => {
    const terminals = create();
    const { viewer, seen } = createViewer();
    await terminals.attach(connect(), { name: 'a', size: SIZE }, viewer);
    program().breakWriting();
    program().breakWriting();
    expect(seen).toEqual(['attached 100', 'detached: write failed']);
    await clock.advanceAsync(1_000);
    expect(program().done).toEqual(expect.arrayContaining(['SIGHUP', 'SIGKILL', 'close']));
  });

  test('a full socket pauses the program; a drained or closed one resumes it', async () => {
    const terminals = create();
    const connection = connect();
    const { viewer, limits } = createViewer();
    await terminals.attach(connection, { name: 'a', size: SIZE }, viewer);
    expect(limits()).toMatchObject({ high: 1024 * 1024, low: 256 * 1024 });
    limits()?.pause();
    expect(program().done.at(-1)).toBe('pause');
    limits()?.resume();
    expect(program().done.at(-1)).toBe('resume');
    limits()?.pause();
    terminals.release(connection, 'lost');
    expect(program().done.at(-1)).toBe('resume');
    expect(limits()).toBeUndefined();
  });

  describe('a window (contract 09 §1)', () => {
    const WINDOW = 16_384;
    const open = async (window?: number) => {
      const terminals = create();
      const connection = connect();
      const { viewer, seen } = createViewer();
      const attach = (window?: number) => terminals.attach(connection, { name: 'a', size: SIZE, window }, viewer);
      await attach(window);
      const length = () => seen.filter((text) => text.startsWith('x')).join('').length;
      return { terminals, connection, seen, attach, length };
    };

    test('stops reading when it is full, and goes on below a quarter', async () => {
      const { terminals, connection, length } = await open(WINDOW);
      program().print('x'.repeat(WINDOW - 1));
      expect(program().done).not.toContain('pause');
      program().print('x'.repeat(5_000));
      await clock.advanceAsync(20);
      expect(program().done.at(-1)).toBe('pause');
      expect(length()).toBe(WINDOW);
      terminals.acknowledge(connection, undefined, 5_000);
      expect(length()).toBe(WINDOW + 4_999);
      expect(program().done.at(-1)).toBe('pause');
      terminals.acknowledge(connection, 'a', WINDOW + 4_999);
      expect(program().done.at(-1)).toBe('resume');
    });

    test('another attach of the same socket counts anew, or no longer', async () => {
      const { terminals, connection, attach, seen, length } = await open(WINDOW);
      program().print('x'.repeat(WINDOW + 100));
      await attach(WINDOW);
      expect(seen.slice(-2)).toEqual(['attached 100 again', 'x'.repeat(100)]);
      expect(program().done.at(-1)).toBe('resume');
      program().print('x'.repeat(WINDOW));
      await clock.advanceAsync(20);
      expect(length()).toBe(2 * WINDOW);
      terminals.acknowledge(connection, 'a', WINDOW + 1);
      expect(length()).toBe(2 * WINDOW);
      await attach();
      expect(length()).toBe(2 * WINDOW + 100);
      program().print('x'.repeat(3 * WINDOW));
      await clock.advanceAsync(20);
      expect(length()).toBe(5 * WINDOW + 100);
      expect(program().done.at(-1)).toBe('resume');
    });

    test.each(['detach', 'exit'])('%s ends it: the text that was read is sent, then the farewell', async (end) => {
      const { terminals, connection, seen, length } = await open(WINDOW);
      program().print('x'.repeat(WINDOW + 100));
      if (end === 'detach') terminals.detach(connection, 'a', 'id');
      else program().exit(0);
      expect(length()).toBe(WINDOW + 100);
      expect(seen.at(-1)).toBe(end === 'detach' ? 'detached: client detach' : 'detached: eof 0');
      expect(program().done).toContain('resume');
    });

    test('a lost grant sends nothing more', async () => {
      const { terminals, connection, seen, length } = await open(WINDOW);
      program().print('x'.repeat(WINDOW + 100));
      terminals.release(connection, 'grant-lost');
      expect(length()).toBe(WINDOW);
      expect(seen.at(-1)).toBe('detached: grant expired');
    });

    test('input does not wait for it', async () => {
      const { terminals, connection } = await open(WINDOW);
      program().print('x'.repeat(WINDOW));
      terminals.input(connection, 'a', '\x03');
      expect(program().done.slice(-2)).toEqual(['pause', 'write \x03']);
    });

    test('acknowledgements without one, or of an unknown session, have no effect', async () => {
      const { terminals, connection, length } = await open();
      program().print('x'.repeat(2 * WINDOW));
      terminals.acknowledge(connection, 'a', 10);
      terminals.acknowledge(connection, 'b', 10);
      expect(length()).toBe(2 * WINDOW);
      expect(program().done).not.toContain('pause');
    });
  });

  test('a parked shell gets SIGHUP after 600 s, and SIGKILL a second later', async () => {
    const terminals = create();
    const connection = connect();
    await terminals.attach(connection, { name: 'a', size: SIZE }, createViewer().viewer);
    terminals.release(connection, 'lost');
    await clock.advanceAsync(599_999);
    expect(program().done).not.toContain('SIGHUP');
    await clock.advanceAsync(1);
    expect(program().done).toContain('SIGHUP');
    expect(program().done).not.toContain('SIGKILL');
    await clock.advanceAsync(1_000);
    expect(program().done).toContain('SIGKILL');
    expect(clock.pending).toBe(0);
  });

  test('a parked shell ends with its grant, if that ends first', async () => {
    session.grants.terminal = clock.now() / 1000 + 100;
    const terminals = create();
    const connection = connect();
    await terminals.attach(connection, { name: 'a', size: SIZE }, createViewer().viewer);
    terminals.release(connection, 'lost');
    await clock.advanceAsync(99_999);
    expect(program().done).not.toContain('SIGHUP');
    await clock.advanceAsync(1);
    expect(program().done).toContain('SIGHUP');
  });

  test('rations a parked program that floods', async () => {
    const terminals = create();
    const connection = connect();
    await terminals.attach(connection, { name: 'a', size: SIZE }, createViewer().viewer);
    terminals.release(connection, 'lost');
    program().print('x'.repeat(300 * 1024));
    expect(program().done.at(-1)).toBe('pause');
    await clock.advanceAsync(100);
    expect(program().done.at(-1)).toBe('resume');
  });

  test('a shell stays parked when its socket closes during the attach', async () => {
    const terminals = create();
    const first = connect();
    await terminals.attach(first, { name: 'a', size: SIZE }, createViewer().viewer);
    terminals.release(first, 'lost');
    const second = connect();
    const { viewer, seen } = createViewer();
    const attaching = terminals.attach(second, { name: 'a', size: SIZE }, viewer);
    terminals.release(second, 'lost');
    expect((await attaching).kind).toBe('gone');
    expect(seen).toEqual([]);
    const third = connect();
    const last = createViewer();
    await terminals.attach(third, { name: 'a', size: SIZE }, last.viewer);
    expect(last.seen[0]).toBe('attached 100 again');
    expect(programs).toHaveLength(1);
  });

  test.each([
    ['one after the other', 1, false],
    ['in the same turn', 1, true],
    ['one after the other', 2, false],
    ['in the same turn', 2, true],
  ])(
    'sockets that reconnect %s share the shells of silent ones, of which there are %i',
    async (_, count, isOneTurn) => {
      const terminals = create();
      const asked: ((answers: boolean) => void)[] = [];
      const answers = () => new Promise<boolean>((resolve) => asked.push(resolve));
      const answer = (count: number, isAlive: boolean) => {
        for (const resolve of asked.splice(0, count)) resolve(isAlive);
      };
      const attach = (connection: Connection) => {
        const { viewer, seen } = createViewer();
        return { seen, attached: terminals.attach(connection, { name: 'a', size: SIZE }, viewer) };
      };
      for (let at = 0; at < count; at++) {
        const { attached } = attach(Object.assign(connect(), { answers }));
        answer(at, true);
        await attached;
      }
      const [one, two] = [attach(connect()), attach(connect())];
      expect(asked).toHaveLength(2 * count);
      answer(isOneTurn ? 2 * count : count, false);
      await one.attached;
      answer(count, false);
      await two.attached;
      const shown = [...one.seen, ...two.seen].filter((text) => /^(?:at|de)tached/.test(text));
      expect(shown.sort()).toEqual(['attached 100 again', count === 2 ? 'attached 101 again' : 'attached 101']);
    },
  );

  test('nothing is left when a socket closes while its shell starts', async () => {
    const terminals = create();
    const connection = connect();
    const attaching = terminals.attach(connection, { name: 'a', size: SIZE }, createViewer().viewer);
    terminals.release(connection, 'lost');
    expect((await attaching).kind).toBe('gone');
    expect(programs).toHaveLength(0);
  });

  test('sends nothing but the farewell after a lost grant', async () => {
    const terminals = create();
    const connection = connect();
    const { viewer, seen } = createViewer();
    await terminals.attach(connection, { name: 'a', size: SIZE }, viewer);
    program().print('a');
    program().print('b');
    session.grants.terminal = 0;
    terminals.release(connection, 'grant-lost');
    program().print('c');
    await clock.advanceAsync(100);
    expect(seen).toEqual(['attached 100', 'a', 'detached: grant expired']);
  });

  test('shutdown waits for programs, within its limit', async () => {
    const terminals = create();
    const { viewer, seen } = createViewer();
    await terminals.attach(connect(), { name: 'a', size: SIZE }, viewer);
    let isOver = false;
    const stopping = terminals.stop().then(() => {
      isOver = true;
    });
    expect(seen.at(-1)).toBe('detached: server shutdown');
    await clock.advanceAsync(500);
    expect(isOver).toBe(false);
    program().exit(0);
    await stopping;
    expect((await terminals.attach(connect(), { name: 'a', size: SIZE }, viewer)).kind).toBe('gone');
  });
});
