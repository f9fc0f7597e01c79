import type { device } from '../../operations/device.ts';
import type { GlobalAction } from '../device.ts';
import type { Handler } from '../gates/gate.ts';
import { readScreen } from '../tree.ts';
import { type ArgsOf, badRequest, type HandlerOf } from './args.ts';

/** Replaces the content of the focused field. `clearFirst` is accepted but changes nothing. */
export const type: HandlerOf<typeof device.type> = async ({ env }, { text }) => {
  const { listed } = await readScreen(env.device);
  const field = listed.find(({ node }) => node.focused && node.editable);
  if (!field) throw badRequest('no focused text field');
  if (!(await env.device.setText(field.node, text))) throw badRequest('the field does not accept text');
  return { length: text.length };
};

type Key = ArgsOf<typeof device.pressKey>['key'];

const actionOf = (key: Key): GlobalAction => (key === 'recent_apps' || key === 'overview' ? 'recents' : key);

/** A global action; there are no raw key events. */
export const pressKey: HandlerOf<typeof device.pressKey> = async ({ env }, { key }) => {
  if (!(await env.device.global(actionOf(key)))) throw badRequest('the system declined the key');
  return { key };
};

export const readClipboard: Handler = async ({ env }) => ({ text: await env.device.readClipboard() });

export const writeClipboard: HandlerOf<typeof device.writeClipboard> = async ({ env }, { text }) => {
  await env.device.writeClipboard(text, 'svc');
  return { success: true, length: text.length };
};

/** Android key codes. */
const MEDIA_KEYS: Record<Exclude<ArgsOf<typeof device.media>['action'], 'volume'>, number> = {
  play: 126,
  pause: 127,
  toggle: 85,
  next: 87,
  previous: 88,
  volume_up: 24,
  volume_down: 25,
};

/** Presses a media or volume key, or sets the volume to `level` percent. */
export const media: HandlerOf<typeof device.media> = async ({ env }, { action, level = 0 }) => {
  if (action === 'volume') {
    await env.device.setVolume(level);
    return { action, level };
  }
  const keycode = MEDIA_KEYS[action];
  await env.device.mediaKey(keycode);
  return { action, keycode };
};
