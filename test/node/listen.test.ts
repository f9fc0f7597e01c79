import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { openListener } from '../../cli/runtime/node/listen.ts';
import { selfSigned } from '../support/certificate.ts';
import { freePort, isPortFree } from '../support/process.ts';
import { temporaryDirectory } from '../support/temp.ts';

const handle = () => {};

async function open(options: Parameters<typeof openListener>[1]) {
  const listening = await openListener(handle, options);
  onTestFinished(() => void listening.server.close());
  return listening;
}

it('listens on the address and port that were asked for', async () => {
  const port = await freePort();
  const { address } = await open({ host: '127.0.0.1', port });
  expect(address).toMatchObject({ address: '127.0.0.1', port });
});

it.each([
  ['EADDRINUSE', '127.0.0.1'],
  ['EADDRNOTAVAIL', '203.0.113.77'],
  // The second without a server of names.
  [/^(?:ENOTFOUND|EAI_AGAIN)$/, 'no-such-host.invalid'],
])('fails with %s, the error of Node', async (code, host) => {
  const taken = createTcpServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  onTestFinished(() => void taken.close());
  const { port } = taken.address() as AddressInfo;
  await expect(openListener(handle, { host, port })).rejects.toMatchObject({ code: expect.stringMatching(code) });
});

it('takes no other port where browsers refuse the one that was asked for', async (context) => {
  if (!(await isPortFree(6667))) return context.skip('port 6667 is taken on this machine');
  await expect(openListener(handle, { host: '127.0.0.1', port: 6667 })).rejects.toThrow('port 6667 belongs to');
  expect(await isPortFree(6667)).toBe(true);
});

it('takes no other address where listhen knows none for the one that was asked for', async () => {
  await expect(openListener(handle, { host: 'fe80::1%lo', port: 0 })).rejects.toThrow('cannot listen on fe80::1%lo');
});

it('names where it can be reached', async () => {
  const one = await open({ host: 'localhost', port: 0 });
  expect(await one.urls()).toEqual([`http://localhost:${one.address.port}`]);
  const all = await open({ host: '0.0.0.0', port: 0 });
  const [first, ...others] = await all.urls();
  expect(first).toBe(`http://127.0.0.1:${all.address.port}`);
  for (const url of others) expect(url).toMatch(new RegExp(`^http://\\d+\\.\\d+\\.\\d+\\.\\d+:${all.address.port}$`));
});

it('leaves a server with no listeners but those of Node and its own handler', async (context) => {
  const bare = createServer(handle);
  const counts = (server: Server) =>
    ['request', 'connection', 'secureConnection', 'listening', 'close', 'error'].map((name) =>
      server.listenerCount(name),
    );
  const plain = await open({ host: '127.0.0.1', port: 0 });
  expect(counts(plain.server)).toEqual(counts(bare));
  expect(plain.server.listeners('request')).toEqual([handle]);

  const files = await selfSigned(context, await temporaryDirectory());
  const tls = { files, cert: await readFile(files.cert), key: await readFile(files.key) };
  const secure = await open({ host: '127.0.0.1', port: 0, tls });
  expect(secure.server.listeners('request')).toEqual([handle]);
  expect([secure.server.listenerCount('connection'), secure.server.listenerCount('secureConnection')]).toEqual([1, 1]);
});

it('fails with EADDRINUSE when the port is taken after listhen has looked, and catches nothing else', async () => {
  const port = await freePort();
  const rival = createTcpServer();
  onTestFinished(() => void rival.close());
  const uncaught = process.listeners('uncaughtException');
  let during: unknown[] | undefined;
  const race = (message: unknown) => {
    const { server } = message as { server: Server };
    if (!server.listeners('request').includes(handle)) return;
    during = process.listeners('uncaughtException');
    rival.listen(port, '127.0.0.1');
  };
  subscribe('tracing:net.server.listen:asyncStart', race);
  onTestFinished(() => void unsubscribe('tracing:net.server.listen:asyncStart', race));
  await expect(openListener(handle, { host: '127.0.0.1', port })).rejects.toMatchObject({ code: 'EADDRINUSE' });
  expect(during).toEqual(uncaught);
});
