import { describe, expect, test } from 'vitest';
import { run } from '../support/cli.ts';

const usage = [
  ['svc', ['nonsense'], "unknown command 'nonsense'"],
  ['svc', ['start'], "it is 'svc relay start'"],
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

  test('without a command: the help, then one line on stderr', async () => {
    for (const argv of [[], ['relay'], ['phone'], ['voice'], ['reach'], ['companion']]) {
      const { code, stdout, stderr } = await run(argv);
      expect(code).toBe(2);
      expect(stdout).toBe((await run([...argv, '--help'])).stdout);
      expect(stderr).toBe(`error: missing command after '${['svc', ...argv].join(' ')}'\n`);
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
