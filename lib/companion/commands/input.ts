import type { GlobalAction } from '../device.ts';
import type { Handler } from '../gates/gate.ts';
import { readScreen } from '../tree.ts';
import { badRequest, flag, integer, lookUp, required, text } from './args.ts';

/** Replaces the content of the focused field. `clearFirst` is accepted but changes nothing. */
export const type: Handler = async (call) => {
  const content = text(call.args, 'text');
  if (!content) throw badRequest('missing text');
  flag(call.args, 'clearFirst', 'clear_first');
  const { listed } = await readScreen(call.env.device);
  const field = listed.find(({ node }) => node.focused && node.editable);
  if (!field) throw badRequest('no focused text field');
  if (!(await call.env.device.setText(field.node, content))) throw badRequest('the field does not accept text');
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

/** A global action; there are no raw key events. */
export const pressKey: Handler = async ({ args, env }) => {
  const key = required(args, 'key').trim().toLowerCase();
  const action = lookUp(KEYS, key);
  if (!action) throw badRequest(`unsupported key; one of ${Object.keys(KEYS).join(', ')}`);
  if (!(await env.device.global(action))) throw badRequest('the system declined the key');
  return { key };
};

export const readClipboard: Handler = async ({ env }) => ({ text: await env.device.readClipboard() });

export const writeClipboard: Handler = async ({ args, env }) => {
  const content = text(args, 'text');
  if (content === undefined) throw badRequest('missing text');
  await env.device.writeClipboard(content, 'svc');
  return { success: true, length: content.length };
};

/** Android key codes. */
const MEDIA_KEYS: Record<string, number> = {
  play: 126,
  pause: 127,
  toggle: 85,
  next: 87,
  previous: 88,
  volume_up: 24,
  volume_down: 25,
};

/** Presses a media or volume key, or sets the volume to `level` percent. */
export const media: Handler = async ({ args, env }) => {
  const action = required(args, 'action').trim().toLowerCase();
  if (action === 'volume') {
    const level = integer(args, 'level');
    if (level === undefined || level < 0 || level > 100) throw badRequest('level must be 0 to 100');
    await env.device.setVolume(level);
    return { action, level };
  }
  const keycode = lookUp(MEDIA_KEYS, action);
  if (keycode === undefined) throw badRequest('unknown action');
  await env.device.mediaKey(keycode);
  return { action, keycode };
};
