import { describe, expect, it } from 'vitest';
import { cleanups } from '../support/built-relay.ts';
import { mediaDevice } from '../support/media.ts';
import { connectRaw } from '../support/raw-socket.ts';
import { describeMatrix, type Target } from '../support/relay.ts';

const MiB = 1024 * 1024;
const pending = cleanups();
const BEGUN = '--b\r\ncontent-disposition: form-data; name="file"; filename="film.mp4"\r\n\r\n';
/** A part without an end of its head: malformed once 16 KiB of it have arrived. */
const MALFORMED = `\r\n--b\r\n${'x'.repeat(32 * 1024)}`;
const NEXT = 'GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n';

type Connection = Awaited<ReturnType<typeof connectRaw>>;

async function open({ url }: Target): Promise<Connection> {
  const connection = await connectRaw(Number(new URL(url).port));
  pending.push(() => connection.destroy());
  return connection;
}

function head(method: string, path: string, fields: Record<string, string | number>): string {
  const lines = Object.entries({ host: 'localhost', ...fields }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`;
}

/** Writes, waiting for the socket as a sender would; stops when the server ends the connection. */
async function sendAll(connection: Connection, size: number): Promise<void> {
  const closed = new Promise((resolve) => connection.socket.once('close', resolve));
  const whole = Buffer.alloc(64 * 1024, 'y');
  for (let left = size; left > 0 && !connection.isOver() && connection.socket.writable; left -= whole.length) {
    if (connection.write(whole.subarray(0, left))) continue;
    await Promise.race([new Promise((resolve) => connection.socket.once('drain', resolve)), closed]);
  }
}

/** The next request of the connection is answered, or the connection ends: it is never dead. */
async function isAlive(connection: Connection, next = NEXT): Promise<'answered' | 'ended'> {
  connection.write(next);
  const answered = connection.response().then(({ status }) => {
    expect(status).toBe(200);
    return 'answered' as const;
  });
  return Promise.race([answered.catch(() => connection.ended()), connection.ended()]).then((result) =>
    result === 'answered' ? result : 'ended',
  );
}

// workerd owns the connection at the edge.
describeMatrix(
  'a refusal before the body has arrived (contract 01 §1; RFC 9112 §9.3)',
  (start) => {
    /** The head of an upload that a paired device begins. */
    async function upload(target: Target, framing: Record<string, string | number>): Promise<string> {
      const { token } = await mediaDevice(target);
      const type = 'multipart/form-data; boundary=b';
      return head('POST', '/media/upload', { authorization: `Bearer ${token}`, 'content-type': type, ...framing });
    }

    it.each([
      ['sends the rest at once', 45 * MiB],
      ['stops there', 0],
    ])('malformed after 5 of 50 MiB, and the client %s: a readable 400, then the end', async (_name, rest) => {
      const target = await start();
      const connection = await open(target);
      connection.write((await upload(target, { 'content-length': 50 * MiB })) + BEGUN);
      await sendAll(connection, 5 * MiB);
      connection.write(MALFORMED);
      const sending = sendAll(connection, rest);
      const { status, headers, body } = await connection.response();
      expect([status, headers.connection]).toEqual([400, 'close']);
      expect(JSON.parse(body)).toEqual({ ok: false, error: expect.stringContaining('multipart') });
      await connection.ended();
      await sending;
    });

    it('malformed in the middle, in chunks: a readable 400, then the end', async () => {
      const target = await start();
      const connection = await open(target);
      const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`;
      connection.write((await upload(target, { 'transfer-encoding': 'chunked' })) + chunk(BEGUN));
      for (let sent = 0; sent < 20; sent++) connection.write(chunk('z'.repeat(64 * 1024)));
      connection.write(chunk(MALFORMED));
      const { status, headers } = await connection.response();
      expect([status, headers.connection]).toEqual([400, 'close']);
      expect(await isAlive(connection, chunk('more'))).toBe('ended');
    });

    it('a client that reads only after it has sent everything can read the 400', async () => {
      const target = await start();
      const connection = await open(target);
      connection.socket.pause();
      connection.write((await upload(target, { 'content-length': 20 * MiB })) + BEGUN + MALFORMED);
      await sendAll(connection, 20 * MiB - BEGUN.length - MALFORMED.length);
      connection.socket.resume();
      expect((await connection.response()).status).toBe(400);
      await connection.ended();
    });

    it('a small body that is refused is read to its end, and the pipelined request answered', async () => {
      const target = await start();
      const connection = await open(target);
      const size = 60 * 1024;
      const first = BEGUN + MALFORMED;
      connection.write((await upload(target, { 'content-length': size })) + first);
      const { status, headers } = await connection.response();
      expect([status, headers.connection]).toEqual([400, expect.not.stringMatching('close')]);
      connection.write('y'.repeat(1024));
      connection.write('y'.repeat(size - first.length - 1024));
      expect(await isAlive(connection)).toBe('answered');
      expect(await isAlive(connection)).toBe('answered');
    });

    it('a small body that never arrives ends the connection within seconds', async () => {
      const target = await start();
      const connection = await open(target);
      connection.write((await upload(target, { 'content-length': 60 * 1024 })) + BEGUN + MALFORMED);
      expect((await connection.response()).status).toBe(400);
      const began = performance.now();
      await connection.ended();
      expect(performance.now() - began).toBeLessThan(10_000);
    });

    describe.each([
      ['an unknown bearer', 'POST', '/media/upload', { authorization: 'Bearer nonsense' }, 401],
      ['an unknown path', 'POST', '/nothing/here', {}, 404],
      ['a method that the path lacks', 'PUT', '/health', {}, 405],
      ['a JSON body that is too large', 'POST', '/pairing/register', { 'x-svc-operator': '1' }, 413],
    ])('%s', (_name, method, path, fields, refusal) => {
      it.each([
        ['1 KiB', 1024],
        ['10 MiB', 10 * MiB],
      ])('with a body of %s: readable, and the connection answers or ends', async (_size, size) => {
        const target = await start();
        const connection = await open(target);
        connection.write(head(method, path, { ...fields, 'content-length': size }));
        const sending = sendAll(connection, size > 64 * 1024 ? size : 0);
        if (size <= 64 * 1024 && refusal === 413) connection.write('{'.padEnd(size, 'x'));
        const { status } = await connection.response();
        expect(status).toBe(size <= 64 * 1024 && refusal === 413 ? 400 : refusal);
        await sending;
        if (size <= 64 * 1024 && refusal !== 413) connection.write('x'.repeat(size));
        expect(['answered', 'ended']).toContain(await isAlive(connection));
      });
    });
  },
  ['node'],
);
