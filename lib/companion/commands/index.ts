import type { JsonObject } from '../../kit/json.ts';
import { type DeviceRow, device } from '../../operations/device.ts';
import type { CommandCall, CommandFailure, CommandRoute } from '../gates/gate.ts';
import type { Refusal } from '../gates/refusals.ts';
import type { Capability } from '../safety-settings.ts';
import type { PhoneCommand } from '../types.ts';
import * as apps from './apps.ts';
import { type ArgsOf, badRequest, type HandlerOf, type Problem, readArgs } from './args.ts';
import * as core from './core.ts';
import * as input from './input.ts';
import { addressedText } from './nodes.ts';
import * as personal from './personal.ts';
import * as read from './read.ts';
import { badShare, sendMms, shareMedia } from './share.ts';
import * as touch from './touch.ts';

type Traits = Omit<CommandRoute, 'method' | 'path' | 'capability' | 'run' | 'destructiveText'>;

interface TraitsOf<Row extends DeviceRow> extends Traits {
  /** The text that the destructive gate checks; null for a command without text. */
  destructiveText?: (call: CommandCall, args: ArgsOf<Row>) => Promise<string | null>;
  /** The failure for malformed arguments, if it is more than a 400 with the sentence of the schema. */
  malformed?: (problem: Problem) => CommandFailure;
}

const row = <Row extends DeviceRow>(
  of: Row,
  capability: Capability | null,
  run: HandlerOf<Row>,
  { destructiveText, malformed = ({ message }) => badRequest(message), ...traits }: TraitsOf<Row> = {},
): CommandRoute => ({
  method: of.method,
  path: of.path,
  capability,
  ...traits,
  run(call) {
    const { args, problem } = readArgs(of, call.args);
    if (problem) throw malformed(problem);
    return run(call, args);
  },
  ...(destructiveText && {
    async destructiveText(call: CommandCall) {
      const { args } = readArgs(of, call.args);
      if (args) return destructiveText(call, args);
      // The handler refuses malformed arguments, but this gate comes first (contract 03 §8.1).
      const { text } = call.args;
      return typeof text === 'string' ? text : null;
    },
  }),
});

const show = (value: unknown): string => (typeof value === 'string' || typeof value === 'number' ? String(value) : '');
const nodeId = (args: JsonObject): string => show(args.nodeId ?? args.node_id);

/** Summaries for the activity log. They never contain typed, copied or sent text. */
const summary = {
  node: nodeId,
  argument:
    (name: string) =>
    (args: JsonObject): string =>
      Object.hasOwn(args, name) ? show(args[name]) : '',
  place: (args: JsonObject): string => nodeId(args) || [show(args.x), show(args.y)].filter(Boolean).join(', '),
  label: (args: JsonObject): string => (typeof args.text === 'string' ? `"${args.text}"` : ''),
  length: (args: JsonObject): string => (typeof args.text === 'string' ? `${args.text.length} characters` : ''),
  stroke: (args: JsonObject): string =>
    show(args.direction) || [args.start_x, args.start_y, args.end_x, args.end_y].map(show).filter(Boolean).join(', '),
};

const readOnly: Traits = { readOnly: true };
const quiet: Traits = { readOnly: true, quiet: true };
const INSPECT = 'screen_inspection';
const CONTROL = 'screen_control';

/**
 * THE command table: the handler of each Device Control call on this phone, and its capability (contract 03 §5, §8.1).
 */
export const ROUTES: readonly CommandRoute[] = [
  row(device.ping, null, core.ping, { ...quiet, ungated: true }),
  row(device.setup, null, core.setup, { ...quiet, ungated: true }),
  row(device.currentApp, 'device_info', core.currentApp, { ...quiet, bypassesMaster: true }),

  row(device.screen, INSPECT, read.screen, readOnly),
  row(device.screenHash, INSPECT, read.screenHash, quiet),
  row(device.diffScreen, INSPECT, read.diffScreen, readOnly),
  row(device.findNodes, INSPECT, read.findNodes, readOnly),
  row(device.describeNode, INSPECT, read.describeNode, { ...readOnly, summary: summary.node }),
  row(device.screenshot, INSPECT, read.screenshot, readOnly),
  row(device.getApps, 'device_info', read.getApps, readOnly),
  row(device.apps, 'device_info', read.getApps, readOnly),

  row(device.tap, CONTROL, touch.tap, { destructiveText: addressedText, summary: summary.place }),
  row(device.tapText, CONTROL, touch.tapText, { destructiveText: touch.tapTextLabels, summary: summary.label }),
  row(device.longPress, CONTROL, touch.longPress, { destructiveText: addressedText, summary: summary.place }),
  row(device.drag, CONTROL, touch.drag, { summary: summary.stroke }),
  row(device.type, CONTROL, input.type, { destructiveText: async (_, { text }) => text, summary: summary.length }),
  row(device.swipe, CONTROL, touch.swipe, { summary: summary.stroke }),
  row(device.scroll, CONTROL, touch.scroll, { summary: summary.argument('direction') }),
  row(device.pressKey, CONTROL, input.pressKey, { summary: summary.argument('key') }),
  row(device.wait, null, core.wait, readOnly),
  row(device.openApp, CONTROL, apps.openApp, { leaves: true, summary: summary.argument('package') }),
  row(device.returnToHermes, CONTROL, apps.returnToHermes, {
    ...readOnly,
    bypassesMaster: true,
    bypassesBlocklist: true,
  }),
  row(device.readClipboard, 'clipboard_read', input.readClipboard),
  row(device.writeClipboard, 'clipboard_write', input.writeClipboard, { summary: summary.length }),
  row(device.media, 'media_control', input.media, { summary: summary.argument('action') }),
  row(device.sendIntent, CONTROL, apps.sendIntent, { leaves: true, summary: summary.argument('action') }),
  row(device.broadcast, CONTROL, apps.broadcast, { summary: summary.argument('action') }),

  row(device.events, INSPECT, core.events, quiet),
  row(device.eventStream, INSPECT, core.streamEvents, quiet),

  row(device.location, 'location_read', personal.location, readOnly),
  row(device.searchContacts, 'contacts_read', personal.searchContacts, readOnly),
  row(device.call, 'communications', personal.placeCall, { summary: summary.argument('number') }),
  row(device.sendSms, 'communications', personal.sendSms, {
    malformed: personal.badSms,
    summary: summary.argument('to'),
  }),
  row(device.shareMedia, 'outbound_sharing', shareMedia, {
    malformed: badShare,
    leaves: true,
    summary: summary.argument('package'),
  }),
  row(device.sendMms, 'outbound_sharing', sendMms, {
    malformed: badShare,
    leaves: true,
    summary: summary.argument('to'),
  }),
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
