import { describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { startEdgeTarget } from '../support/edge.ts';
import { openRaw } from '../support/raw-socket.ts';
import { bearer, pair, runtimes, type Target } from '../support/relay.ts';
import { giveUpGrant } from '../support/scripted.ts';
import { ECHO_LIMIT, testRows } from '../support/socket-rows.ts';

const pending = cleanups();

const starters = {
  node: () => startBuiltTarget({ rows: testRows }),
  edge: () => startEdgeTarget(),
};

/** A client that waits for one message after the other, and for its end. */
async function open(target: Target, path: string, headers: Record<string, string> = {}) {
  const socket = new WebSocket(target.wsUrl.replace(/\/ws$/, path), { perMessageDeflate: false, headers });
  pending.push(() => socket.terminate());
  const messages: (string | Buffer)[] = [];
  let closed: { code: number; reason: string } | undefined;
  socket.on('message', (data: Buffer, isBinary) => messages.push(isBinary ? data : String(data)));
  socket.on('close', (code, reason) => {
    closed = { code, reason: String(reason) };
  });
  socket.on('error', () => {});
  await new Promise<void>((resolve, reject) => {
    socket.once('open', resolve);
    socket.once('unexpected-response', (_request, { statusCode, headers: answered }) =>
      reject(Object.assign(new Error('refused'), { status: statusCode, headers: answered })),
    );
  });
  return {
    send: (data: string | Uint8Array) => socket.send(data),
    async next(): Promise<string | Buffer> {
      await expect.poll(() => messages.length).toBeGreaterThan(0);
      return messages.shift() as string | Buffer;
    },
    async closed() {
      await expect.poll(() => closed).toBeDefined();
      return closed;
    },
  };
}

describe.each(runtimes())('the socket table [%s]', (runtime) => {
  async function start(): Promise<Target> {
    const target = await starters[runtime]();
    pending.push(() => target.stop());
    return target;
  }

  it('opens a row with the parameters of its path and its query', async () => {
    const socket = await open(await start(), '/test/echo/a%20b?x=1&x=2&y=');
    expect(JSON.parse(String(await socket.next()))).toEqual({
      params: { id: 'a%20b' },
      query: { x: ['1', '2'], y: '' },
    });
  });

  it('carries text and bytes, empty ones too, in their order', async () => {
    const socket = await open(await start(), '/test/echo/1');
    await socket.next();
    for (const data of ['grüße', new Uint8Array([0, 255, 128]), '', new Uint8Array()]) socket.send(data);
    expect(await socket.next()).toBe('grüße');
    expect(await socket.next()).toEqual(Buffer.from([0, 255, 128]));
    expect(await socket.next()).toBe('');
    expect(await socket.next()).toEqual(Buffer.alloc(0));
  });

  it('ignores bytes where a row takes none', async () => {
    const socket = await open(await start(), '/test/text');
    await socket.next();
    socket.send(new Uint8Array([1]));
    socket.send('after');
    expect(await socket.next()).toBe('after');
  });

  it.each([
    ['text', () => 'ü'.repeat(ECHO_LIMIT / 2), () => 'ü'.repeat(ECHO_LIMIT / 2 + 1)],
    ['bytes', () => new Uint8Array(ECHO_LIMIT), () => new Uint8Array(ECHO_LIMIT + 1)],
  ])('limits the %s of a message by its row: one byte more is 1009', async (_kind, most, more) => {
    const target = await start();
    const socket = await open(target, '/test/echo/1');
    const other = await open(target, '/test/text');
    await socket.next();
    await other.next();
    socket.send(most());
    expect(Buffer.from(await socket.next()).length).toBe(ECHO_LIMIT);
    socket.send(more());
    expect((await socket.closed())?.code).toBe(1009);
    const text = 'x'.repeat(2 * ECHO_LIMIT);
    other.send(text);
    expect(await other.next()).toBe(text);
  });

  it('runs the guards of routes: 401 without a bearer, 403 without the grant, and the session for the row', async () => {
    const target = await start();
    const granted = await pair(target, { device: { device_name: 'Reader' } });
    const refused = await pair(target);
    pending.push(granted.client.terminate, refused.client.terminate);
    await giveUpGrant(target, refused, 'chat');
    const status = (headers?: Record<string, string>) =>
      open(target, '/test/chat', headers).then(
        () => 101,
        (error) => error.status,
      );
    expect(await status()).toBe(401);
    expect(await status(bearer('nonsense'))).toBe(401);
    await expect.poll(() => status(bearer(refused.token))).toBe(403);
    const socket = await open(target, '/test/chat', bearer(granted.token));
    expect(JSON.parse(String(await socket.next()))).toEqual({ device: 'Reader' });
  });

  it.each([401, 403, 404, 410, 429, 500])(
    'a guard refuses with %i as a plain response, before any upgrade',
    async (status) => {
      const target = await start();
      const url = `${target.url}/test/refused/${status}`;
      const failed = await open(target, `/test/refused/${status}`).catch((error) => error);
      expect(failed.status).toBe(status);
      expect(failed.headers['content-type']).toBe('application/json');
      if (status === 429) expect(failed.headers['retry-after']).toBe('7');
      // Without upgrade headers the path is no route of these rows.
      expect((await fetch(url)).status).toBe(404);
    },
  );

  it('knows no other path: 404', async () => {
    const target = await start();
    for (const path of ['/test', '/test/echo', '/test/echo/', '/test/echo/1/2', '/test/text/', '/health']) {
      expect([path, (await open(target, path).catch((error) => error)).status]).toEqual([path, 404]);
    }
  });

  it('a row closes its socket; one that fails closes with 1011, and no other', async () => {
    const target = await start();
    const [leaving, failing, other] = await Promise.all(
      ['/test/echo/1', '/test/echo/2', '/test/echo/3'].map((path) => open(target, path)),
    );
    leaving?.send('bye');
    expect(await leaving?.closed()).toEqual({ code: 4000, reason: 'bye' });
    failing?.send('fail');
    expect((await failing?.closed())?.code).toBe(1011);
    await other?.next();
    other?.send('still here');
    expect(await other?.next()).toBe('still here');
  });

  it('a row that fails to open closes with 1011, and no other', async () => {
    const target = await start();
    const other = await open(target, '/test/text');
    const { port, hostname } = new URL(target.url);
    const failing = await openRaw(Number(port), { path: '/test/failing/open', headers: { host: hostname } });
    pending.push(failing.destroy);
    expect((await failing.closing()).code).toBe(1011);
    await other.next();
    other.send('still here');
    expect(await other.next()).toBe('still here');
    await expect.poll(() => target.log.join('\n')).toContain('/test/failing/:step failed: open fails');
  });

  it('a row that fails when its socket closes disturbs no other', async () => {
    const target = await start();
    const [failing, other] = [await open(target, '/test/failing/closed'), await open(target, '/test/text')];
    await failing.next();
    failing.send('bye');
    expect((await failing.closed())?.code).toBe(4000);
    await expect.poll(() => target.log.join('\n')).toContain('/test/failing/:step failed: closed fails');
    await other.next();
    other.send('still here');
    expect(await other.next()).toBe('still here');
  });
});
