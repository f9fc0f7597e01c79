import { sleep } from '../../kit/timeouts.ts';
import type { device } from '../../operations/device.ts';
import { type CommandCall, firstRefusal, type Handler, throwIfRefused } from '../gates/gate.ts';
import { checkCapability, STANDING_GATES } from '../gates/standing.ts';
import { readScreen } from '../tree.ts';
import type { HandlerOf } from './args.ts';
import { matchingNodes, type NodeFilter, nodeJson } from './nodes.ts';

const POLL_INTERVAL_MS = 200;

export const ping: Handler = ({ env }) => ({ pong: true, ts: env.clock.now() });

export const setup: Handler = ({ env }) => ({
  ok: true,
  note: `${env.device.info().name} is connected. The owner decides on the phone what is allowed.`,
});

export const currentApp: Handler = ({ env }) => ({ package: env.device.info().foreground ?? 'unknown' });

/**
 * Sleeps for `ms`, or until an element appears but no longer than `timeoutMs`; both at most 15 s. The route needs no
 * capability, so the node itself is returned only to callers that may inspect the screen.
 */
export const wait: HandlerOf<typeof device.wait> = async (call, args) => {
  const { env } = call;
  const filter = { text: args.text || undefined, className: args.className || undefined };
  const { timeoutMs: timeout, ms = timeout ?? 0 } = args;
  const started = env.clock.monotonic();
  const slept = () => Math.round(env.clock.monotonic() - started);
  if (timeout === undefined || (filter.text === undefined && filter.className === undefined)) {
    await sleep({ clock: env.clock, timeout: ms, signal: env.closed });
    return { slept_ms: slept() };
  }
  return waitForNode(call, filter, timeout, slept);
};

async function waitForNode(call: CommandCall, filter: NodeFilter, timeout: number, slept: () => number) {
  const { env } = call;
  for (;;) {
    const found = matchingNodes(await readScreen(env.device), filter)[0];
    const mayInspect = checkCapability(env, 'screen_inspection').kind === 'pass';
    if (found) return { slept_ms: slept(), found: true, ...(mayInspect && { node: nodeJson(found) }) };
    const left = timeout - slept();
    if (left <= 0 || env.closed.aborted) return { slept_ms: slept(), found: false };
    await sleep({ clock: env.clock, timeout: Math.min(left, POLL_INTERVAL_MS), signal: env.closed });
    // The owner may have switched the bridge off meanwhile, or opened a blocklisted app.
    throwIfRefused(await firstRefusal(STANDING_GATES, call));
  }
}

export const events: HandlerOf<typeof device.events> = ({ env }, { since, limit }) => {
  const entries = env.events.read(since, limit);
  return { entries, count: entries.length, streaming: env.events.streaming };
};

export const streamEvents: HandlerOf<typeof device.eventStream> = ({ env }, { enabled }) => {
  env.events.stream(enabled);
  return { streaming: enabled, buffer_cleared: true };
};
