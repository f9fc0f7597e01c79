import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { selfSigned } from '../support/certificate.ts';
import { launch, runSvc, startRelayProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temp.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

interface Check {
  id: string;
  status: string;
  summary: string;
}

const statusOf = (stdout: string, id: string) =>
  (JSON.parse(stdout).checks as Check[]).find((check) => check.id === id)?.status;

it('07 §5.2: the doctor of a built tree finds a running relay, and reports a stopped one', async () => {
  const relay = await startRelayProcess();
  const words = ['relay', 'doctor', '--json', '--relay-port', String(relay.port)];
  const running = await runSvc(words, { home: relay.home });
  expect([running.code, running.stderr]).toEqual([0, '']);
  for (const id of ['plugin-root', 'relay-import-chain', 'relay-loopback', 'legacy-bootstrap']) {
    expect([id, statusOf(running.stdout, id)]).toEqual([id, 'ok']);
  }
  // 09 §4: the relay examines itself with the same checks. It alone knows the flag that says where it listens.
  const own = await relay.ask('/relay/doctor', { method: 'POST' });
  const verdicts = ({ checks }: { checks: Check[] }) =>
    checks.map(({ id, status }) => (id === 'relay-address' ? id : `${id} ${status}`));
  expect(verdicts(own.json)).toEqual(verdicts(JSON.parse(running.stdout)));
  await relay.kill();
  const ended = await runSvc(words, { home: relay.home });
  expect([ended.code, statusOf(ended.stdout, 'relay-loopback')]).toEqual([0, 'warn']);
});

it('tells what the running relay has of its machine (issue 16)', async (context) => {
  const folder = await temporaryDirectory();
  const { cert, key } = await selfSigned(context, folder);
  const env = { RELAY_SSL_CERT: cert, RELAY_SSL_KEY: key, PATH: folder };
  const relay = await startRelayProcess({ tls: true, env, descriptors: 200 });
  const words = ['relay', 'doctor', '--json', '--relay-port', String(relay.port)];
  const { stdout, stderr, code } = await runSvc(words, { home: relay.home, env });
  expect([code, stderr]).toEqual([0, '']);
  const rows = new Map((JSON.parse(stdout).checks as Check[]).map((check) => [check.id, check]));
  expect(rows.get('relay-tls')).toMatchObject({ status: 'warn', summary: expect.stringContaining('ends on') });
  // It listens on loopback by a flag, which this command cannot know.
  expect(rows.get('relay-address')).toMatchObject({ status: 'warn' });
  expect(rows.get('relay-devices')).toMatchObject({ status: 'ok', summary: expect.stringContaining('none is paired') });
  expect(rows.get('relay-tmux')).toMatchObject({ status: 'warn', summary: expect.stringContaining('not installed') });
  expect(rows.get('relay-descriptors')).toMatchObject({
    status: 'warn',
    summary: expect.stringMatching(/^the relay may open 200 files, and has \d+: too few/),
  });
  expect(rows.get('relay-node')).toMatchObject({
    status: 'ok',
    summary: expect.stringContaining(process.versions.node),
  });
  expect(rows.get('relay-disk')?.summary).toContain(relay.home);
  expect(rows.get('relay-service')).toMatchObject({ status: 'ok' });
});

it('07 §5.2: the doctor still works and reports it when the relay itself does not load', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'svc-relay-broken-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  for (const name of ['dist', 'package.json', 'plugin.yaml'])
    await cp(join(ROOT, name), join(directory, name), { recursive: true });
  await symlink(join(ROOT, 'node_modules'), join(directory, 'node_modules'));
  const program = await readFile(join(directory, 'dist/cli/svc.js'), 'utf8');
  const build = /import\('\.\.\/([0-9a-f]+)\/svc\.js'\)/.exec(program)?.[1] ?? 'none';
  await writeFile(join(directory, 'dist', build, 'relay.js'), "throw new Error('no native module');\n");
  const env = { SVC_HOME: join(directory, 'home'), HOME: directory, RELAY_PORT: '1', PATH: process.env.PATH ?? '' };
  const doctor = launch(process.execPath, [join(directory, 'dist/cli/svc.js'), 'relay', 'doctor'], env);
  expect(await doctor.ended).toEqual({ code: 1, signal: null });
  expect(doctor.stdout).toContain('[ERROR] relay-import-chain: the relay does not load: no native module');
  expect(doctor.stdout).toContain('Fix: Run npm install again');
});
