import { sleep } from '../../kit/timeouts.ts';
import type { GlobalAction } from '../device.ts';
import { granted } from '../gates/capability.ts';
import { type Call, CommandFailure, type Handler } from '../gates/gate.ts';
import { firstRefusal, STANDING } from '../gates/standing.ts';
import { readScreen } from '../tree.ts';
import { clamp, flag, integer, pick, required, text } from './args.ts';
import { matching, toN } from './nodes.ts';
import { insist } from './personal.ts';

const MAX_WAIT = 15_000;
/** How often `/wait` looks for its element, ms. */
const LOOK_EVERY = 200;

/** Replaces what is in the focused field; `clearFirst` is what happens anyway. */
export const type: Handler = async (call) => {
  const content = text(call.args, 'text');
  if (!content) throw new CommandFailure(400, 'missing text');
  flag(call.args, 'clearFirst', 'clear_first');
  const { listed } = await readScreen(call.env.device);
  const field = listed.find(({ node }) => node.focused && node.editable);
  if (!field) throw new CommandFailure(400, 'no focused text field');
  if (!(await call.env.device.setText(field.node, content))) throw new CommandFailure(400, 'the field takes no text');
  return { length: content.length };
};

const KEYS: Record<string, GlobalAction> = {
  home: 'home',
  back: 'back',
  recents: 'recents',
  recent_apps: 'recents',
  overview: 'recents',
  notifications: 'notifications',
  quick_settings: 'quick_settings',
  power_dialog: 'power_dialog',
  lock_screen: 'lock_screen',
};

/** A global action; raw key events do not exist. */
export const pressKey: Handler = async ({ args, env }) => {
  const key = required(args, 'key').trim().toLowerCase();
  const action = Object.hasOwn(KEYS, key) ? KEYS[key] : undefined;
  if (!action) throw new CommandFailure(400, `unsupported key; one of ${Object.keys(KEYS).join(', ')}`);
  if (!(await env.device.global(action))) throw new CommandFailure(400, 'the system declined');
  return { key };
};

/**
 * Sleeps `ms`, or until an element is there but no longer than `timeoutMs`; both at most 15 s. The route needs no
 * capability, so what is on the screen is told to those only who may read it.
 */
export const wait: Handler = async (call) => {
  const { args, env } = call;
  const filter = {
    text: text(args, 'text') || undefined,
    className: text(args, 'className', 'class_name') || undefined,
  };
  const timeout = integer(args, 'timeoutMs', 'timeout_ms');
  const started = env.clock.monotonic();
  const slept = () => Math.round(env.clock.monotonic() - started);
  if (timeout === undefined || (filter.text === undefined && filter.className === undefined)) {
    const ms = clamp(integer(args, 'ms') ?? timeout ?? 0, 0, MAX_WAIT);
    await sleep({ clock: env.clock, timeout: ms, signal: env.closed });
    return { slept_ms: slept() };
  }
  return look(call, filter, clamp(timeout, 0, MAX_WAIT), slept);
};

async function look(call: Call, filter: Parameters<typeof matching>[1], timeout: number, slept: () => number) {
  const { env } = call;
  for (;;) {
    const found = matching(await readScreen(env.device), filter)[0];
    const mayRead = granted(env, 'screen_inspection').kind === 'pass';
    if (found) return { slept_ms: slept(), found: true, ...(mayRead && { node: toN(found) }) };
    const left = timeout - slept();
    if (left <= 0 || env.closed.aborted) return { slept_ms: slept(), found: false };
    await sleep({ clock: env.clock, timeout: Math.min(left, LOOK_EVERY), signal: env.closed });
    // Meanwhile the owner may have switched the bridge off, or opened an app that nobody may look at.
    insist(await firstRefusal(STANDING, call));
  }
}

export const readClipboard: Handler = async ({ env }) => ({ text: await env.device.readClipboard() });

export const writeClipboard: Handler = async ({ args, env }) => {
  const content = text(args, 'text');
  if (content === undefined) throw new CommandFailure(400, 'missing text');
  await env.device.writeClipboard(content, 'svc');
  return { success: true, length: content.length };
};

const MEDIA: Record<string, number> = {
  play: 126,
  pause: 127,
  toggle: 85,
  next: 87,
  previous: 88,
  volume_up: 24,
  volume_down: 25,
};

/** A media or volume key, or `volume` with a `level` in percent. */
export const media: Handler = async ({ args, env }) => {
  const action = required(args, 'action').trim().toLowerCase();
  if (action === 'volume') {
    const level = integer(args, 'level');
    if (level === undefined || level < 0 || level > 100) throw new CommandFailure(400, 'level must be 0 to 100');
    await env.device.setVolume(level);
    return { action, level };
  }
  const keycode = Object.hasOwn(MEDIA, action) ? MEDIA[action] : undefined;
  if (keycode === undefined) throw new CommandFailure(400, 'unknown action');
  await env.device.mediaKey(keycode);
  return { action, keycode };
};

export const events: Handler = ({ args, env }) => {
  const limit = clamp(integer(args, 'limit') ?? 50, 1, 500);
  const entries = env.events.read(integer(args, 'since') ?? 0, limit);
  return { entries, count: entries.length, streaming: env.events.streaming };
};

export const streamEvents: Handler = ({ args, env }) => {
  const enabled = pick(args, 'enabled');
  if (typeof enabled !== 'boolean') throw new CommandFailure(400, 'enabled must be true or false');
  env.events.stream(enabled);
  return { streaming: enabled, buffer_cleared: true };
};
