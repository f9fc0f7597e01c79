import { EventEmitter } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { afterAll, beforeAll, describe, expect, type TestContext, test } from 'vitest';
import { actionsOf, nameOf, type ProgramName } from '../../cli/commands.ts';
import { main } from '../../cli/main.ts';
import { readRelayLock } from '../../lib/host/node/relay-lock.ts';
import { selfSigned } from '../support/certificate.ts';
import { agentHome, run } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { everyAction, misfits, type TypedCommand, uncalled } from '../support/command-table.ts';
import { paired } from '../support/companion-cli.ts';
import { type EdgeRuntime, startEdgeRuntime } from '../support/edge-runtime.ts';
import { startRelayProcess } from '../support/process.ts';

/** Milliseconds after which a command that goes on by itself, such as a server, is stopped. */
const STOP_AFTER = 1500;
/** Milliseconds in which every command has to end after that, however busy the machine is. */
const TIMEOUT = 60_000;
const DEVICE = 'A phone with a long name in the kitchen';

/** The only folder in which commands find programs: no systemd, tmux or player of this machine has a say. */
let programs: string;
let path: string | undefined;
beforeAll(() => {
  path = process.env.PATH;
  programs = mkdtempSync(join(tmpdir(), 'svc-programs-'));
});
afterAll(() => rmSync(programs, { recursive: true, force: true }));

const environment = (home: string, port: number) => ({
  HOME: home,
  SVC_HOME: home,
  PATH: programs,
  RELAY_HOST: '127.0.0.1',
  RELAY_PORT: String(port),
  SVC_API_URL: 'http://127.0.0.1:1',
  SVC_DASHBOARD_URL: 'http://127.0.0.1:1',
  RELAY_UPDATE_FEED_URL: 'http://127.0.0.1:1/',
});

/** Words for the arguments that a command needs, and for those that it would otherwise choose itself. */
function argumentsOf({ words, entry }: TypedCommand, home: string): string[] {
  const [, action] = words;
  if (words[0] === 'devices' && action !== undefined && !['list', 'watch'].includes(action)) {
    return [DEVICE, ...(action === 'rename' ? [DEVICE] : []), ...(action === 'reduce' ? ['--ttl', '2h'] : [])];
  }
  const names = [...entry.usage.matchAll(/[<[](\w+)[>\]]/g)].map(([, name]) => name as string);
  // An action is the first argument.
  return names.slice(actionsOf(entry).length > 0 && words.at(-1) !== nameOf(entry) ? 1 : 0).flatMap((name) => {
    if (name === 'file') return [join(home, 'recording.wav')];
    return { text: ['Hello there'], shell: ['bash'] }[name] ?? [];
  });
}

interface Setting {
  env: Record<string, string>;
  /** Of the terminal; without it there is none. */
  columns?: number;
  npx?: boolean;
}

interface Ended {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs one command line. A terminal answers what is asked with `q` and ends its input; a pipe is empty. */
async function walk(program: ProgramName, argv: string[], { env, columns, npx }: Setting): Promise<Ended> {
  const written = { stdout: '', stderr: '' };
  const writer = (name: 'stdout' | 'stderr') => ({
    isTTY: columns !== undefined,
    columns,
    rows: 50,
    write: (text: string) => {
      written[name] += text;
    },
  });
  let isAnswered = false;
  const stdin = Object.assign(new EventEmitter(), {
    isTTY: columns !== undefined,
    setRawMode: () => {},
    pause: () => {},
    resume() {
      if (isAnswered) return;
      isAnswered = true;
      setImmediate(() => {
        // A terminal shows what is typed.
        if (columns !== undefined) {
          written.stderr += 'q\n';
          stdin.emit('data', Buffer.from('q\n'));
        }
        setImmediate(() => stdin.emit('end'));
      });
    },
  });
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), STOP_AFTER);
  let limit: NodeJS.Timeout | undefined;
  const hung = new Promise<never>((_, reject) => {
    limit = setTimeout(() => reject(new Error(`'${argv.join(' ')}' does not end`)), TIMEOUT);
  });
  process.env.PATH = programs;
  try {
    const ended = main(argv, program, {
      stdin: stdin as never,
      stdout: writer('stdout'),
      stderr: writer('stderr'),
      env,
      stop: stop.signal,
      isRunByNpm: npx,
    });
    return { code: await Promise.race([ended, hung]), ...written };
  } finally {
    clearTimeout(timer);
    clearTimeout(limit);
    process.env.PATH = path;
  }
}

/** The cursor of a screen that is drawn anew. */
const TO_TOP = '\u001b[H';

/** Lines that stay whole: those that the relay has logged, and a setting to copy. */
const WHOLE = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[|^ *[A-Z_]+ = "/;

/** Whatever is wrong with a text on a terminal, apart from what it says. */
function flaws({ code, stdout, stderr }: Ended, { columns = 80 }: Setting): string[] {
  const rows = (stdout + stderr)
    .replaceAll(TO_TOP, '\n')
    .split(/[\r\n]/)
    .map(stripVTControlCharacters);
  const text = rows.filter((row) => !WHOLE.test(row)).join('\n');
  const last = (stderr.trim() === '' ? stdout : stderr).trimEnd().split('\n').at(-1) ?? '';
  return [
    ...misfits(text, columns).map((row) => `wider than ${columns} columns: ${row}`),
    ...uncalled(text).map((row) => `without npx: ${row}`),
    ...(text.match(/.*(?:\bundefined\b|\bnull\b|\bNaN\b|\[object |\bE[A-Z]{4,}: |\n\s+at ).*/g) ?? []),
    ...(code !== 0 && /^error: /.test(last) ? [`no next step after: ${last}`] : []),
    ...(code === 0 || code === 1 || code === 2 || code === 4 ? [] : [`exit code ${code}`]),
  ];
}

/** Commands in a text that take `--relay`, and do not name this one. */
function unaimed(text: string, url: string): string[] {
  const words = everyAction.filter(({ entry }) => entry.target === 'relay').map((command) => command.words.join(' '));
  const longest = [...new Set(words)].sort((a, b) => b.length - a.length);
  const named = new RegExp(`(?<![.\\w-])svc (?:${longest.join('|')})(?![\\w-]| --help).{0,${url.length + 20}}`, 'g');
  return (text.replace(/\s+/g, ' ').match(named) ?? []).filter((part) => !part.includes(`--relay ${url}`));
}

/** The JSON documents on stdout: of a command that follows something, one a line. */
function documents(stdout: string): Record<string, unknown>[] {
  try {
    return [JSON.parse(stdout)];
  } catch {
    return stdout
      .trimEnd()
      .split('\n')
      .map((row) => JSON.parse(row));
  }
}

const FOLLOWS = ['devices watch', 'voice talk'];

describe('every command of the table, without a relay (contract 11 §1)', () => {
  test('with --json: one document on stdout, nothing on stderr, a next step in every failure', async () => {
    const port = await closedPort();
    for (const command of everyAction) {
      const home = agentHome();
      const argv = [...command.words, ...argumentsOf(command, home), '--json'];
      const { code, stdout, stderr } = await walk(command.program, argv, { env: environment(home, port) });
      const [document, ...more] = documents(stdout);
      expect([more, stderr], argv.join(' ')).toEqual([[], '']);
      expect([0, 1, 2], argv.join(' ')).toContain(code);
      if (code === 0) continue;
      expect(document, argv.join(' ')).toMatchObject({ ok: false, next: expect.stringMatching(/\S/) });
      // `svc status` has its error in what it says of the relay.
      const error = document?.error ?? (document?.relay as Record<string, unknown>)?.error;
      expect(error, argv.join(' ')).toEqual(expect.stringMatching(/\S/));
    }
    expect(everyAction.length).toBeGreaterThan(100);
  });

  test.each([60, 80, 120])('on a terminal of %i columns: rows fit, a failure ends with what to do', async (columns) => {
    const port = await closedPort();
    for (const command of everyAction) {
      const home = agentHome();
      const argv = [...command.words, ...argumentsOf(command, home)];
      const setting = { env: environment(home, port), columns, npx: true };
      const ended = await walk(command.program, argv, setting);
      const isScript = command.words[0] === 'completion';
      expect(isScript ? [] : flaws(ended, setting), argv.join(' ')).toEqual([]);
    }
  });

  test('in a pipe: no colours, and nothing waits for an answer', async () => {
    const port = await closedPort();
    for (const command of everyAction) {
      const home = agentHome();
      const argv = [...command.words, ...argumentsOf(command, home)];
      const { stdout, stderr } = await walk(command.program, argv, { env: environment(home, port) });
      expect(stripVTControlCharacters(stdout + stderr), argv.join(' ')).toBe(stdout + stderr);
    }
  });
});

/** Commands that call a relay. */
const callers = everyAction.filter(({ entry, words }) => entry.target === 'relay' || (entry.asksRelay && words));

describe.each(['on another port', 'over https', 'at the edge'])(
  'every command that calls a relay, %s (contract 11 §1)',
  (where) => {
    const isEdge = where === 'at the edge';
    let runtime: EdgeRuntime | undefined;
    afterAll(() => runtime?.stop());

    /** A relay with a device, and how commands find it: by its lock, and at the edge by `--relay`. */
    async function relay(context: TestContext): Promise<{ home: string; aim: string[] }> {
      const home = agentHome();
      let aim: string[] = [];
      if (isEdge) {
        const { stdout } = await run(['relay', 'operator-token', '--public-key'], { env: { SVC_HOME: home } });
        await runtime?.stop();
        runtime = await startEdgeRuntime({ RELAY_OPERATOR_PUBLIC_KEY: stdout.trim(), RELAY_HOSTS: '' });
        aim = ['--relay', runtime.origin('127.0.0.1')];
      } else {
        const tls = where === 'over https';
        const { cert, key } = tls ? await selfSigned(context, home) : {};
        const env = {
          SVC_API_URL: 'http://127.0.0.1:1',
          ...(cert && key && { RELAY_SSL_CERT: cert, RELAY_SSL_KEY: key }),
        };
        const { port } = await startRelayProcess({ home, tls, env });
        // Health answers a moment before the lock is there.
        await expect.poll(() => readRelayLock(join(home, 'svc-relay/state.db'))).not.toBeNull();
        if (!tls) await paired(port);
      }
      const made = await run(['pair', '--token', '--name', DEVICE, ...aim], { env: environment(home, 1) });
      expect([made.code, made.stderr]).toEqual([0, expect.not.stringContaining('error')]);
      return { home, aim };
    }

    const commands = callers.filter(({ entry }) => !isEdge || entry.target === 'relay');
    const lineOf = (command: TypedCommand, home: string, aim: string[]) => [
      ...command.words,
      ...argumentsOf(command, home),
      ...(command.entry.target === 'relay' ? aim : []),
    ];

    test('with --json: JSON alone', async (context) => {
      const { home, aim } = await relay(context);
      for (const command of commands) {
        const argv = [...lineOf(command, home, aim), '--json'];
        const { code, stdout, stderr } = await walk(command.program, argv, { env: environment(home, 1) });
        const all = documents(stdout);
        if (!FOLLOWS.includes(command.words.join(' '))) expect(all.length, argv.join(' ')).toBe(1);
        if (code === 0) expect(stderr, argv.join(' ')).toBe('');
        const { ok, next } = all.at(-1) ?? {};
        if (code !== 0 && ok === false) expect(next, argv.join(' ')).toEqual(expect.stringMatching(/\S/));
        if (isEdge && typeof next === 'string') expect(unaimed(next, aim[1] as string), argv.join(' ')).toEqual([]);
      }
    });

    test.for([60, 80, 120])(
      'on a terminal of %i columns: rows fit, next steps mean the same relay',
      async (columns, context) => {
        const { home, aim } = await relay(context);
        for (const command of commands) {
          const argv = lineOf(command, home, aim);
          const setting = { env: environment(home, 1), columns, npx: true };
          const ended = await walk(command.program, argv, setting);
          expect(flaws(ended, setting), argv.join(' ')).toEqual([]);
          if (!isEdge) continue;
          const text = stripVTControlCharacters(ended.stdout + ended.stderr);
          expect(unaimed(text, aim[1] as string), argv.join(' ')).toEqual([]);
          // Nothing of the machine that a relay of one's own runs on.
          expect(text, argv.join(' ')).not.toMatch(/svc (?:relay )?(?:up|start|restart|stop)\b|systemctl|journalctl/);
        }
      },
    );
  },
);
