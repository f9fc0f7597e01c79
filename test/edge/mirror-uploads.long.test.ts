import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { run } from '../support/cli.ts';
import { connect } from '../support/client.ts';
import { startEdgeRuntime } from '../support/edge-runtime.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { form } from '../support/media.ts';
import { launchSvc, startRelayProcess, temporaryHome } from '../support/process.ts';

/** The name of the relay at the edge, as nothing names another one. */
const RELAY = 'svc-relay';
const MiB = 1024 * 1024;
/** Bytes of a link after which its network stalls: amid an upload of 60 MiB that follows one of 3. */
const HALF_WAY = 30 * MiB;

/** Home in a process of its own, the edge in its runtime behind a network that may stall, and a phone with credentials of both. */
async function open() {
  const agentHome = await temporaryHome();
  const env: Record<string, string> = { SVC_HOME: agentHome, HOME: agentHome };
  const { stdout: key } = await run(['relay', 'operator-token', '--public-key'], { env });
  const runtime = await startEdgeRuntime({ RELAY_OPERATOR_PUBLIC_KEY: key.trim(), RELAY_HOSTS: '' });
  onTestFinished(() => runtime.stop());
  const direct = runtime.origin('127.0.0.1');
  const proxy = await startFlakyProxy({
    port: Number(new URL(direct).port),
    seed: 1,
    faults: ['none'],
    after: [HALF_WAY, HALF_WAY],
  });
  onTestFinished(() => proxy.close());
  const edge = `http://127.0.0.1:${proxy.port}`;
  const home = await startRelayProcess({ home: agentHome });
  env.RELAY_PORT = String(home.port);
  const svc = (...words: string[]) => run(words, { env });
  const json = async (...words: string[]) => JSON.parse((await svc(...words, '--json')).stdout);
  const token = (await svc('pair', '--token', '--name', 'phone', '--only', 'files,phone')).stdout.trim();
  await svc('relay', 'mirror', 'enable', '--relay', edge);
  const status = () => json('relay', 'mirror', 'status');
  await expect
    .poll(async () => {
      const { link, waiting } = await status();
      return [link, waiting];
    })
    .toEqual(['up', { out: 0, in: 0 }]);
  const mailbox = async (): Promise<string> => {
    const client = await connect(`${home.url.replace('http', 'ws')}/ws`);
    client.send('system', 'auth', { session_token: token });
    const { mailbox } = (await client.next({ type: 'auth.ok' })).payload as { mailbox: { session_token: string } };
    client.terminate();
    return mailbox.session_token;
  };
  const there = await mailbox();
  const call =
    (url: string, bearer: string) =>
    (path: string, init: RequestInit = {}) =>
      fetch(`${url}${path}`, {
        ...init,
        headers: { authorization: `Bearer ${bearer}`, connection: 'close', ...init.headers },
      });
  const [atHome, atEdge] = [call(home.url, token), call(direct, there)];
  return {
    home,
    runtime,
    env,
    svc,
    json,
    status,
    proxy,
    edge,
    there,
    atHome,
    atEdge,
    /** Uploads at the edge, and returns the token. */
    async upload(bytes: Uint8Array): Promise<string> {
      const response = await atEdge('/media/upload', { method: 'POST', body: form(bytes) });
      const answer = await response.json();
      expect([response.status, answer]).toMatchObject([200, { ok: true, expires_at: expect.any(Number) }]);
      return answer.token;
    },
    objects: () => runtime.objects(RELAY),
    /** Files that home has, whole or not. */
    files: () => readdir(join(agentHome, 'svc-relay-uploads')).catch(() => []),
    inspected: async (): Promise<string[]> =>
      (await home.ask('/media/inspect')).json.media.map(({ token }: { token: string }) => token),
  };
}

type Scene = Awaited<ReturnType<typeof open>>;

/** True when home serves a token byte for byte. */
async function isAtHome({ atHome }: Scene, token: string, bytes: Uint8Array): Promise<boolean> {
  const response = await atHome(`/media/${token}`);
  return response.status === 200 && Buffer.compare(Buffer.from(await response.arrayBuffer()), bytes) === 0;
}

describe('uploads while home is off (contract 12 §2)', () => {
  it('wait at the edge; home has them byte for byte under the same token, though it is killed in the middle', async () => {
    const scene = await open();
    const { home, proxy, atEdge, objects, files, status, svc } = scene;
    await home.kill();
    const [picture, film] = [randomBytes(3 * MiB), randomBytes(60 * MiB)];
    const [small, large] = [await scene.upload(picture), await scene.upload(film)];
    expect((await objects()).length).toBe(2);

    // The edge serves a waiting upload, also in part.
    const part = await atEdge(`/media/${small}`, { headers: { range: 'bytes=10-19' } });
    expect([part.status, Buffer.from(await part.arrayBuffer())]).toEqual([206, picture.subarray(10, 20)]);
    // A reply names it.
    const phone = await connect(`${scene.edge.replace('http', 'ws')}/ws`);
    phone.send('system', 'auth', { session_token: scene.there });
    await phone.next({ type: 'auth.ok' });
    phone.send('proactive', 'proactive.reply', { text: `MEDIA:svc-relay://${small}`, message_id: 'r1' }, 'reply');
    await phone.next({ id: 'reply' });
    phone.terminate();

    // Killed in the middle of the second one, twice.
    proxy.plan(['stall']);
    for (let kills = 0; kills < 2; kills++) {
      await home.restart();
      await expect
        .poll(async () => [(await home.ask('/relay/mirror')).json.uploads.count, (await files()).length])
        .toEqual([1, 2]);
      await home.kill();
      expect((await objects()).length).toBe(1);
    }
    proxy.plan(['none']);
    await home.restart();
    expect((await home.ask('/phone/replies?timeout=25')).json.replies).toMatchObject([
      { text: `MEDIA:svc-relay://${small}` },
    ]);
    await expect.poll(objects, { timeout: 300_000 }).toEqual([]);
    await expect.poll(async () => (await status()).uploads).toEqual({ count: 0, bytes: 0 });
    expect([await isAtHome(scene, small, picture), await isAtHome(scene, large, film)]).toEqual([true, true]);
    expect((await scene.inspected()).sort()).toEqual([small, large].sort());
    // Nothing of the killed processes is left.
    expect((await files()).length).toBe(2);

    // A device at the mailbox is told where it is now.
    const answer = async (path: string) => {
      const response = await atEdge(path);
      return [response.status, (await response.json()).error_code];
    };
    expect(await answer(`/media/${small}`)).toEqual([503, 'home_only']);
    await home.restart();
    expect(await isAtHome(scene, small, picture)).toBe(true);
    await home.kill();
    for (const path of [`/media/${small}`, '/media/by-path?path=/tmp/a', '/media/folder', '/media/recent']) {
      await expect.poll(() => answer(path)).toEqual([503, 'home_offline']);
    }
    expect((await svc('status', '--relay', scene.edge)).stdout).toMatch(/home off since/);
  }, 300_000);

  it('are stored once, when the device missed the answer and sends it to home again, and outlive home', async () => {
    const scene = await open();
    const { home, atEdge, atHome, objects, files } = scene;
    await home.kill();
    const bytes = randomBytes(3 * MiB);
    const send = async (call: typeof atHome): Promise<string> => {
      const response = await call('/media/upload', {
        method: 'POST',
        body: form(bytes),
        headers: { 'idempotency-key': '0a3f1c5e-picture' },
      });
      return (await response.json()).token;
    };
    const token = await send(atEdge);
    await home.restart();
    expect(await send(atHome)).toBe(token);
    expect(await isAtHome(scene, token, bytes)).toBe(true);
    await expect.poll(objects).toEqual([]);
    expect([await send(atEdge), await send(atHome)]).toEqual([token, token]);
    await expect.poll(objects).toEqual([]);
    expect([await scene.inspected(), (await files()).length]).toEqual([[token], 1]);
    await home.restart();
    expect(await isAtHome(scene, token, bytes)).toBe(true);
  }, 300_000);

  it('are not taken over with other bytes, and are once these are right again', async () => {
    const scene = await open();
    const { home, runtime, objects, status, svc } = scene;
    await home.kill();
    const bytes = randomBytes(MiB);
    const token = await scene.upload(bytes);
    const [key = ''] = await objects();
    const repair = await runtime.damageObject(key);
    await home.restart();
    const error = 'its bytes are not those of its SHA-256';
    await expect.poll(async () => (await status()).uploads).toEqual({ count: 1, bytes: MiB, error });
    expect((await svc('relay', 'mirror', 'status')).stdout).toContain(
      `1 upload waits at the edge.\nAn upload could not be taken over: ${error}\n`,
    );
    const early = await scene.atHome(`/media/${token}`);
    expect([early.status, early.headers.get('retry-after')]).toEqual([503, '2']);
    expect(await objects()).toEqual([key]);
    await repair();
    await expect.poll(objects).toEqual([]);
    expect(await isAtHome(scene, token, bytes)).toBe(true);
  }, 300_000);

  it('hold up the end of the mirror while they cannot come home; one that was killed leaves all as it was', async () => {
    const scene = await open();
    const { home, runtime, objects, status, svc, json, edge } = scene;
    await home.kill();
    await scene.upload(randomBytes(MiB));
    const [key = ''] = await objects();
    await runtime.damageObject(key);
    await home.restart();
    await expect.poll(async () => (await status()).uploads).toMatchObject({ count: 1, error: expect.any(String) });

    const operator = { 'x-svc-operator': '1' };
    const write = (id: string) =>
      home.ask('/phone/message', { method: 'POST', body: { text: 'hello', message_id: id }, headers: operator });
    const token = (await json('relay', 'operator-token', '--relay', edge)).token;
    const held = async () => {
      const answer = await fetch(`${edge}/relay/mirror`, { headers: { authorization: `Bearer ${token}` } });
      return ((await answer.json()) as { messages: number }).messages;
    };
    await write('m1');
    await expect.poll(held).toBe(1);
    const command = await launchSvc(['relay', 'mirror', 'disable'], { env: scene.env });
    await expect.poll(held).toBe(0);
    await command.kill();
    await expect.poll(held, { timeout: 240_000 }).toBe(1);
    await write('m2');
    await expect.poll(held).toBe(2);
    expect(await status()).toMatchObject({ enabled: true, link: 'up' });

    const { code, stdout, stderr } = await svc('relay', 'mirror', 'disable', '--force');
    expect([code, stdout, stderr]).toEqual([
      0,
      `This relay is no longer mirrored at ${edge}.\nCame home: 2 messages.\n`,
      `warning: 1 item waits at ${edge}, and will not come home: 1 upload\n`,
    ]);
    const outbound = (await home.ask('/phone/outbound', { headers: operator })).json;
    expect([JSON.stringify(outbound).includes('m1'), JSON.stringify(outbound).includes('m2')]).toEqual([true, true]);
  }, 300_000);
});
