import type { Capability } from '../capabilities.ts';
import type { Handler, Route } from '../gates/gate.ts';
import * as core from './core.ts';
import * as input from './input.ts';
import * as intents from './intents.ts';
import { addressedText, bodyText } from './nodes.ts';
import * as personal from './personal.ts';
import * as read from './read.ts';
import { screenshot } from './screenshot.ts';
import { sendMms, shareMedia } from './share.ts';
import * as summary from './summaries.ts';
import { tapText, tapTextLabels } from './tap-text.ts';
import * as touch from './touch.ts';

type Traits = Omit<Route, 'method' | 'path' | 'capability' | 'run'>;

const row = (
  method: Route['method'],
  path: string,
  capability: Capability | null,
  run: Handler,
  traits: Traits = {},
): Route => ({ method, path, capability, run, ...traits });

const look: Traits = { readOnly: true };
const quiet: Traits = { readOnly: true, quiet: true };
const INSPECT = 'screen_inspection';
const CONTROL = 'screen_control';

/** THE command table: 34 paths, 35 pairs, each with its capability (contract 03 §5, §8.1). */
export const ROUTES: readonly Route[] = [
  row('GET', '/ping', null, core.ping, { ...quiet, ungated: true }),
  row('POST', '/setup', null, core.setup, { ...quiet, ungated: true }),
  row('GET', '/current_app', 'device_info', core.currentApp, { ...quiet, bypassesMaster: true }),

  row('GET', '/screen', INSPECT, read.screen, look),
  row('GET', '/screen_hash', INSPECT, read.screenHash, quiet),
  row('POST', '/diff_screen', INSPECT, read.diffScreen, look),
  row('POST', '/find_nodes', INSPECT, read.findNodes, look),
  row('POST', '/describe_node', INSPECT, read.describeNode, { ...look, summary: summary.node }),
  row('GET', '/screenshot', INSPECT, screenshot, look),
  row('GET', '/get_apps', 'device_info', core.getApps, look),
  row('GET', '/apps', 'device_info', core.getApps, look),

  row('POST', '/tap', CONTROL, touch.tap, { destructiveText: addressedText, summary: summary.place }),
  row('POST', '/tap_text', CONTROL, tapText, { destructiveText: tapTextLabels, summary: summary.label }),
  row('POST', '/long_press', CONTROL, touch.longPress, { destructiveText: addressedText, summary: summary.place }),
  row('POST', '/drag', CONTROL, touch.drag, { summary: summary.line }),
  row('POST', '/type', CONTROL, input.type, { destructiveText: bodyText, summary: summary.length }),
  row('POST', '/swipe', CONTROL, touch.swipe, { summary: summary.line }),
  row('POST', '/scroll', CONTROL, touch.scroll, { summary: summary.named('direction') }),
  row('POST', '/press_key', CONTROL, input.pressKey, { summary: summary.named('key') }),
  row('POST', '/wait', null, input.wait, look),
  row('POST', '/open_app', CONTROL, intents.openApp, { leaves: true, summary: summary.named('package') }),
  row('POST', '/return_to_hermes', CONTROL, intents.returnToHermes, {
    ...look,
    bypassesMaster: true,
    bypassesBlocklist: true,
  }),
  row('GET', '/clipboard', 'clipboard_read', input.readClipboard),
  row('POST', '/clipboard', 'clipboard_write', input.writeClipboard, { summary: summary.length }),
  row('POST', '/media', 'media_control', input.media, { summary: summary.named('action') }),
  row('POST', '/send_intent', CONTROL, intents.sendIntent, { leaves: true, summary: summary.named('action') }),
  row('POST', '/broadcast', CONTROL, intents.broadcast, { summary: summary.named('action') }),

  row('GET', '/events', INSPECT, input.events, quiet),
  row('POST', '/events/stream', INSPECT, input.streamEvents, quiet),

  row('GET', '/location', 'location_read', personal.location, look),
  row('POST', '/search_contacts', 'contacts_read', personal.searchContacts, look),
  row('POST', '/call', 'communications', personal.call, { summary: summary.named('number') }),
  row('POST', '/send_sms', 'communications', personal.sendSms, { summary: summary.named('to') }),
  row('POST', '/share_media', 'outbound_sharing', shareMedia, { leaves: true, summary: summary.named('package') }),
  row('POST', '/send_mms', 'outbound_sharing', sendMms, { leaves: true, summary: summary.named('to') }),
];
