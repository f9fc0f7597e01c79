import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { describeInBrowser } from '../support/browser.ts';
import { median } from '../support/limits.ts';
import { launch, runSvc, startRelayProcess, temporaryHome } from '../support/process.ts';
import { startReachStack } from '../support/reach-stack.ts';
import { randomCode } from '../support/relay.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli/svc.js', import.meta.url));
const RESTARTS = 10;
/** Milliseconds for which the other side is away: long enough to be refused in between, as after an update. */
const AWAY = 3_000;
/** Two seconds between attempts, and as much for a busy machine. */
const MAX_WAIT = 4_000;
const LONG = { timeout: 900_000 };

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** How often something has happened, and the time of each. */
function counter() {
  const times: number[] = [];
  let wake = () => {};
  return {
    count(): void {
      times.push(performance.now());
      wake();
    },
    async reached(count: number): Promise<number> {
      while (times.length < count) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      return times[count - 1] as number;
    },
  };
}

interface Other {
  kill(signal: NodeJS.Signals): Promise<unknown>;
  /** Resolves once it listens again. */
  begin(): Promise<unknown>;
}

/** Restarts the other side ten times in a row, by a signal and by `kill -9` in turn: how late its client was each time. */
async function restart(name: string, other: Other, online: (times: number) => Promise<number>): Promise<void> {
  await online(1);
  const waits: number[] = [];
  for (let round = 1; round <= RESTARTS; round++) {
    await other.kill(round % 2 === 1 ? 'SIGTERM' : 'SIGKILL');
    await pause(AWAY);
    await other.begin();
    const listening = performance.now();
    waits.push(Math.max(0, (await online(round + 1)) - listening));
  }
  const seconds = [Math.min(...waits), median(waits), Math.max(...waits)].map((ms) => (ms / 1000).toFixed(1));
  process.stderr.write(`${name}: online after ${seconds.join(' / ')} s (min / median / max of ${RESTARTS} restarts)\n`);
  expect(Math.max(...waits)).toBeLessThan(MAX_WAIT);
}

type Relay = Awaited<ReturnType<typeof startRelayProcess>>;

const restartable = (relay: Relay): Other => ({
  kill: (signal) => relay.kill(signal),
  async begin() {
    relay.begin();
    for (;;) {
      const answer = await relay.ask('/health').catch(() => undefined);
      if (answer?.status === 200) return;
      await pause(20);
    }
  },
});

it('01 §3: a companion is back within seconds of each restart of its relay', LONG, async () => {
  const relay = await startRelayProcess();
  const home = await temporaryHome();
  const { json } = await relay.ask('/pairing/mint', { method: 'POST', body: {} });
  const link = JSON.stringify({ ...JSON.parse(json.qr_payload), relay: { url: relay.wsUrl, code: json.code } });
  const paired = await runSvc(['companion', 'pair', link, '--json'], { home });
  expect(paired.code, paired.stderr).toBe(0);
  const env = { PATH: process.env.PATH ?? '', HOME: home, SVC_HOME: home };
  const companion = launch(process.execPath, [PROGRAM, 'companion', 'run', '--json'], env);
  const isOnline = /"event":"state".*"state":"online"/;
  await restart('companion', restartable(relay), async (times) => {
    while (companion.stdout.split('\n').filter((line) => isOnline.test(line)).length < times) await pause(20);
    return performance.now();
  });
});

it('08 §6.1: the Reach connector is back within seconds of each restart of its broker', LONG, async (context) => {
  const { broker, until } = await startReachStack(context);
  const other = { kill: (signal: NodeJS.Signals) => broker.child.kill(signal), begin: () => broker.begin() };
  await restart('connector', other, async () => {
    await until('connected');
    return performance.now();
  });
});

describeInBrowser('the web app', ({ open }) => {
  it('01 §3: is back within seconds of each restart of its relay', LONG, async () => {
    const relay = await startRelayProcess();
    const code = randomCode();
    const { status } = await relay.ask('/pairing/register', { method: 'POST', body: { code } });
    expect(status).toBe(200);
    const { page, allow } = await open();
    allow(/WebSocket|net::ERR|status of|Failed to (load|fetch)/);
    const online = counter();
    page.on('websocket', (socket) =>
      socket.on('framereceived', ({ payload }) => String(payload).includes('"auth.ok"') && online.count()),
    );
    await page.goto(`${relay.url.replace('127.0.0.1', 'localhost')}/app/#code=${code}`);
    await restart('web app', restartable(relay), (times) => online.reached(times));
  });
});
