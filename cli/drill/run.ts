import { setMaxListeners } from 'node:events';
import { lstat, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createProcesses } from '../../lib/host/node/processes.ts';
import { pause } from '../pause.ts';
import type { OpenBrowser } from './browser.ts';
import { createCommandWork } from './commands.ts';
import { type FaultKind, startFlakyProxy } from './flaky-proxy.ts';
import { createInbox } from './inbox.ts';
import { createMessageWork } from './messages.ts';
import { createPageWork, type PageWork } from './page.ts';
import { startPhone } from './phone.ts';
import type { DrillRelay } from './process.ts';
import { createRefreshWork } from './refreshes.ts';
import { createShellWork } from './shell.ts';
import { createStage, pairDevice } from './stage.ts';
import { KINDS, type Tally, type Work } from './tally.ts';
import { createUploadWork } from './uploads.ts';

/** Faults of connections, each as often as it stands here. */
const FAULTS: FaultKind[] = ['none', 'none', 'none', 'cut', 'cut', 'reset', 'stall', 'half-open', 'trickle'];
/** Bytes of a connection before its fault. */
const AFTER: [number, number] = [0, 12_000];
/** Milliseconds between two kills, and for what was confirmed to arrive in the end. */
const BETWEEN_KILLS: [number, number] = [2000, 7000];
const SETTLE_TIMEOUT = 60_000;
/** Milliseconds after the last restart in which something could come twice: longer than a lease of replies. */
const AFTERMATH = 4000;
const POLL = 100;
/** Beginning of the name of a drill's folder, which goes on with the process id. */
const PREFIX = join(tmpdir(), 'svc-drill-');
const FOLDER = /^svc-drill-(\d+)-[A-Za-z0-9]{6}$/;
const MAX_SWEPT = 20;
const MAX_LISTENERS = 100;

export interface Progress {
  /** Milliseconds since the start. */
  elapsed: number;
  kills: number;
  faults: number;
  tallies: Tally[];
  isSettling: boolean;
}

export interface DrillResult {
  kills: number;
  faults: Partial<Record<FaultKind, number>>;
  tallies: Tally[];
  notes: readonly string[];
}

export interface DrillOptions {
  /** Milliseconds of work; the time before and after it comes on top. */
  duration: number;
  /** Makes the relay, with all its state in a folder that is removed in the end. */
  createRelay(folder: string): Promise<DrillRelay>;
  /** Opens the browser that the app runs in, with its profile in that folder; absent without the app. */
  openBrowser?: OpenBrowser;
  /** Ends the drill early, without a result. */
  signal: AbortSignal;
  onProgress(progress: Progress): void;
}

/**
 * Contract 09 §8: works through a bad network with a relay that is killed again and again, and counts. Undefined when the
 * signal has ended it. Leaves nothing behind, however it ends.
 */
export async function runDrill(options: DrillOptions): Promise<DrillResult | undefined> {
  const cleanups: (() => Promise<void>)[] = [];
  try {
    return await drill(options, cleanups);
  } finally {
    for (const cleanup of cleanups.reverse()) await cleanup().catch(() => {});
  }
}

/** Removes folders of drills that were killed; their relays have ended with them. */
async function sweep(): Promise<void> {
  const processes = createProcesses();
  for (const name of (await readdir(tmpdir())).filter((entry) => FOLDER.test(entry)).slice(0, MAX_SWEPT)) {
    const path = join(tmpdir(), name);
    const isOwn = (await lstat(path).catch(() => null))?.uid === process.getuid?.();
    if (!isOwn || processes.exists(Number(FOLDER.exec(name)?.[1]))) continue;
    await rm(path, { recursive: true, force: true }).catch(() => {});
  }
}

async function drill(
  { duration, createRelay, openBrowser, signal, onProgress }: DrillOptions,
  cleanups: (() => Promise<void>)[],
): Promise<DrillResult | undefined> {
  await sweep();
  const folder = await mkdtemp(`${PREFIX}${process.pid}-`);
  cleanups.push(() => rm(folder, { recursive: true, force: true, maxRetries: 5 }));
  const relay = await createRelay(folder);
  cleanups.push(relay.kill);
  await relay.start();
  const proxy = await startFlakyProxy({ port: relay.port, seed: Date.now() % 2 ** 31, faults: ['none'], after: AFTER });
  cleanups.push(proxy.close);
  const stage = createStage({ port: proxy.port, operator: relay.operator });
  let life = 0;

  const desk = await pairDevice(stage, 'desk');
  const token = String(desk.session_token);
  const commands = createCommandWork(stage, token);
  const inbox = createInbox(stage);
  let page: PageWork | undefined;
  const messages = createMessageWork(
    stage,
    inbox,
    () => phone,
    () => page?.isBehind() === true,
  );
  const phone = await startPhone(stage, folder, {
    arrived(messageId) {
      messages.arrived(messageId);
      page?.arrived(messageId);
    },
    shown: ({ messageId, text }) => messages.shown(messageId, text),
    acknowledged: messages.acknowledged,
    commanded: commands.executed,
    unpaired: (reason) => stage.note(`the companion was unpaired: ${reason}`),
  });
  cleanups.push(phone.stop);
  const uploads = createUploadWork({ stage, phone, life: () => life, isDurable: relay.isMediaDurable });
  const refreshes = createRefreshWork(stage, await pairDevice(stage, 'refresher'));
  const shell = relay.hasShell ? await createShellWork(stage, token, folder) : undefined;
  const browser = await openBrowser?.(folder);
  if (browser) cleanups.push(() => browser.close());
  page = browser && (await createPageWork(stage, inbox, browser, messages.count));
  const works: Work[] = [messages, commands, uploads, refreshes, ...(shell ? [shell] : []), ...(page ? [page] : [])];

  const began = performance.now();
  let kills = 0;
  let isSettling = false;
  const tallies = () =>
    works.flatMap((work) => work.tallies()).sort((a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind));
  const report = () =>
    onProgress({
      elapsed: performance.now() - began,
      kills,
      faults: proxy.strikes.length + proxy.trickling(),
      tallies: tallies(),
      isSettling,
    });
  const reporting = setInterval(report, 500);
  cleanups.push(async () => clearInterval(reporting));

  const restart = async () => {
    life++;
    await relay.kill();
    kills++;
    if (!signal.aborted) await relay.start();
  };
  const working = new AbortController();
  const reading = new AbortController();
  // All kinds of work wait on it, several times at once.
  setMaxListeners(MAX_LISTENERS, working.signal, reading.signal, signal);
  const stop = () => {
    working.abort();
    reading.abort();
  };
  signal.addEventListener('abort', stop);
  cleanups.push(async () => {
    signal.removeEventListener('abort', stop);
    stop();
  });
  if (signal.aborted) return undefined;

  proxy.plan(FAULTS);
  const reader = inbox.read(reading.signal);
  const running = Promise.all([reader, ...works.map((work) => work.run(working.signal))]);
  // Awaited below; a failure ends the drill at once.
  running.catch(stop);
  while (!working.signal.aborted) {
    const left = duration - (performance.now() - began);
    const [least, most] = BETWEEN_KILLS;
    const wait = least + Math.random() * (most - least);
    await pause(Math.min(wait, Math.max(left, 0)), working.signal);
    if (working.signal.aborted) break;
    await restart();
    if (left <= wait) break;
  }

  isSettling = true;
  working.abort();
  proxy.plan(['none']);
  proxy.dropClients();
  const isOver = () => signal.aborted || reading.signal.aborted;
  const until = async (isDone: () => boolean) => {
    for (const end = performance.now() + SETTLE_TIMEOUT; performance.now() < end && !isOver(); ) {
      await page?.scan().catch(() => {});
      if (isDone()) return;
      await pause(POLL, signal);
    }
  };
  // A phone that is away has yet to get the messages whose acknowledgement was lost.
  const isSettled = () => phone.state() === 'online' && works.every((work) => work.isSettled());
  await until(isSettled);
  // Once more, over a good network: what the relay remembers must not do anything again.
  if (!isOver()) await restart();
  await pause(AFTERMATH, reading.signal);
  await until(isSettled);
  if (!isOver()) await uploads.verify();
  await shell?.verify();
  if (!isOver()) await messages.explain();
  if (phone.state() !== 'online') stage.note(`the companion is not connected in the end: ${phone.state()}`);
  // The reader ends last: it must not miss a reply that the relay has acknowledged since.
  await phone.stop();
  await until(() => tallies().every(({ lost }) => lost === 0));
  reading.abort();
  await running;
  if (signal.aborted) return undefined;
  const faults: DrillResult['faults'] = { trickle: proxy.trickling() };
  for (const { kind } of proxy.strikes) faults[kind] = (faults[kind] ?? 0) + 1;
  return { kills, faults, tallies: tallies(), notes: stage.notes };
}
