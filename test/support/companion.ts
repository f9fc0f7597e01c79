import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createBridge, type LinkPhone } from '../../lib/companion/link/commands.ts';
import { createLink, type Link } from '../../lib/companion/link/link.ts';
import { parsePairing } from '../../lib/companion/link/pairing-url.ts';
import { type CompanionSettings, openSettings } from '../../lib/companion/link/settings.ts';
import type { LinkState } from '../../lib/companion/link/state.ts';
import type { PhoneDeps } from '../../lib/companion/phone.ts';
import type { SafetySettings } from '../../lib/companion/safety-settings.ts';
import type { Decision } from '../../lib/companion/types.ts';
import { dial } from '../../lib/host/node/dial.ts';
import { createFiles } from '../../lib/host/node/files.ts';
import { type Clock, systemClock } from '../../lib/kit/clock.ts';
import { createTestPhone } from '../lib/companion/support.ts';
import { createTestLog } from './log.ts';
import { bearer, pair, post, randomCode, registerCode, type Target } from './relay.ts';

export type TestPhone = ReturnType<typeof createTestPhone>;
export type Companion = Awaited<ReturnType<typeof startCompanion>>;

interface CompanionOptions {
  /** URL of the relay's socket, such as that of a proxy in front of it. */
  wsUrl?: string;
  /** Clock of the link, whose waits are longer than a test. */
  clock?: Clock;
  deps?: Partial<PhoneDeps> & { answer?: Decision | 'later' };
}

/** A clock on which time passes `speed` times as fast. */
export const fastClock = (speed: number): Clock => ({
  now: systemClock.now,
  monotonic: () => systemClock.monotonic() * speed,
  after: (delay, run) => systemClock.after(delay / speed, run),
});

/** The relay's answer to a tool. */
export interface ToolAnswer {
  status: number;
  body: Record<string, unknown>;
}

/** A companion that is online over a real socket, with a phone that allows everything, and a tool to call it. */
export async function startCompanion(
  target: Target,
  { wsUrl = target.wsUrl, clock = systemClock, deps }: CompanionOptions = {},
) {
  const directory = await mkdtemp(join(tmpdir(), 'svc-relay-test-'));
  const path = join(directory, 'settings.json');
  const store: CompanionSettings = await openSettings({ files: createFiles(), path, clock: systemClock });
  const code = randomCode();
  await registerCode(target, code);
  const offer = parsePairing(JSON.stringify({ svc: 1, relay: { url: wsUrl, code } }));
  const { token } = await pair(target);

  const listeners = new Set<() => void>();
  const renew = (change: Partial<SafetySettings> = {}, more: CompanionOptions['deps'] = {}) =>
    createTestPhone(change, { clock: systemClock, autoReturnMs: null, ...deps, ...more });
  let current = renew();
  const phone: LinkPhone = {
    handle: (command) => current.phone.handle(command),
    status: () => current.phone.status(),
    onStatusChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
  const waiters = new Set<(state: LinkState) => void>();
  const link: Link = createLink({
    dial,
    store,
    clock,
    log: createTestLog(),
    device: { name: 'Phone' },
    bridge: createBridge({ phone, clock }),
    offer,
    onState(state) {
      for (const waiter of [...waiters]) waiter(state);
    },
  });

  const companion = {
    link,
    deviceId: store.deviceId,
    tool: bearer(token),
    get phone() {
      return current;
    },
    /** Replaces the phone behind the link. The relay learns of it with the next report. */
    replace(change: Partial<SafetySettings> = {}, more: CompanionOptions['deps'] = {}): TestPhone {
      current.phone.close();
      current = renew(change, more);
      return current;
    },
    /** Sends a status report now. */
    report() {
      for (const listener of [...listeners]) listener();
    },
    /** Resolves once the link is in this state. */
    until: (name: LinkState['name']) =>
      new Promise<void>((resolve) => {
        const look = (state: LinkState) => {
          if (state.name !== name) return;
          waiters.delete(look);
          resolve();
        };
        waiters.add(look);
        look(link.state);
      }),
    /** Calls the phone through the relay, with the arguments in the query of a GET or the body of a POST. */
    async call(method: string, path: string, args: Record<string, unknown> = {}): Promise<ToolAnswer> {
      const query = Object.entries(args).map(([key, value]): [string, string] => [key, String(value)]);
      const response = await (method === 'GET'
        ? target.fetch(`${path}?${new URLSearchParams(query)}`, { headers: companion.tool })
        : target.fetch(path, { ...post(args), headers: companion.tool }));
      return { status: response.status, body: (await response.json()) as ToolAnswer['body'] };
    },
    async stop() {
      await link.stop();
      current.phone.close();
      await rm(directory, { recursive: true, force: true });
    },
  };
  link.start();
  await companion.until('online');
  return companion;
}
