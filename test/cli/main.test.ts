import { describe, expect, test } from 'vitest';
import { nestedPrograms, type ProgramName } from '../../cli/commands.ts';
import { agentHome, run } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { everyCommand, misfits, uncalled } from '../support/command-table.ts';

const usage = [
  ['svc', ['nonsense'], "unknown command 'nonsense'"],
  ['svc', ['secure-link'], "it is 'svc relay secure-link'"],
  ['svc', ['devcies'], "did you mean 'devices'?"],
  ['svc', ['realy', 'start'], "did you mean 'relay'?"],
  ['svc', ['devices', 'wacth'], "did you mean 'watch'?"],
  ['svc', ['devices', '--jsno'], "did you mean '--json'?"],
  ['svc', ['relay', 'pair'], "it is 'svc pair'"],
  ['svc', ['relay', 'nonsense'], "unknown command 'nonsense'"],
  ['svc-relay', ['relay', 'start'], "unknown command 'relay'"],
  ['svc', ['--nonsense'], 'unknown option --nonsense'],
  ['svc', ['pair', '--nonsense'], 'unknown option --nonsense'],
  ['svc', ['pair', '-x'], 'unknown option -x'],
  ['svc', ['pair', '--no-json'], 'unknown option --no-json'],
  ['svc', ['pair', '--tt', '1d'], 'unknown option --tt'],
  ['svc', ['pair', 'surplus'], "unexpected argument 'surplus'"],
  ['svc', ['pair', '--', '--ttl'], "unexpected argument '--ttl'"],
  ['svc', ['pair', '--ttl'], '--ttl needs a value'],
  ['svc', ['pair', '--ttl='], '--ttl needs a value'],
  ['svc', ['pair', '--ttl', '--no-qr'], '--ttl needs a value'],
  ['svc', ['pair', '--ttl', '1d', '--ttl', '2d'], '--ttl is given more than once'],
  ['svc', ['pair', '--png=1'], '--png takes no value'],
  ['svc', ['pair', '--no-qr=0'], '--no-qr takes no value'],
  ['svc', ['pair', '--qr'], 'unknown option --qr'],
  ['svc', ['relay', 'insecure-api-key', 'on', 'off'], "unexpected argument 'off'"],
] as const;

/** The words of a text, wherever its lines break. */
const plain = (text: string): string => text.replace(/(?:\\\n|[\s#])+/g, ' ');

describe('wrong command lines: one line, a hint, exit 2 (07 §5)', () => {
  test.each(usage)('%s %j', async (program, argv, message) => {
    const { code, stdout, stderr } = await run([...argv], { program });
    expect(code).toBe(2);
    expect(stdout).toBe('');
    const [first, second, ...rest] = stderr.trimEnd().split('\n');
    expect(first).toMatch(/^error: /);
    expect(first).toContain(message);
    expect(second).toMatch(/^Run 'svc.* --help' for help\.$/);
    expect(rest).toEqual([]);
  });

  test('without a command: the help, as after help', async () => {
    for (const argv of [[], ['relay'], ['phone'], ['voice'], ['reach'], ['companion']]) {
      const { code, stdout, stderr } = await run(argv);
      expect([code, stderr]).toEqual([0, '']);
      expect(stdout).toBe((await run([...argv, '--help'])).stdout);
      expect(stdout).toBe((await run(['help', ...argv])).stdout);
    }
    expect((await run(['help', 'relay', 'start'])).stdout).toBe((await run(['relay', 'start', '--help'])).stdout);
  });

  test('with --json, a wrong command line is one document on stdout (11 §1, §7)', async () => {
    const wrong = ['svc', 'svc-relay'].flatMap((program) => [{ program, words: ['nonsense'] }]);
    for (const { program, words } of [...everyCommand, ...wrong, { program: 'svc', words: ['relay', 'nonsense'] }]) {
      const { code, stdout, stderr } = await run([...words, '--json', '--nonsense'], { program: program as 'svc' });
      expect([code, stderr], words.join(' ')).toEqual([2, '']);
      expect(JSON.parse(stdout), words.join(' ')).toEqual({
        ok: false,
        error: expect.stringMatching(/^unknown (option|command) /),
        next: expect.stringMatching(/^Run 'svc.* --help' for help\.$/),
      });
    }
  });

  test('with --json, a relay that does not answer is one document on stdout (11 §1)', async () => {
    const env = { SVC_HOME: agentHome(), RELAY_PORT: String(await closedPort()) };
    for (const words of [
      ['pair'],
      ['pair', '--web'],
      ['devices'],
      ['devices', 'watch'],
      ['logs', '-f'],
      ['phone', 'send', 'Hello'],
      ['phone', 'list'],
      ['relay', 'insecure-api-key'],
      ['relay', 'secure-link'],
      ['mcp', 'pair'],
      ['voice', 'doctor'],
      ['reach', 'status'],
      ['console'],
      ['freeze'],
    ]) {
      const { code, stdout, stderr } = await run([...words, '--json'], { env });
      expect([code, stderr], words.join(' ')).toEqual([1, '']);
      expect(JSON.parse(stdout), words.join(' ')).toMatchObject({ ok: false, next: expect.stringContaining('svc') });
      expect(JSON.parse(stdout).error, words.join(' ')).toContain(env.RELAY_PORT);
    }
  });

  test('an invalid variable of the listener is a usage error', async () => {
    const { code, stderr } = await run(['pair'], { env: { SVC_HOME: '/nonexistent', RELAY_PORT: 'abc' } });
    expect(code).toBe(2);
    expect(stderr).toMatch(/^error: Invalid RELAY_PORT/);
  });
});

describe('help and version', () => {
  test.each([
    ['svc', ['--help'], ['pair', 'relay <command>']],
    [
      'svc',
      ['relay', '--help'],
      ['start', 'doctor', 'service [action]', 'profiles [action]', 'compat', 'update-check', 'operator-token'],
    ],
    ['svc-relay', ['--help'], ['pair', 'start', 'operator-token']],
    ['svc', ['help', 'pair'], ['--ttl <duration>', '--no-qr']],
    ['svc', ['pair', '-h'], ['Examples:', 'svc pair --ttl 7d']],
    ['svc', ['pair', '--nonsense', '--help'], ['Usage:']],
    ['svc', ['relay', 'start', '--help'], ['svc relay start', 'Examples:']],
    ['svc', ['relay', 'insecure-api-bearer', '--help'], ['svc relay insecure-api-key', 'Aliases:']],
    ['svc', ['relay', 'doctor', '--help'], ['svc relay doctor --strict', '--timeout <seconds>']],
    ['svc', ['relay', 'help', 'compat'], ['svc relay compat [action]', '--hook-dir', 'Examples:']],
    ['svc-relay', ['profiles', '--help'], ['svc-relay profiles [action] [...profiles]', '--dry-run']],
    ['svc-relay', ['operator-token', '--help'], ['svc-relay operator-token', '--public-key']],
  ] as const)('%s %j', async (program, argv, texts) => {
    const { code, stdout, stderr } = await run([...argv], { program });
    expect([code, stderr]).toEqual([0, '']);
    for (const text of texts) expect(stdout).toContain(text);
    expect(stdout.split('\n').every((row) => row.length <= 80)).toBe(true);
  });

  test.each([60, 80])(
    'every help fits %i columns, breaks between words, and names commands as they were called',
    async (columns) => {
      const all: { program: ProgramName; words: string[] }[] = [
        { program: 'svc', words: [] },
        { program: 'svc-relay', words: [] },
        ...Object.keys(nestedPrograms).map((word) => ({ program: 'svc' as const, words: [word] })),
        ...everyCommand,
      ];
      expect(all.length).toBeGreaterThan(80);
      for (const { program, words } of all) {
        const given = [...words, '--help'];
        const { code, stdout, stderr } = await run(given, { program, tty: true, columns, isRunByNpm: true });
        expect([code, stderr], words.join(' ')).toEqual([0, '']);
        expect(misfits(stdout, columns), words.join(' ')).toEqual([]);
        expect(stdout, words.join(' ')).toContain(`Usage:\n  npx ${program}`);
        expect(uncalled(stdout), words.join(' ')).toEqual([]);
        // Only what is broken differs from the help in a pipe.
        const piped = await run(given, { program, isRunByNpm: true });
        if (columns === 80) expect(stdout, words.join(' ')).toBe(piped.stdout);
        expect(plain(stdout), words.join(' ')).toBe(plain(piped.stdout));
      }
    },
  );

  test('--version works everywhere', async () => {
    for (const argv of [['--version'], ['-v'], ['relay', '--version'], ['relay', 'start', '--version']]) {
      expect(await run(argv)).toEqual({
        code: 0,
        stdout: expect.stringMatching(/^svc-relay \d+\.\d+\.\d+\n$/),
        stderr: '',
      });
    }
  });
});
