import type { CommandRoute, Handler } from '../gates/gate.ts';
import type { Refusal } from '../gates/refusals.ts';
import type { Capability } from '../safety-settings.ts';
import type { PhoneCommand } from '../types.ts';
import * as apps from './apps.ts';
import type { Args } from './args.ts';
import * as core from './core.ts';
import * as input from './input.ts';
import { addressedText, typedText } from './nodes.ts';
import * as personal from './personal.ts';
import * as read from './read.ts';
import { sendMms, shareMedia } from './share.ts';
import * as touch from './touch.ts';

type Traits = Omit<CommandRoute, 'method' | 'path' | 'capability' | 'run'>;

const row = (
  method: CommandRoute['method'],
  path: string,
  capability: Capability | null,
  run: Handler,
  traits: Traits = {},
): CommandRoute => ({ method, path, capability, run, ...traits });

const show = (value: unknown): string => (typeof value === 'string' || typeof value === 'number' ? String(value) : '');
const nodeId = (args: Args): string => show(args.nodeId ?? args.node_id);

/** Summaries for the activity log. They never contain text that was typed, copied or sent. */
const summary = {
  node: nodeId,
  argument:
    (name: string) =>
    (args: Args): string =>
      Object.hasOwn(args, name) ? show(args[name]) : '',
  place: (args: Args): string => nodeId(args) || [show(args.x), show(args.y)].filter(Boolean).join(', '),
  label: (args: Args): string => (typeof args.text === 'string' ? `"${args.text}"` : ''),
  length: (args: Args): string => (typeof args.text === 'string' ? `${args.text.length} characters` : ''),
  stroke: (args: Args): string =>
    show(args.direction) || [args.start_x, args.start_y, args.end_x, args.end_y].map(show).filter(Boolean).join(', '),
};

const readOnly: Traits = { readOnly: true };
const quiet: Traits = { readOnly: true, quiet: true };
const INSPECT = 'screen_inspection';
const CONTROL = 'screen_control';

/** THE command table: 34 paths, 35 pairs of method and path, each with its capability (contract 03 §5, §8.1). */
export const ROUTES: readonly CommandRoute[] = [
  row('GET', '/ping', null, core.ping, { ...quiet, ungated: true }),
  row('POST', '/setup', null, core.setup, { ...quiet, ungated: true }),
  row('GET', '/current_app', 'device_info', core.currentApp, { ...quiet, bypassesMaster: true }),

  row('GET', '/screen', INSPECT, read.screen, readOnly),
  row('GET', '/screen_hash', INSPECT, read.screenHash, quiet),
  row('POST', '/diff_screen', INSPECT, read.diffScreen, readOnly),
  row('POST', '/find_nodes', INSPECT, read.findNodes, readOnly),
  row('POST', '/describe_node', INSPECT, read.describeNode, { ...readOnly, summary: summary.node }),
  row('GET', '/screenshot', INSPECT, read.screenshot, readOnly),
  row('GET', '/get_apps', 'device_info', read.getApps, readOnly),
  row('GET', '/apps', 'device_info', read.getApps, readOnly),

  row('POST', '/tap', CONTROL, touch.tap, { destructiveText: addressedText, summary: summary.place }),
  row('POST', '/tap_text', CONTROL, touch.tapText, { destructiveText: touch.tapTextLabels, summary: summary.label }),
  row('POST', '/long_press', CONTROL, touch.longPress, { destructiveText: addressedText, summary: summary.place }),
  row('POST', '/drag', CONTROL, touch.drag, { summary: summary.stroke }),
  row('POST', '/type', CONTROL, input.type, { destructiveText: typedText, summary: summary.length }),
  row('POST', '/swipe', CONTROL, touch.swipe, { summary: summary.stroke }),
  row('POST', '/scroll', CONTROL, touch.scroll, { summary: summary.argument('direction') }),
  row('POST', '/press_key', CONTROL, input.pressKey, { summary: summary.argument('key') }),
  row('POST', '/wait', null, core.wait, readOnly),
  row('POST', '/open_app', CONTROL, apps.openApp, { leaves: true, summary: summary.argument('package') }),
  row('POST', '/return_to_hermes', CONTROL, apps.returnToHermes, {
    ...readOnly,
    bypassesMaster: true,
    bypassesBlocklist: true,
  }),
  row('GET', '/clipboard', 'clipboard_read', input.readClipboard),
  row('POST', '/clipboard', 'clipboard_write', input.writeClipboard, { summary: summary.length }),
  row('POST', '/media', 'media_control', input.media, { summary: summary.argument('action') }),
  row('POST', '/send_intent', CONTROL, apps.sendIntent, { leaves: true, summary: summary.argument('action') }),
  row('POST', '/broadcast', CONTROL, apps.broadcast, { summary: summary.argument('action') }),

  row('GET', '/events', INSPECT, core.events, quiet),
  row('POST', '/events/stream', INSPECT, core.streamEvents, quiet),

  row('GET', '/location', 'location_read', personal.location, readOnly),
  row('POST', '/search_contacts', 'contacts_read', personal.searchContacts, readOnly),
  row('POST', '/call', 'communications', personal.placeCall, { summary: summary.argument('number') }),
  row('POST', '/send_sms', 'communications', personal.sendSms, { summary: summary.argument('to') }),
  row('POST', '/share_media', 'outbound_sharing', shareMedia, { leaves: true, summary: summary.argument('package') }),
  row('POST', '/send_mms', 'outbound_sharing', sendMms, { leaves: true, summary: summary.argument('to') }),
];

/** Gate 1: the route of a command. The table is closed, so anything else does not exist (contract 03 §8.1). */
export function findRoute({
  method,
  path,
}: Pick<PhoneCommand, 'method' | 'path'>): { kind: 'found'; route: CommandRoute } | Refusal {
  const upper = String(method).toUpperCase();
  const route = ROUTES.find((candidate) => candidate.path === path && candidate.method === upper);
  if (route) return { kind: 'found', route };
  // The only path that answers 405, because it exists with both methods (contract 03 §8.7).
  return path === '/clipboard' ? { kind: 'method-not-allowed' } : { kind: 'unknown-command' };
}
