import { mkdir, readFile, truncate, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { expect, it } from 'vitest';
import { selfSigned } from '../support/certificate.ts';
import { SIGNED_IN, startDashboard, TRANSPORT } from '../support/dashboard.ts';
import { POLL, TIMEOUT } from '../support/limits.ts';
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

/** The plugin in a process of its own, from which only its memory is read. */
async function startDashboardProcess(relay: RelayProcess): Promise<{ url: string; peak(): Promise<number> }> {
  const port = await freePort();
  const options = { plugin: resolve('dist/cli/dashboard/plugin.js'), relayPort: relay.port, agentHome: relay.home };
  const script = resolve('test/bench/support/bare-dashboard.mjs');
  const child = launch(process.execPath, [script, String(port), JSON.stringify(options)], { HOME: relay.home });
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
    url: url + TRANSPORT,
    async peak() {
      const status = await readFile(`/proc/${child.pid}/status`, 'utf8');
      return Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) * 1024;
    },
  };
}

it.runIf(process.platform === 'linux')(
  '200 MiB of uploads and of ranges leave the memory of the dashboard flat',
  async () => {
    const relay = await startRelayProcess({ env: { RELAY_MEDIA_MAX_SIZE_MB: '4096' } });
    const headers = await pairedHeaders(relay);
    const { url, peak } = await startDashboardProcess(relay);
    const upload = async () => {
      const form = new FormData();
      form.append('file', new Blob([new Uint8Array(25 * MiB)], { type: 'application/octet-stream' }), 'a.bin');
      const answer = await fetch(`${url}/media/upload`, { method: 'POST', headers, body: form });
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
      const answer = await fetch(`${url}/media/${token}`, { headers: asked });
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
    const before = await peak();
    for (let count = 0; count < 8; count++) await upload();
    for (let count = 0; count < 4; count++) await range(count * 50 * MiB, 50 * MiB);
    const growth = (await peak()) - before;
    // Far below one of the bodies: nothing is gathered.
    expect(growth / MiB).toBeLessThan(24);
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
