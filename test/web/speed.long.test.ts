import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { CDPSession, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { appOf, pairPage } from '../support/app.ts';
import { describeInBrowser } from '../support/browser.ts';
import { TIMED, TIMEOUT } from '../support/limits.ts';
import { startNodeTarget, type Target } from '../support/relay.ts';

/**
 * Issue 17 gives a slow phone 2.5 s until the shell is interactive, and 0.5 s when the browser has it already. A quiet
 * machine measures 1.4 s and 0.3 s, a busy one anything, so that no wall clock is compared with a constant:
 * - Bytes and round trips before the shell are counted. What they cost on the network of the budget is arithmetic, and
 *   has to leave the rest of it to the processor.
 * - The first start is compared with that of a bare page, which has as many bytes and round trips and a fixed amount of
 *   work. A later start is compared with the first. All alternate, and the quickest of some runs counts: a busy moment
 *   slows every one of them.
 */
const FIRST = { budget: 2500, processor: 1000 };
const AGAIN = { budget: 500, processor: 150 };
const NETWORK = { bytesPerSecond: 1_600_000 / 8, latency: 150 };
const CPU_RATE = 4;
const RUNS = 3;
/** Rounds of the bare page's work, which takes as long as the app's own on a quiet machine. */
const ROUNDS = 2000;
/** On a quiet machine the two are equal; the budget is 1.8 times of that. */
const MOST_OF_BARE = 2;

interface Start {
  /** Milliseconds from the navigation until the shell is drawn and a task of the page runs. */
  time: number;
  /** Bytes over the network, of what the shell needs. */
  bytes: number;
  /** Requests over the network that had to wait for each other. */
  roundTrips: number;
}

/** Milliseconds that the worst of some starts takes on the network of the budget, with a round trip for the connection. */
const onNetwork = (starts: readonly Start[]): number =>
  Math.max(
    ...starts.map(({ bytes, roundTrips }) =>
      Math.round((1 + roundTrips) * NETWORK.latency + (bytes / NETWORK.bytesPerSecond) * 1000),
    ),
  );

/** Notes when `main .screen` is there and the page is free for a task. */
function noteShell(): void {
  const look = () => {
    if (!document.querySelector('main .screen')) return void requestAnimationFrame(look);
    setTimeout(() => Object.assign(globalThis, { shellAt: performance.now() }));
  };
  look();
}

/** Loads a page on a slow phone. */
async function start(page: Page, devtools: CDPSession, go: () => Promise<unknown>): Promise<Start> {
  const needed = new Map<string, { url: string; from?: string; bytes: number; isLocal: boolean }>();
  let isOver = false;
  devtools.on('Network.requestWillBeSent', ({ requestId, request, initiator, type }) => {
    if (isOver || !['Document', 'Script', 'Stylesheet'].includes(type ?? '')) return;
    const from = initiator.url ?? initiator.stack?.callFrames[0]?.url;
    needed.set(requestId, { url: request.url.replace(/#.*/, ''), from, bytes: 0, isLocal: false });
  });
  devtools.on('Network.requestServedFromCache', ({ requestId }) => {
    const request = needed.get(requestId);
    if (request) request.isLocal = true;
  });
  devtools.on('Network.responseReceived', ({ requestId, response }) => {
    const request = needed.get(requestId);
    // The service worker asks for the document itself.
    if (request && !isOver) request.isLocal ||= response.fromDiskCache === true || response.fromServiceWorker === true;
  });
  devtools.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => {
    const request = needed.get(requestId);
    if (request && !isOver) request.bytes = encodedDataLength;
  });
  await go();
  const shell = await page.waitForFunction(() => (globalThis as { shellAt?: number }).shellAt);
  isOver = true;
  const time = (await shell.jsonValue()) as number;
  const remote = [...needed.values()].filter(({ isLocal }) => !isLocal);
  const byUrl = new Map(remote.map((request) => [request.url, request]));
  const depthOf = (url: string | undefined, seen: readonly string[] = []): number => {
    const request = url === undefined || seen.includes(url) ? undefined : byUrl.get(url.replace(/#.*/, ''));
    return request ? 1 + depthOf(request.from, [...seen, request.url]) : 0;
  };
  return {
    time,
    bytes: remote.reduce((sum, { bytes }) => sum + bytes, 0),
    roundTrips: Math.max(0, ...remote.map(({ url }) => depthOf(url))),
  };
}

async function slowDown(page: Page): Promise<CDPSession> {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Network.enable');
  await devtools.send('Network.emulateNetworkConditions', {
    offline: false,
    latency: NETWORK.latency,
    downloadThroughput: NETWORK.bytesPerSecond,
    uploadThroughput: NETWORK.bytesPerSecond,
  });
  await devtools.send('Emulation.setCPUThrottlingRate', { rate: CPU_RATE });
  return devtools;
}

/** Serves a page of scripts that import each other, of which the last one works and draws. Resolves with its address. */
async function startBarePage({ bytes, roundTrips }: Start): Promise<string> {
  const scripts = Math.max(1, roundTrips - 1);
  const filler = `/*${'x'.repeat(Math.max(0, Math.round(bytes / scripts) - 300))}*/`;
  const work = `
    let rows = [];
    for (let round = 0; round < ${ROUNDS}; round++)
      rows = JSON.parse(JSON.stringify(Array.from({ length: 100 }, (_, at) => ({ at, text: 'row ' + at }))));
    document.body.innerHTML = '<main><div class="screen">' + rows.length + '</div></main>';`;
  const server = createServer(({ url = '' }, response) => {
    const [, at] = /^\/(\d+)\.js$/.exec(url) ?? [];
    if (at === undefined && url !== '/') return void response.writeHead(204).end();
    response.setHeader('content-type', at === undefined ? 'text/html' : 'text/javascript');
    if (at === undefined) response.end('<!doctype html><title>bare</title><script type="module" src="1.js"></script>');
    else response.end(filler + (Number(at) < scripts ? `import './${Number(at) + 1}.js';` : work));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://localhost:${(server.address() as AddressInfo).port}/`;
}

const fastest = (starts: readonly Start[]): number => Math.round(Math.min(...starts.map(({ time }) => time)));

describeInBrowser('the start of the app on a slow phone (issue 17)', ({ open }) => {
  let relay: Target;
  let app: string;
  beforeAll(async () => {
    relay = await startNodeTarget();
    app = appOf(relay);
  });
  afterAll(() => relay?.stop());

  it('first, and again from the HTTP cache or the service worker', { ...TIMED, timeout: 6 * TIMEOUT }, async () => {
    const { page } = await open();
    await pairPage(page, relay);
    await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
    await page.addInitScript(noteShell);
    const devtools = await slowDown(page);
    const startOf = async (address: string, from: 'nothing' | 'HTTP cache' | 'service worker') => {
      await page.goto('about:blank');
      await devtools.send('Network.setBypassServiceWorker', { bypass: from !== 'service worker' });
      if (from === 'nothing') await devtools.send('Network.clearBrowserCache');
      return start(page, devtools, () => page.goto(address, { waitUntil: 'commit' }));
    };
    const sample = await startOf(app, 'nothing');
    const bare = await startBarePage(sample);
    const first = [sample];
    const bareStarts: Start[] = [];
    const cached: Start[] = [];
    const worked: Start[] = [];
    while (worked.length < RUNS) {
      cached.push(await startOf(app, 'HTTP cache'));
      worked.push(await startOf(app, 'service worker'));
      bareStarts.push(await startOf(bare, 'nothing'));
      first.push(await startOf(app, 'nothing'));
    }
    for (const [name, starts] of Object.entries({ first, cached, worked, bare: bareStarts })) {
      const { bytes, roundTrips } = starts[0] as Start;
      const facts = `${bytes} bytes in ${roundTrips} round trips (${onNetwork(starts)} ms)`;
      process.stdout.write(`start, ${name}: ${fastest(starts)} ms, ${facts}\n`);
    }
    expect(sample.bytes).toBeGreaterThan(10_000);
    expect(sample.roundTrips).toBeGreaterThan(1);
    expect(onNetwork(first)).toBeLessThan(FIRST.budget - FIRST.processor);
    expect(onNetwork(cached)).toBeLessThan(AGAIN.budget - AGAIN.processor);
    // The worker looks for a newer document, which the page does not see.
    expect(worked.map(({ bytes }) => bytes)).toEqual([0, 0, 0]);
    expect(fastest(first) / fastest(bareStarts)).toBeLessThan(MOST_OF_BARE);
    expect(fastest(cached)).toBeLessThan(fastest(first));
    expect(fastest(worked)).toBeLessThan(fastest(first));
  });

  it('issue 25 §3.13: is connected within 3 s at 400 ms and 50 kB/s, with at most 8 requests', TIMED, async () => {
    const { page } = await open();
    await pairPage(page, relay);
    await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
    await page.goto('about:blank');
    const devtools = await page.context().newCDPSession(page);
    await devtools.send('Network.enable');
    await devtools.send('Network.setBypassServiceWorker', { bypass: true });
    await devtools.send('Network.clearBrowserCache');
    const throughput = { downloadThroughput: 50_000, uploadThroughput: 50_000 };
    await devtools.send('Network.emulateNetworkConditions', { offline: false, latency: 400, ...throughput });
    await devtools.send('Emulation.setCPUThrottlingRate', { rate: CPU_RATE });
    await page.addInitScript(() => {
      new MutationObserver((_, observer) => {
        if (!/Connected · /.test(document.querySelector('header')?.textContent ?? '')) return;
        observer.disconnect();
        Object.assign(globalThis, { connectedAt: performance.now() });
      }).observe(document, { subtree: true, childList: true, characterData: true });
    });
    /** With the time at which each left, epoch ms. */
    const requests: [path: string, at: number][] = [];
    const note = (url: string, at: number) => void requests.push([new URL(url).pathname, at]);
    devtools.on('Network.requestWillBeSent', ({ request, wallTime }) => note(request.url, wallTime * 1000));
    devtools.on('Network.webSocketCreated', ({ url }) => note(url, 0));
    /** What arrived, in order. */
    const arrived: string[] = [];
    devtools.on('Network.webSocketHandshakeResponseReceived', () => arrived.push('socket'));
    devtools.on('Network.responseReceived', ({ response }) => {
      if (/\/main-/.test(response.url)) arrived.push('app');
    });
    await page.goto(app, { waitUntil: 'commit' });
    const connectedAt = await page.waitForFunction(() => (globalThis as { connectedAt?: number }).connectedAt);
    const time = Math.round((await connectedAt.jsonValue()) as number);
    const until = (await page.evaluate(() => performance.timeOrigin)) + time;
    const sent = requests.filter(([, at]) => at < until).map(([path]) => path);
    process.stdout.write(`connected on a slow network: ${time} ms, ${sent.length} requests\n`);
    expect(sent.length, sent.join(' ')).toBeLessThanOrEqual(8);
    expect(time).toBeLessThan(3_000);
    // One socket, and it does not wait for the app.
    expect(arrived).toEqual(['socket', 'app']);
  });
});
