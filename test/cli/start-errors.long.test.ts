import { execFileSync } from 'node:child_process';
import { chown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { misspeltVariables } from '../../cli/misspelt.ts';
import { canBeNobody, NOBODY, squatAsNobody } from '../support/other-user.ts';
import { freePort, runSvc, startRelayProcess, temporaryHome } from '../support/process.ts';

it('names a variable that looks misspelt, and no other', () => {
  expect(
    misspeltVariables({ RELAY_PROT: '1', RELAY_PORT: '2', RELAY_RACE_TEAM: 'x', SVC_HOEM: '/', PROT: '' }),
  ).toEqual([
    'RELAY_PROT is unknown, and ignored: did you mean RELAY_PORT?',
    'SVC_HOEM is unknown, and ignored: did you mean SVC_HOME?',
  ]);
});

it('errors of start come last, with one next step (contract 07 §5.1)', async () => {
  const relay = await startRelayProcess();
  const { pid } = relay.child;
  const flags = ['relay', 'start', '--host', '127.0.0.1', '--port', String(relay.port)];
  const busy = await runSvc(flags, { env: { RELAY_PROT: '1' } });
  expect([busy.code, busy.stdout]).toEqual([1, '']);
  expect(busy.stderr).toMatch(/RELAY_PROT is unknown, and ignored: did you mean RELAY_PORT\?/);
  expect(busy.stderr).toMatch(
    new RegExp(
      `\\nerror: port ${relay.port} of 127\\.0\\.0\\.1 is in use by node svc\\.js \\(process ${pid}, user \\d+\\)\\n[^\\n]+--port\\.\\n$`,
    ),
  );
  const second = await runSvc(flags, { home: relay.home });
  expect(second.stderr).toMatch(
    new RegExp(`\\nerror: another relay \\(process ${pid}, port ${relay.port}\\) is running[^\\n]+\\n[^\\n]+\\n$`),
  );
  const home = await temporaryHome();
  const blocked = await runSvc(['relay', 'start'], { home, env: { RELAY_STATE_FILE: '/dev/null/state.db' } });
  expect(blocked.code).toBe(1);
  expect(blocked.stderr).toMatch(/\nerror: [^\n]+cannot be written: EEXIST\n[^\n]+SVC_HOME to another one\.\n$/);
});

it.skipIf(!canBeNobody).each([
  ['127.0.0.1', '[::1]', '::1'],
  ['127.0.0.1', '127.0.0.1', '127.0.0.1'],
  ['0.0.0.0', '[::1]', '::1'],
  ['::', '::', '127.0.0.1'],
  ['::1', '127.0.0.1', '127.0.0.1'],
])('contract 01 §9.1a: a relay on %s does not start while another user holds %s', async (host, named, held) => {
  const { port, pid } = await squatAsNobody(held);
  const { code, stderr } = await runSvc(['relay', 'start', '--host', host, '--port', String(port)]);
  expect(code).toBe(1);
  const address = named === '::' ? '\\[::\\]' : named.replace(/[.[\]]/g, '\\$&');
  expect(stderr).toMatch(
    new RegExp(
      `\\nerror: port ${port} of ${address} is in use by node \\(process ${pid}, user ${NOBODY}\\)\\n[^\\n]+--port\\.\\n$`,
    ),
  );
});

/** One line and one next step come last, and nothing after them. */
async function refusal(home: string, uid?: number): Promise<string> {
  const words = ['relay', 'start', '--host', '127.0.0.1', '--port', String(await freePort())];
  const { code, stdout, stderr } = await runSvc(words, { home, uid });
  expect([code, stdout]).toEqual([1, '']);
  const [error = '', next, ...rest] = stderr.slice(stderr.indexOf('error: ')).trimEnd().split('\n');
  expect([next, rest]).toEqual([expect.stringMatching(/\w/), []]);
  return `${error}\n${next}`;
}

it('a home that nothing can be written to ends the start at once', async () => {
  // Node's own `mkdir` of a path with its parents never ends there.
  expect(await refusal('/proc/nothing')).toMatch(/^error: \/proc\/nothing cannot be written: ENOENT\n.*SVC_HOME/);
  const folder = await temporaryHome();
  await writeFile(join(folder, 'file'), '');
  for (const home of ['file', 'file/below']) {
    expect(await refusal(join(folder, home))).toMatch(/cannot be written: ENOTDIR\n.*SVC_HOME/);
  }
  await mkdir(join(folder, 'state'));
  await writeFile(join(folder, 'state', 'svc-relay'), '');
  expect(await refusal(join(folder, 'state'))).toMatch(/cannot be written: EEXIST\n.*SVC_HOME/);
  const relative = await runSvc(['relay', 'start'], { home: 'some/home' });
  expect(relative).toMatchObject({ code: 2, stdout: '' });
  expect(relative.stderr).toMatch(/^error: SVC_HOME is relative \('some\/home'\): set it to .*\/some\/home\n.*\n$/);
});

it.each([
  ['companion run', 1, /companion\/settings\.json.*ENOENT.*\n.*--settings/],
  ['companion status', 1, /ENOENT.*\n.*--settings/],
  ['relay compat install', 1, /cannot be written: ENOENT\n.*SVC_HOME/],
  ['relay operator-token --public-key', 1, /operator key: ENOENT.*\n.*SVC_HOME/],
  ['reach token --credentials /proc/nothing/hosts.json', 1, /ENOENT.*\n.*permissions/],
  ['status', 1, /^$/],
])('svc %s ends too in a home below /proc', async (words, expected, message) => {
  const { code, stderr } = await runSvc(words.split(' '), { home: '/proc/nothing', env: { RELAY_PORT: '1' } });
  expect(code).toBe(expected);
  expect(stderr).toMatch(message);
});

it.skipIf(!canBeNobody)('the home of another user, and a state file of another user', async () => {
  const home = await temporaryHome();
  expect(await refusal(home, NOBODY)).toMatch(/cannot be written: EACCES\n.*SVC_HOME/);
  await mkdir(join(home, 'svc-relay'));
  await writeFile(join(home, 'svc-relay', 'state.db'), 'x'.repeat(5000), { mode: 0o600 });
  for (const folder of [home, join(home, 'svc-relay')]) await chown(folder, NOBODY, NOBODY);
  expect(await refusal(home, NOBODY)).toMatch(/state\.db cannot be written: EACCES\n.*(user|SVC_HOME)/);
});

it('a full disk', async (context) => {
  const home = await temporaryHome();
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', home], { stdio: 'pipe' });
  } catch (error) {
    process.stderr.write(`SKIPPED: no small file system can be mounted: ${error}\n`);
    return context.skip();
  }
  onTestFinished(() => void execFileSync('umount', [home]));
  await writeFile(join(home, 'fill'), Buffer.alloc(60 * 1024));
  const state = join(home, 'svc-relay', 'state.db');
  expect(await refusal(home)).toBe(
    `error: no space is left for ${state}\nMake room on that disk, and try again. See the disks with: df -h`,
  );
});
