import { chmod, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { digestOf } from '../../lib/kit/sha256.ts';
import { labelOf } from '../../lib/reach/broker/label.ts';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { type BrokerPeer, type BrokerTarget, broker, type KnownHost } from '../support/broker.ts';
import { selfSigned } from '../support/certificate.ts';
import { ask, type Child, freePort, launch, runSvc, temporaryHome } from '../support/process.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli/svc.js', import.meta.url));
const mode = async (path: string) => ((await stat(path)).mode & 0o777).toString(8);

/** A broker process on a credentials file with two hosts. */
async function startBroker(more: string[] = []) {
  const home = await temporaryHome();
  const port = await freePort();
  const hosts: [KnownHost, KnownHost] = [
    { id: newId(), token: newToken() },
    { id: newId(), token: newToken() },
  ];
  const credentials = join(home, 'hosts.json');
  const list = (digests: string[][]) =>
    writeFile(
      credentials,
      JSON.stringify({
        hosts: Object.fromEntries(hosts.map(({ id }, index) => [id, { host_token_sha256: digests[index] }])),
      }),
      { mode: 0o600 },
    );
  await list(hosts.map(({ token }) => [digestOf(token)]));
  const state = join(home, 'state', 'routes.json');
  await mkdir(join(home, 'state'), { mode: 0o755 });
  const lives: Child[] = [];
  const begin = async () => {
    const flags = ['--credentials', credentials, '--state', state, '--port', String(port), '--insecure-dev', ...more];
    lives.push(launch(process.execPath, [PROGRAM, 'reach', 'start', ...flags], { HOME: home, SVC_HOME: home }));
    await lives.at(-1)?.prints(/is running/);
  };
  await begin();
  const target: BrokerTarget = {
    runtime: 'node',
    hosts,
    connectUrl: () => `ws://127.0.0.1:${port}/v1/connect`,
    fetch: (path) => fetch(`http://127.0.0.1:${port}${path}`),
    log: [],
    async restart() {
      await lives.at(-1)?.kill('SIGKILL');
      await begin();
    },
    stop: async () => {},
  };
  return { ...target, ...broker(target), home, state, credentials, list, begin, child: () => lives.at(-1) as Child };
}

const answerOf = async (peer: BrokerPeer) => {
  const { type, code } = await peer.next();
  return code ?? type;
};

it('§7.1: an acknowledged credential and a spent one survive kill -9, in private files', async () => {
  const target = await startBroker();
  const host = await target.host();
  const route = await target.publish(host);
  const spent = await target.publish(host, { uses: 1 });
  expect(await answerOf(await target.client(spent, 'bootstrap'))).toBe('matched');
  expect(await answerOf(host)).toBe('open');
  const last = await target.publish(host);
  await target.restart();
  await target.host();
  expect(await answerOf(await target.client(spent, 'bootstrap'))).toBe('replayed');
  for (const token of [route, last]) expect(await answerOf(await target.client(token))).toBe('matched');
  expect(await mode(join(target.home, 'state'))).toBe('700');
  const files = await readdir(join(target.home, 'state'));
  for (const name of files) expect(await mode(join(target.home, 'state', name)), name).toBe('600');
  const bytes = await Promise.all(files.map((name) => readFile(join(target.home, 'state', name))));
  for (const secret of [route, spent, target.hosts[0].token]) {
    expect(Buffer.concat(bytes).includes(secret)).toBe(false);
    expect(target.child().stderr).not.toContain(secret);
  }
});

it('§7.1: sets damaged state aside under another name, and starts empty', async () => {
  const target = await startBroker();
  await target.child().kill('SIGTERM');
  await writeFile(target.state, 'damaged '.repeat(200));
  await target.begin();
  const aside = (await readdir(join(target.home, 'state'))).find((name) => name.includes('.corrupt-')) as string;
  expect(await readFile(join(target.home, 'state', aside), 'utf8')).toContain('damaged damaged');
  await target.child().prints(/the state database was damaged.*the broker starts empty/);
  await target.host();
});

it('§7.1: SIGHUP reads the credentials again, and keeps the old ones when the file is bad', async () => {
  const target = await startBroker();
  const [first, second] = [await target.host(0), await target.host(1)];
  await chmod(target.credentials, 0o644);
  await writeFile(target.credentials, '{');
  target.child().signal('SIGHUP');
  await target.child().prints(/nothing was reloaded/);
  await target.child().prints(/others on this machine can read/);
  const next = newToken();
  await target.list([[digestOf(target.hosts[0].token), digestOf(next)], [digestOf(next)]]);
  target.child().signal('SIGHUP');
  expect(await answerOf(second)).toBe('unauthorized');
  expect(await second.closed()).toBe(1008);
  expect(first.closeCode).toBeUndefined();
  first.socket.terminate();
  const again = await target.register({
    host_id: target.hosts[0].id,
    role: 'host',
    credential_kind: 'host',
    token: next,
  });
  expect(['registered', 'host_busy']).toContain(await answerOf(again));
});

it('§7.1: refuses to start with exit codes and reasons', async () => {
  const home = await temporaryHome();
  const good = join(home, 'good.json');
  await writeFile(good, '{"hosts":{}}', { mode: 0o600 });
  await writeFile(
    join(home, 'raw.json'),
    JSON.stringify({ hosts: { [newId()]: { host_token_sha256: 'x'.repeat(64) } } }),
  );
  const start = (...words: string[]) => runSvc(['reach', 'start', ...words], { home });
  const results = await Promise.all([
    start(),
    start('--credentials', good),
    start('--credentials', good, '--insecure-dev', '--listen', '0.0.0.0'),
    start('--credentials', good, '--tls-cert', 'cert.pem'),
    start('--credentials', join(home, 'none.json'), '--insecure-dev'),
    start('--credentials', join(home, 'raw.json'), '--insecure-dev'),
    start('--credentials', good, '--tls-cert', good, '--tls-key', good),
  ]);
  expect(results.map(({ code }) => code)).toEqual([2, 2, 2, 2, 1, 1, 1]);
  expect(results[2]?.stderr).toContain('public listeners need TLS');
  expect(results[5]?.stderr).not.toContain('xxxx');
});

it('§7.1: serves TLS, stops in order on SIGTERM, and says how it is', async (context) => {
  const home = await temporaryHome();
  const { cert, key } = await selfSigned(context, home);
  const made = await runSvc(['reach', 'token', '--credentials', join(home, 'hosts.json'), '--json'], { home });
  const { host_id, token, host_token_sha256 } = JSON.parse(made.stdout);
  expect(digestOf(token)).toBe(host_token_sha256);
  const text = await runSvc(['reach', 'token', '--host-id', host_id], { home });
  expect(text.stdout.match(/wss:\S+/g)).toEqual([`wss://${labelOf(host_id)}.<name`]);
  const again = await runSvc(['reach', 'token', '--credentials', join(home, 'hosts.json'), '--host-id', host_id], {
    home,
  });
  expect(again.stdout).toContain('RELAY_SECURE_LINK_BROKER_HOST_TOKEN=');
  const { hosts } = JSON.parse(await readFile(join(home, 'hosts.json'), 'utf8'));
  expect(hosts[host_id].host_token_sha256).toHaveLength(2);
  expect(await mode(join(home, 'hosts.json'))).toBe('600');
  const port = await freePort();
  const flags = ['--credentials', join(home, 'hosts.json'), '--listen', '0.0.0.0', '--port', String(port)];
  const child = launch(process.execPath, [PROGRAM, 'reach', 'start', ...flags, '--tls-cert', cert, '--tls-key', key], {
    HOME: home,
    SVC_HOME: home,
  });
  await child.prints(/is running/);
  expect((await ask(`https://127.0.0.1:${port}/health`)).json).toMatchObject({ service: 'svc_reach' });
  const status = await runSvc(['reach', 'status', '--broker', `wss://localhost:${port}`, '--json'], {
    home,
    env: { NODE_EXTRA_CA_CERTS: cert },
  });
  expect(JSON.parse(status.stdout)).toMatchObject({ ok: true, hosts_online: 0 });
  expect(await child.kill('SIGTERM')).toEqual({ code: 0, signal: null });
});
