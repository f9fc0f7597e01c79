import { readdir, rm, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { Host } from '../../lib/host/index.ts';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { createTestClock } from '../support/clock.ts';
import { form, mediaDevice, PNG, statusOf } from '../support/media.ts';
import { connectRaw, request } from '../support/raw-socket.ts';
import { bearer, describeMatrix, describeOnNode, type Target } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

const MiB = 1024 * 1024;

const pending = cleanups();

async function startNode(env: Record<string, string> = {}, more: Parameters<typeof startBuiltTarget>[0] = {}) {
  const tmp = await temporaryDirectory();
  const relay = await startBuiltTarget({
    env,
    hostEnv: (home) => ({ PATH: process.env.PATH ?? '', HOME: home, TMPDIR: tmp }),
    ...more,
  });
  pending.push(() => relay.stop());
  const device = await mediaDevice(relay);
  return { relay, device, tmp, files: () => readdir(tmp) };
}

const HEAD = '--b\r\ncontent-disposition: form-data; name="file"; filename="film.mp4"\r\n\r\n';
/** The start of an upload. A part's head is handled only once some of its body has arrived. */
const BEGUN = `${HEAD}12345678`;
const END = '\r\n--b--\r\n';

/** An upload written by hand on its own connection. */
function raw({ url }: Target, token: string, headers: Record<string, string | number> = {}) {
  const { host, port } = new URL(url);
  const socket = connect({ port: Number(port), host: '127.0.0.1' });
  pending.push(() => socket.destroy());
  let answer = '';
  socket.on('data', (chunk) => {
    answer += chunk;
  });
  let failure: NodeJS.ErrnoException | undefined;
  socket.on('error', (error) => {
    failure = error;
  });
  const closed = new Promise<void>((resolve) => socket.on('close', () => resolve()));
  const lines = Object.entries({
    host,
    authorization: `Bearer ${token}`,
    'content-type': 'multipart/form-data; boundary=b',
    ...headers,
  });
  socket.write(`POST /media/upload HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`);
  return {
    socket,
    closed,
    failure: () => failure,
    answer: () => answer,
    status: () => expect.poll(() => /^HTTP\/1\.1 (\d+)[\s\S]*\r\n\r\n[\s\S]/.exec(answer)?.[1]),
  };
}

const entries = async (target: Target) => (await (await target.operator('/media/inspect')).json()).media;

describeMatrix('POST /media/upload (contract 04 §3.5)', (start, runtime) => {
  /** A relay, a device, and the files or objects that hold uploads. */
  async function setup(env: Record<string, string> = {}) {
    if (runtime === 'node') {
      const { relay, device, files } = await startNode(env);
      return { target: relay, device, stored: files };
    }
    const target = await start({ env });
    const device = await mediaDevice(target);
    return { target, device, stored: async () => target.objects?.() };
  }

  /** Four uploads that the relay has taken up: of five, each with `content` first, it refuses one. */
  async function fourBegun(target: Target, token: string, length: number, content = BEGUN) {
    const five = Array.from({ length: 5 }, () => raw(target, token, { 'content-length': length }));
    for (const { socket } of five) socket.write(content);
    const answered = () => five.filter(({ answer }) => answer() !== '');
    await expect.poll(() => answered().map(({ answer }) => answer().slice(9, 12))).toEqual(['429']);
    const [refused] = answered();
    refused?.socket.destroy();
    return five.filter((upload) => upload !== refused);
  }

  it('anything but a valid upload is 400 and leaves nothing', async () => {
    const { target, device, stored } = await setup();
    const multipart = { 'content-type': 'multipart/form-data; boundary=b' };
    for (const [body, headers] of [
      ['{}', { 'content-type': 'application/json' }],
      [Buffer.from('x'), {}],
      ['x', { 'content-type': 'multipart/form-data' }],
      ['', multipart],
      ['nothing of the kind', multipart],
      [`${HEAD}cut off`, multipart],
      [`--b\r\ncontent-disposition: form-data; name="other"\r\n\r\nx${END}`, multipart],
      ['--b--', multipart],
      [`--b\r\nbroken\r\n\r\nx${END}`, multipart],
    ] as const) {
      const answer = await device.upload(body, { headers: headers as Record<string, string> });
      expect([body.toString(), answer.status, (await answer.json()).ok]).toEqual([body.toString(), 400, false]);
    }
    expect(await stored()).toEqual([]);
    expect(await entries(target)).toEqual([]);
  });

  it('sent again under its Idempotency-Key is stored once, also while the first is stored', async () => {
    const { target, device, stored } = await setup();
    const send = async (key: string, bytes: Buffer, from = device) => {
      const answer = await from.upload(form(bytes), { headers: { 'idempotency-key': key } });
      return (await answer.json()).token as string;
    };
    const [first, again] = await Promise.all([send('4f0c', PNG), send('4f0c', PNG)]);
    expect([again, await send('4f0c', PNG)]).toEqual([first, first]);
    expect(await stored()).toHaveLength(1);
    expect(await entries(target)).toHaveLength(1);
    // Another key, other bytes and another device are other uploads.
    const other = await mediaDevice(target);
    const others = [await send('5e1d', PNG), await send('4f0c', Buffer.from('x')), await send('4f0c', PNG, other)];
    expect(new Set([first, ...others]).size).toBe(4);
    const served = await target.fetch(`/media/${first}`, { headers: bearer(device.token) });
    expect(Buffer.compare(Buffer.from(await served.arrayBuffer()), PNG)).toBe(0);

    const refused = await device.upload(form(PNG), { headers: { 'idempotency-key': 'two words' } });
    expect([refused.status, (await refused.json()).error]).toEqual([400, expect.stringContaining('Idempotency-Key')]);
  });

  it('over the cap is 413, by the announced length or once the body passes it', async () => {
    const { target, device, stored } = await setup({ RELAY_MEDIA_MAX_SIZE_MB: '1' });
    expect(await statusOf(device.upload(form(Buffer.alloc(1024 * 1024))))).toBe(200);
    const passing = raw(target, device.token, { 'content-length': HEAD.length + MiB + 1 + END.length });
    passing.socket.write(HEAD);
    passing.socket.write(Buffer.alloc(MiB + 1));
    await passing.status().toBe('413');
    passing.socket.destroy();
    // The edge platform closes a connection whose body was not read, which `fetch` may see before the answer.
    if (runtime === 'node') {
      expect(await statusOf(device.upload(form(Buffer.alloc(1024 * 1024 + 1))))).toBe(413);
      expect(await statusOf(device.upload(form(Buffer.alloc(4 * 1024 * 1024))))).toBe(413);
      const many = await device.upload(`${HEAD.replace('"file"', '"other"')}${'x'.repeat(3_000_000)}${END}`, {
        headers: { 'content-type': 'multipart/form-data; boundary=b' },
      });
      expect(many.status).toBe(413);
    }

    const announced = raw(target, device.token, { 'content-length': 50_000_000 });
    await announced.status().toBe('413');
    announced.socket.destroy();

    expect(await stored()).toHaveLength(1);
  });

  it('a client that hangs up leaves nothing', async () => {
    const { target, device, stored } = await setup();
    const uploads = await fourBegun(target, device.token, 1_000_000, `${HEAD}${'x'.repeat(200_000)}`);
    uploads[0]?.socket.destroy();
    uploads[1]?.socket.end();
    uploads[2]?.socket.resetAndDestroy();
    uploads[3]?.socket.end('x');
    await expect.poll(stored).toEqual([]);
    expect(await entries(target)).toEqual([]);
    // Their places are free again.
    await expect.poll(() => statusOf(device.upload(form(PNG)))).toBe(200);
  });

  it('a session has four uploads in progress; a fifth is 429, and other sessions are unaffected', async () => {
    const { target, device } = await setup();
    const other = await mediaDevice(target);
    const uploads = await fourBegun(target, device.token, 1_000_000);
    const fifth = await device.upload(form(PNG));
    expect([fifth.status, fifth.headers.get('retry-after'), (await fifth.json()).ok]).toEqual([429, '5', false]);
    expect(await statusOf(other.upload(form(PNG)))).toBe(200);
    for (const { socket } of uploads) socket.destroy();
    await expect.poll(() => statusOf(device.upload(form(PNG)))).toBe(200);
  });

  it('a session that is revoked meanwhile uploads nothing', async () => {
    const { target, device, stored } = await setup();
    const uploads = await fourBegun(target, device.token, BEGUN.length + 10 + END.length);
    const revoked = await target.fetch(`/sessions/${device.prefix}`, {
      method: 'DELETE',
      headers: bearer(device.token),
    });
    expect(revoked.status).toBe(200);
    for (const upload of uploads) {
      upload.socket.write(`0123456789${END}`);
      await upload.status().toBe('401');
    }
    await expect.poll(stored).toEqual([]);
  });

  it('§3.9: a file name cannot inject a header', async () => {
    const { target, device } = await setup();
    const name = 'a\\"; x=\\"\u0001b\u0085Ü😀';
    const body = `--b\r\ncontent-disposition: form-data; name="file"; filename="${name}"\r\ncontent-type: text/html\u0001\r\n\r\nx${END}`;
    const sent = await device.upload(body, { headers: { 'content-type': 'multipart/form-data; boundary=b' } });
    // Control characters in the head of a part make the body invalid.
    expect(sent.status).toBe(400);
    const clean = await device.upload(body.replaceAll('\u0001', ''), {
      headers: { 'content-type': 'multipart/form-data; boundary=b' },
    });
    const { token } = await clean.json();
    const { hostname, port } = new URL(target.url);
    const connection = await connectRaw(Number(port));
    pending.push(connection.destroy);
    connection.write(request('GET', `/media/${token}`, { host: hostname, ...bearer(device.token) }));
    const { headers } = await connection.head();
    expect(Buffer.from(headers['content-disposition'] ?? '', 'latin1').toString()).toBe(
      `inline; filename="a; x=bÜ😀"; filename*=UTF-8''a%3B%20x%3Db%C3%9C%F0%9F%98%80`,
    );
    expect(headers['content-type']).toBe('text/html');
  });
});

describeOnNode('uploads on a host (contract 04 §3.5)', () => {
  it('keeps an upload in the temporary directory, mode 0600, with a plain suffix', async () => {
    const { device, tmp, files } = await startNode();
    await device.put(PNG, '../../x/picture.png');
    await device.put(PNG, 'noise.p n g');
    const names = await files();
    expect(names.filter((name) => /^svc-relay-upload-[a-z0-9]{24}\.png$/.test(name))).toHaveLength(1);
    expect(names.filter((name) => /^svc-relay-upload-[a-z0-9]{24}$/.test(name))).toHaveLength(1);
    for (const name of names) expect((await stat(join(tmp, name))).mode & 0o777).toBe(0o600);
  });

  it('logs why an upload failed', async () => {
    const { relay, device, tmp } = await startNode();
    await rm(tmp, { recursive: true });
    expect((await device.upload(form(PNG))).status).toBe(500);
    expect(relay.log.join('\n')).toMatch(/POST request failed: the upload could not be stored: ENOENT/);
  });

  it('an upload that is complete while the relay stops is told so, with 503', async () => {
    let [accepts, release] = [() => {}, () => {}];
    const accepting = new Promise<void>((resolve) => {
      accepts = resolve;
    });
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    const withHost = (host: Host): Host => ({
      ...host,
      media: {
        ...host.media,
        async open(path) {
          accepts();
          await released;
          return host.media.open(path);
        },
      },
    });
    const relay = await startBuiltTarget({ withHost });
    pending.push(() => relay.stop());
    const device = await mediaDevice(relay);
    const uploaded = device.upload(form(PNG));
    await accepting;
    const stopping = relay.relay.stop();
    release();
    const answer = await uploaded;
    expect({ status: answer.status, body: await answer.json() }).toMatchObject({
      status: 503,
      body: { ok: false, error: 'the relay is stopping' },
    });
    await stopping;
  });

  it('a client that sends everything before it reads can read the 413', async () => {
    const { relay: target, device, files } = await startNode({ RELAY_MEDIA_MAX_SIZE_MB: '1' });
    // Some clients send everything before they read anything.
    const stream = raw(target, device.token, { 'transfer-encoding': 'chunked' });
    stream.socket.pause();
    const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
    stream.socket.write(chunk(HEAD));
    for (let sent = 0; sent < 64; sent++) {
      const wrote = stream.socket.write(chunk('x'.repeat(256 * 1024)));
      if (!wrote) await new Promise<void>((resolve) => stream.socket.once('drain', resolve));
    }
    stream.socket.write(`${chunk(END)}0\r\n\r\n`);
    stream.socket.resume();
    await stream.status().toBe('413');
    await stream.closed;
    expect(stream.failure()).toBeUndefined();
    expect(await files()).toEqual([]);
  });

  it('ends an upload that stalls for 30 s, not one that goes on slowly', async () => {
    const clock = createTestClock();
    const { relay, device, tmp, files } = await startNode({}, { clock });
    // Larger than what is gathered before a write.
    const chunk = 'x'.repeat(MiB);
    const length = BEGUN.length + 10 * MiB + END.length;
    const slow = raw(relay, device.token, { 'content-length': length, connection: 'close' });
    slow.socket.write(BEGUN);
    await expect.poll(files).toHaveLength(1);
    const size = async () => (await stat(join(tmp, (await files())[0] as string))).size;
    for (let at = 0; at < 10; at++) {
      await clock.advanceAsync(29_000);
      slow.socket.write(chunk);
      await expect.poll(size).toBeGreaterThan(at * MiB);
    }
    slow.socket.write(END);
    await slow.status().toBe('200');
    const stalled = raw(relay, device.token, { 'content-length': length });
    stalled.socket.write(BEGUN);
    await expect.poll(files).toHaveLength(2);
    // Its 30 s run from the write of its first chunk, which cannot be seen from outside.
    await expect
      .poll(async () => {
        await clock.advanceAsync(30_001);
        return stalled.answer();
      })
      .toMatch(/^HTTP\/1\.1 408 /);
    await expect.poll(files).toHaveLength(1);
  });

  it('answers 500 without a path when the temporary directory is gone', async () => {
    const { device, tmp } = await startNode();
    await rm(tmp, { recursive: true });
    const answer = await device.upload(form(PNG));
    expect(answer.status).toBe(500);
    expect(await answer.json()).toEqual({ ok: false, error: 'the upload could not be stored' });
  });

  it('§3.1: shutdown aborts uploads and removes the files of finished ones', async () => {
    const { relay, device, files } = await startNode();
    await device.put(PNG);
    const upload = raw(relay, device.token, { 'content-length': 1_000_000 });
    upload.socket.write(BEGUN);
    await expect.poll(files).toHaveLength(2);
    await relay.relay.stop();
    expect(await files()).toEqual([]);
    upload.socket.destroy();
  });
});
