import { readdir, rm, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { createTestClock } from '../support/clock.ts';
import { form, mediaDevice, PNG, statusOf } from '../support/media.ts';
import { bearer } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

const pending = cleanups();

async function setup(env: Record<string, string> = {}, more: Parameters<typeof startBuiltTarget>[0] = {}) {
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
/** The start of an upload: a part's head is only taken up when something follows it. */
const BEGUN = `${HEAD}12345678`;
const END = '\r\n--b--\r\n';

/** An upload by hand: what is written goes out as it is, the answer is collected. */
function raw({ port }: BuiltTarget, token: string, headers: Record<string, string | number> = {}) {
  const socket = connect({ port, host: '127.0.0.1' });
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
    host: '127.0.0.1',
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

describe('POST /media/upload (contract 04 §3.5)', () => {
  it('is kept in the temporary directory, of this user alone, with a plain suffix', async () => {
    const { device, tmp, files } = await setup();
    await device.put(PNG, '../../x/picture.png');
    await device.put(PNG, 'noise.p n g');
    const names = await files();
    expect(names.filter((name) => /^svc-relay-upload-[a-z0-9]{24}\.png$/.test(name))).toHaveLength(1);
    expect(names.filter((name) => /^svc-relay-upload-[a-z0-9]{24}$/.test(name))).toHaveLength(1);
    for (const name of names) expect((await stat(join(tmp, name))).mode & 0o777).toBe(0o600);
  });

  it('what is no upload is 400, and nothing is left of it', async () => {
    const { relay, device, files } = await setup();
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
    expect(await files()).toEqual([]);
    expect(relay.relay.media?.count()).toBe(0);
  });

  it('over the limit: the length tells at once, a body without one when it gets there; the client reads the 413', async () => {
    const { relay, device, files } = await setup({ RELAY_MEDIA_MAX_SIZE_MB: '1' });
    expect(await statusOf(device.upload(form(Buffer.alloc(1024 * 1024))))).toBe(200);
    expect(await statusOf(device.upload(form(Buffer.alloc(1024 * 1024 + 1))))).toBe(413);
    expect(await statusOf(device.upload(form(Buffer.alloc(4 * 1024 * 1024))))).toBe(413);

    const announced = raw(relay, device.token, { 'content-length': 50_000_000 });
    await announced.status().toBe('413');
    announced.socket.destroy();

    // Sends everything before it reads anything, as some clients do.
    const stream = raw(relay, device.token, { 'transfer-encoding': 'chunked' });
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
    expect(await files()).toHaveLength(1);
    const many = await device.upload(`${HEAD.replace('"file"', '"other"')}${'x'.repeat(3_000_000)}${END}`, {
      headers: { 'content-type': 'multipart/form-data; boundary=b' },
    });
    expect(many.status).toBe(413);
  });

  it('a client that hangs up leaves nothing', async () => {
    const { relay, device, files } = await setup();
    const uploads = Array.from({ length: 3 }, () => raw(relay, device.token, { 'content-length': 1_000_000 }));
    for (const { socket } of uploads) socket.write(`${HEAD}${'x'.repeat(200_000)}`);
    await expect.poll(files).toHaveLength(3);
    uploads[0]?.socket.destroy();
    uploads[1]?.socket.end();
    uploads[2]?.socket.resetAndDestroy();
    await expect.poll(files).toEqual([]);
    expect(relay.relay.media?.count()).toBe(0);
  });

  it('four at a time for a session; the fifth is 429, whatever others do', async () => {
    const { relay, device, files } = await setup();
    const other = await mediaDevice(relay);
    const uploads = Array.from({ length: 4 }, () => raw(relay, device.token, { 'content-length': 1_000_000 }));
    for (const { socket } of uploads) socket.write(BEGUN);
    await expect.poll(files).toHaveLength(4);
    const fifth = await device.upload(form(PNG));
    expect([fifth.status, fifth.headers.get('retry-after'), (await fifth.json()).ok]).toEqual([429, '5', false]);
    expect(await statusOf(other.upload(form(PNG)))).toBe(200);
    for (const { socket } of uploads) socket.destroy();
    await expect.poll(() => statusOf(device.upload(form(PNG)))).toBe(200);
  });

  it('one that stands still for 30 s ends, one that goes on does not', async () => {
    const clock = createTestClock();
    const { relay, device, tmp, files } = await setup({}, { clock });
    const length = BEGUN.length + 1000 + END.length;
    const slow = raw(relay, device.token, { 'content-length': length, connection: 'close' });
    slow.socket.write(BEGUN);
    await expect.poll(files).toHaveLength(1);
    const size = async () => (await stat(join(tmp, (await files())[0] as string))).size;
    for (let at = 0; at < 10; at++) {
      await clock.advanceAsync(29_000);
      slow.socket.write('x'.repeat(100));
      await expect.poll(size).toBeGreaterThan(at * 100 + 50);
    }
    slow.socket.write(END);
    await slow.status().toBe('200');
    const still = raw(relay, device.token, { 'content-length': length });
    still.socket.write(BEGUN);
    await expect.poll(files).toHaveLength(2);
    // Its time runs from when its first chunk is written, which nobody outside sees.
    await expect
      .poll(async () => {
        await clock.advanceAsync(30_001);
        return still.answer();
      })
      .toMatch(/^HTTP\/1\.1 408 /);
    await expect.poll(files).toHaveLength(1);
  });

  it('a session that is revoked meanwhile uploads nothing', async () => {
    const { relay, device, files } = await setup();
    const upload = raw(relay, device.token, { 'content-length': BEGUN.length + 10 + END.length });
    upload.socket.write(BEGUN);
    await expect.poll(files).toHaveLength(1);
    const revoked = await relay.fetch(`/sessions/${device.prefix}`, {
      method: 'DELETE',
      headers: bearer(device.token),
    });
    expect(revoked.status).toBe(200);
    upload.socket.write(`0123456789${END}`);
    await upload.status().toBe('401');
    await expect.poll(files).toEqual([]);
  });

  it('a temporary directory that is gone: 500 without its name', async () => {
    const { device, tmp } = await setup();
    await rm(tmp, { recursive: true });
    const answer = await device.upload(form(PNG));
    expect(answer.status).toBe(500);
    expect(await answer.json()).toEqual({ ok: false, error: 'the upload could not be stored' });
  });

  it('a relay that stops breaks uploads off, and takes its files with it', async () => {
    const { relay, device, files } = await setup();
    await device.put(PNG);
    const upload = raw(relay, device.token, { 'content-length': 1_000_000 });
    upload.socket.write(BEGUN);
    await expect.poll(files).toHaveLength(2);
    await relay.relay.stop();
    expect(await files()).toEqual([]);
    upload.socket.destroy();
  });

  it('a file name is no header', async () => {
    const { relay, device } = await setup();
    const name = 'a\\"; x=\\"\u0001b\u0085Ü😀';
    const body = `--b\r\ncontent-disposition: form-data; name="file"; filename="${name}"\r\ncontent-type: text/html\u0001\r\n\r\nx${END}`;
    const sent = await device.upload(body, { headers: { 'content-type': 'multipart/form-data; boundary=b' } });
    // A control character in a part's head is none of a name's business: the body is refused.
    expect(sent.status).toBe(400);
    const clean = await device.upload(body.replaceAll('\u0001', ''), {
      headers: { 'content-type': 'multipart/form-data; boundary=b' },
    });
    const { token } = await clean.json();
    const socket = connect({ port: relay.port, host: '127.0.0.1' });
    pending.push(() => socket.destroy());
    let answer = Buffer.alloc(0);
    socket.on('data', (chunk) => {
      answer = Buffer.concat([answer, chunk]);
    });
    socket.write(
      `GET /media/${token} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${device.token}\r\nconnection: close\r\n\r\n`,
    );
    await new Promise((resolve) => socket.on('close', resolve));
    expect(answer.toString()).toContain(
      `content-disposition: inline; filename="a; x=bÜ😀"; filename*=UTF-8''a%3B%20x%3Db%C3%9C%F0%9F%98%80\r\n`,
    );
    expect(answer.toString()).toContain('content-type: text/html\r\n');
  });
});
