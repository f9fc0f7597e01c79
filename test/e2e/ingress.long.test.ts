import { once } from 'node:events';
import { mkdir, readdir, readFile, truncate, writeFile } from 'node:fs/promises';
import { Agent, get, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { join, resolve } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { selfSigned } from '../support/certificate.ts';
import { MOUNT, SIGNED_IN, startDashboard, TRANSPORT } from '../support/dashboard.ts';
import { POLL, TIMEOUT } from '../support/limits.ts';
import { countMajors } from '../support/majors.ts';
import { freePort, launch, type RelayProcess, startRelayProcess } from '../support/process.ts';
import { temporaryDirectory } from '../support/temp.ts';

const MiB = 1024 * 1024;
const CODE = 'INGRES';

/** Pairs a device and returns the headers of its calls through the ingress. */
async function pairedHeaders(relay: RelayProcess): Promise<Record<string, string>> {
  const registered = await relay.ask('/pairing/register', { method: 'POST', body: { code: CODE } });
  expect(registered.status).toBe(200);
  const { frame, socket } = await relay.offer({ pairing_code: CODE, device_id: 'a', device_name: 'Phone' });
  socket.terminate();
  return { ...SIGNED_IN, 'x-svc-relay-session': frame.payload.session_token as string };
}

/** The plugin in a process of its own, which may open `descriptors` files. */
async function startDashboardProcess(
  { port: relayPort, home }: Pick<RelayProcess, 'port' | 'home'>,
  { descriptors = 1024, env = {} }: { descriptors?: number; env?: Record<string, string> } = {},
) {
  const port = await freePort();
  const options = { plugin: resolve('dist/cli/dashboard/plugin.js'), relayPort, agentHome: home };
  const script = resolve('test/bench/support/bare-dashboard.mjs');
  const limited = `ulimit -n ${descriptors}; exec "$0" "$@"`;
  const args = ['-c', limited, process.execPath, script, String(port), JSON.stringify(options)];
  const child = launch('/bin/sh', args, { HOME: home, ...env });
  const url = `http://127.0.0.1:${port}`;
  await expect
    .poll(
      () =>
        fetch(url).then(
          ({ status }) => status,
          () => 0,
        ),
      { timeout: TIMEOUT, interval: POLL },
    )
    .toBe(200);
  return {
    url,
    pid: child.pid,
    /** Number of files that it has open. */
    open: async (): Promise<number> => (await readdir(`/proc/${child.pid}/fd`)).length,
    /** Bytes of memory at most so far. */
    async peak(): Promise<number> {
      const status = await readFile(`/proc/${child.pid}/status`, 'utf8');
      return Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) * 1024;
    },
  };
}

it.runIf(process.platform === 'linux')(
  '200 MiB of uploads and of ranges leave the memory of the dashboard flat, and are carried without marking its heap',
  async () => {
    const relay = await startRelayProcess({ env: { RELAY_MEDIA_MAX_SIZE_MB: '4096' } });
    const headers = await pairedHeaders(relay);
    const majors = await countMajors();
    const { url, pid, peak } = await startDashboardProcess(relay, { env: majors.env });
    const media = `${url}${TRANSPORT}/media`;
    const upload = async () => {
      const form = new FormData();
      form.append('file', new Blob([new Uint8Array(25 * MiB)], { type: 'application/octet-stream' }), 'a.bin');
      const answer = await fetch(`${media}/upload`, { method: 'POST', headers, body: form });
      expect([answer.status, await answer.text().then((text) => text.slice(0, 200))]).toEqual([
        200,
        expect.any(String),
      ]);
    };
    const path = join(relay.home, 'workspace/film.mp4');
    await mkdir(join(relay.home, 'workspace'));
    await writeFile(path, '');
    await truncate(path, 200 * MiB);
    const body = { path, content_type: 'video/mp4' };
    const registered = await relay.ask('/media/register', { method: 'POST', body });
    expect(registered).toMatchObject({ status: 200 });
    const { token } = registered.json;
    const range = async (from: number, size: number) => {
      const asked = { ...headers, range: `bytes=${from}-${from + size - 1}` };
      const answer = await fetch(`${media}/${token}`, { headers: asked });
      expect([answer.status, answer.headers.get('content-range')]).toEqual([
        206,
        `bytes ${from}-${from + size - 1}/${200 * MiB}`,
      ]);
      let received = 0;
      for await (const part of answer.body as unknown as AsyncIterable<Uint8Array>) received += part.length;
      expect(received).toBe(size);
    };
    await upload();
    await range(0, 25 * MiB);
    const marked = await majors.start(pid);
    const before = await peak();
    for (let count = 0; count < 8; count++) await upload();
    for (let count = 0; count < 4; count++) await range(count * 50 * MiB, 50 * MiB);
    const growth = (await peak()) - before;
    // Far below one of the bodies: nothing is gathered.
    expect(growth / MiB).toBeLessThan(24);
    // V8 would do so every 8 MiB.
    expect(await marked()).toBeLessThan(10);
  },
);

it.runIf(process.platform === 'linux')(
  'answers its own routes again after the dashboard was short of descriptors',
  async () => {
    const descriptors = 96;
    const { url, open } = await startDashboardProcess({ port: 1, home: await temporaryDirectory() }, { descriptors });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    onTestFinished(() => agent.destroy());
    const status = async (path: string) => {
      const [answer] = (await once(get(url + path, { agent }), 'response')) as [IncomingMessage];
      await once(answer.resume(), 'end');
      return answer.statusCode;
    };
    // The connection is open before the others take every descriptor.
    expect(await status(`${TRANSPORT}/health`)).toBe(502);
    const { port } = new URL(url);
    const idle = Array.from({ length: descriptors }, () => connect(Number(port), '127.0.0.1').on('error', () => {}));
    onTestFinished(() => void idle.map((socket) => socket.destroy()));
    // The dashboard closes those for which no descriptor is left.
    await Promise.race(idle.map((socket) => once(socket, 'close')));
    expect(await status(`${MOUNT}/mobile/manifest`)).toBe(500);
    for (const socket of idle) socket.destroy();
    await expect.poll(open, { timeout: TIMEOUT, interval: POLL }).toBeLessThan(descriptors / 2);
    expect(await status(`${MOUNT}/mobile/manifest`)).toBe(200);
  },
);

it('a relay that is killed answers 502 meanwhile, and is reached again at once', async () => {
  const relay = await startRelayProcess();
  const headers = await pairedHeaders(relay);
  const { url } = await startDashboard({ relayPort: relay.port, agentHome: relay.home });
  const status = () => fetch(`${url}${TRANSPORT}/sessions`, { headers }).then((answer) => answer.status);
  expect(await status()).toBe(200);
  await relay.kill();
  expect(await status()).toBe(502);
  await relay.restart();
  expect(await status()).toBe(200);
});

it('reaches a relay with a certificate over TLS, pinned to that file', async (context) => {
  const directory = await temporaryDirectory();
  const { cert, key } = await selfSigned(context, directory);
  const env = { RELAY_SSL_CERT: cert, RELAY_SSL_KEY: key };
  const relay = await startRelayProcess({ env, tls: true });
  const { url } = await startDashboard({ relayPort: relay.port, agentHome: relay.home, env });
  const health = async () => {
    const answer = await fetch(`${url}${TRANSPORT}/health`, { headers: SIGNED_IN });
    return { status: answer.status, body: await answer.json() };
  };
  expect(await health()).toMatchObject({ status: 200, body: { status: 'ok', dashboard_ingress: { available: true } } });
  const other = await selfSigned(context, await temporaryDirectory());
  const wrong = await startDashboard({
    relayPort: relay.port,
    agentHome: relay.home,
    env: { RELAY_SSL_CERT: other.cert, RELAY_SSL_KEY: other.key },
  });
  const refused = await fetch(`${wrong.url}${TRANSPORT}/health`, { headers: SIGNED_IN });
  expect(refused.status).toBe(502);
  expect((await refused.json()).detail).toContain('does not present the certificate of RELAY_SSL_CERT');
});
