import * as v from 'valibot';
import { asObject, isObject } from '../kit/json.ts';
import {
  clamped,
  filledText,
  flag,
  type InputRow,
  type InputSchema,
  input,
  integer,
  integerWithin,
  oneOf,
  optionalText,
  requiredText,
  rule,
  text,
} from './input.ts';
import type { Hints, OperationRow } from './operation.ts';

/** One call that phones understand. */
export interface DeviceRow<Input extends InputSchema = InputSchema> extends OperationRow, InputRow {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly grant: 'bridge';
  readonly input: Input;
  /** Store builds support it (contract 03 §3). */
  readonly onStoreBuild?: true;
  /** Its results are private: only names and counts are recorded (contract 03 §6). */
  readonly isPrivate?: true;
  /** Its result shows what others wrote: screens, notifications, the clipboard, contacts (contract 09 §7). */
  readonly untrusted?: true;
  /** Another path to the same operation, so that agents need not be offered it twice. */
  readonly isAlias?: true;
}

/** Milliseconds of the longest gesture that Android dispatches. */
const MAX_GESTURE = 60_000;
const MAX_WAIT = 15_000;
const MAX_ATTACHMENTS = 20;
const DIALLABLE = /^[+0-9 ()\-.,*#pPwW]{2,}$/;
const RECIPIENT = /^[+0-9 ()\-.]{2,}$/;
/** `MEDIA:svc-relay://<token>`, `svc-relay://<token>`, `MEDIA:<token>`, `<token>`, `MEDIA:/abs/path`. */
const MEDIA = /^\s*(?:MEDIA:\/[\s\S]*\S|(?:MEDIA:)?(?:svc-relay:\/\/)?[A-Za-z0-9_-]{1,256})\s*$/;

/** The arguments of a call. Every call accepts the selector of contract 03 §3, which the relay removes. */
const args = <const Entries extends v.ObjectEntries>(entries: Entries, missing?: string) =>
  input(
    {
      ...entries,
      device: v.optional(text('device', 'name or id of the phone, where several are connected; else the active one')),
    },
    missing,
  );
const NOTHING = args({});

/** An integer >= 0. */
const pixels = (name: string, description: string) =>
  v.pipe(integer(name, description), v.minValue(0, `${name} must not be negative`));

const point = {
  x: v.optional(pixels('x', 'from the left, in pixels')),
  y: v.optional(pixels('y', 'from the top, in pixels')),
};

const nodeId = optionalText('nodeId', 'id of an element, as android_read_screen and android_find_nodes return it');

const NODE_ID = { node_id: 'nodeId' };
const DURATION = { duration: 'duration_ms' };

/** The sentence for the first of `names` that is absent. */
const missingOf =
  <Name extends string>(...names: Name[]) =>
  (given: Partial<Record<Name, unknown>>): string | undefined => {
    const absent = names.find((name) => given[name] === undefined);
    return absent && `missing ${absent}`;
  };

const missingPoint = missingOf('x', 'y');
const missingEnds = missingOf('start_x', 'start_y', 'end_x', 'end_y');

const ends = {
  start_x: pixels('start_x', 'where the finger goes down, from the left, in pixels'),
  start_y: pixels('start_y', 'where the finger goes down, from the top, in pixels'),
  end_x: pixels('end_x', 'where it is lifted, from the left'),
  end_y: pixels('end_y', 'where it is lifted, from the top'),
};

const direction = oneOf(
  'direction',
  ['up', 'down', 'left', 'right'],
  'where to',
  'direction must be up, down, left or right',
);

const hint = v.optional(text('text', 'the label that you expect there; may make the phone ask its owner first'));

const KEYS = [
  'home',
  'back',
  'recents',
  'recent_apps',
  'overview',
  'notifications',
  'quick_settings',
  'power_dialog',
  'lock_screen',
] as const;

const MEDIA_ACTIONS = ['play', 'pause', 'toggle', 'next', 'previous', 'volume_up', 'volume_down', 'volume'] as const;

/** The strings of an object; numbers and booleans become text, other values are dropped (contract 03 §5). */
const stringsOf = (value: unknown): Record<string, string> =>
  Object.fromEntries(
    Object.entries(asObject(value) ?? {})
      .filter(([, entry]) => ['string', 'number', 'boolean'].includes(typeof entry))
      .map(([key, entry]) => [key, String(entry)]),
  );

const extras = v.optional(
  v.pipe(
    // `v.record` would accept an array.
    v.unknown(),
    v.check(isObject, 'extras must be an object'),
    v.metadata({ type: 'object' }),
    v.description('values to pass on, by name: strings, numbers and booleans'),
    v.transform(stringsOf),
  ),
  {},
);

const intent = args({
  action: requiredText('action', 'the action, such as android.intent.action.VIEW'),
  data: v.optional(text('data', 'a URI'), ''),
  package: v.optional(text('package', 'package of the app that shall take it'), ''),
  component: v.optional(
    v.pipe(
      text('component', 'package/class that shall take it'),
      v.regex(/^(?:[^/\s]+\/[^/\s]+)?$/, 'component must be package/class'),
    ),
    '',
  ),
  category: v.optional(text('category', 'a category, such as android.intent.category.BROWSABLE'), ''),
  extras,
});

const MALFORMED = 'malformed attachment';
const attachmentText = (pattern: RegExp, description: string) =>
  v.pipe(v.string(MALFORMED), v.regex(pattern, MALFORMED), v.description(description));
const hostPath = () => attachmentText(/^\//, 'absolute path of a file on the host of the relay');
const mediaText = () => attachmentText(MEDIA, 'a media token of the relay, also as MEDIA:svc-relay://<token>');

const listOf = <const Item extends v.GenericSchema>(item: Item, description: string) =>
  v.pipe(v.array(item, MALFORMED), v.maxLength(MAX_ATTACHMENTS, MALFORMED), v.description(description));

/** Attachments of contract 03 §5, in the order in which they are sent. */
const attachments = {
  path: v.optional(hostPath()),
  paths: v.optional(listOf(hostPath(), 'several such paths')),
  media: v.optional(mediaText()),
  media_token: v.optional(mediaText()),
  media_tokens: v.optional(listOf(mediaText(), 'several such tokens')),
  attachments: v.optional(
    listOf(
      v.pipe(
        v.object(
          {
            path: v.optional(hostPath()),
            media: v.optional(mediaText()),
            media_token: v.optional(mediaText()),
            token: v.optional(mediaText()),
            content_type: v.optional(v.pipe(v.string(MALFORMED), v.description('its media type'))),
            file_name: v.optional(v.pipe(v.string(MALFORMED), v.description('its name for the receiver'))),
          },
          MALFORMED,
        ),
        v.check(
          ({ path, media, media_token, token }) => (path ?? media ?? media_token ?? token) !== undefined,
          MALFORMED,
        ),
      ),
      'files with their type and name; each has a path or a token',
    ),
  ),
};

interface Attachments {
  path?: string;
  paths?: unknown[];
  media?: string;
  media_token?: string;
  media_tokens?: unknown[];
  attachments?: unknown[];
}

const countOf = ({ path, media, media_token, ...lists }: Attachments): number =>
  [path, media, media_token].filter((one) => one !== undefined).length +
  (lists.paths?.length ?? 0) +
  (lists.media_tokens?.length ?? 0) +
  (lists.attachments?.length ?? 0);

const fewAttachments = (given: Attachments) => (countOf(given) > MAX_ATTACHMENTS ? MALFORMED : undefined);

const sharing = {
  ...attachments,
  title: v.optional(text('title', 'title of the share sheet'), ''),
  package: v.optional(
    v.pipe(text('package', 'package of the app to share with; else the owner chooses'), v.trim()),
    '',
  ),
};

/** For calls that may press a button that deletes, buys or sends. */
const ACTS = { effect: 'act', hints: { destructive: true, openWorld: true } } as const;
const PRIVATE_READ = { effect: 'read', isPrivate: true, untrusted: true } as const;
const REPEATABLE: Hints = { idempotent: true };

type Traits<Input extends InputSchema> = Omit<DeviceRow<Input>, 'method' | 'path' | 'grant'>;

const row =
  (method: DeviceRow['method']) =>
  <Input extends InputSchema>(path: string, traits: Traits<Input>): DeviceRow<Input> => ({
    method,
    path,
    grant: 'bridge',
    ...traits,
  });
const get = row('GET');
const post = row('POST');

/** THE table of Device Control (contract 03 §5): 34 paths, 35 pairs. Tools are named as in contract 03 §9. */
export const device = {
  ping: get('/ping', {
    name: 'android_ping',
    title: 'Check that the phone answers',
    description: 'Returns pong and the time of the phone. Is answered whatever the owner allows.',
    effect: 'read',
    onStoreBuild: true,
    ignoresFreeze: true,
    input: NOTHING,
  }),
  setup: post('/setup', {
    name: 'android_setup',
    title: 'Ask how the phone is set up',
    description:
      'Returns a note about the connection. Changes nothing: the owner decides on the phone what is allowed.',
    effect: 'read',
    onStoreBuild: true,
    input: NOTHING,
  }),
  currentApp: get('/current_app', {
    name: 'android_current_app',
    title: 'Show the app in front',
    description: 'Returns the package of the app in front, which may lag a little behind.',
    effect: 'read',
    input: NOTHING,
  }),

  screen: get('/screen', {
    name: 'android_read_screen',
    title: 'Read the screen',
    description:
      'Returns the elements on the screen: text, description, class, bounds, what can be done with each, and its nodeId ' +
      'for other calls. The ids hold until the screen changes.',
    ...PRIVATE_READ,
    aliases: { bounds: 'include_bounds' },
    input: args({
      include_bounds: v.optional(flag('include_bounds', 'whether to return where the elements are'), true),
    }),
  }),
  screenHash: get('/screen_hash', {
    name: 'android_screen_hash',
    title: 'Hash the screen',
    description: 'Returns a hash of what is on the screen, to see later whether it changed (android_diff_screen).',
    effect: 'read',
    input: NOTHING,
  }),
  diffScreen: post('/diff_screen', {
    name: 'android_diff_screen',
    title: 'Tell whether the screen changed',
    description: 'Returns whether the screen differs from that of an earlier hash, and its hash now.',
    effect: 'read',
    input: args({ previous_hash: requiredText('previous_hash', 'hash of android_screen_hash or of an earlier call') }),
  }),
  findNodes: post('/find_nodes', {
    name: 'android_find_nodes',
    title: 'Find elements on the screen',
    description: 'Returns the elements that meet all given conditions, as android_read_screen does.',
    ...PRIVATE_READ,
    input: args({
      text: v.optional(text('text', 'part of the text or description, in any case')),
      class_name: v.optional(text('class_name', 'the exact class, such as android.widget.Button')),
      clickable: v.optional(flag('clickable', 'whether it can be clicked')),
      limit: v.optional(clamped('limit', 1, 512, 'how many to return at most'), 20),
    }),
  }),
  describeNode: post('/describe_node', {
    name: 'android_describe_node',
    title: 'Describe an element',
    description: 'Returns everything about one element of the screen: bounds, texts, class, state.',
    ...PRIVATE_READ,
    aliases: NODE_ID,
    input: args({ nodeId: v.pipe(requiredText('nodeId', 'id of the element'), v.trim()) }),
  }),
  screenshot: get('/screenshot', {
    name: 'android_screenshot',
    title: 'Take a screenshot',
    description: 'Returns a picture of the screen. Where texts are enough, android_read_screen is cheaper.',
    effect: 'read',
    untrusted: true,
    input: NOTHING,
  }),
  getApps: get('/get_apps', {
    name: 'android_apps',
    title: 'List apps, as /apps does',
    description: 'The same as android_get_apps.',
    effect: 'read',
    untrusted: true,
    isAlias: true,
    input: NOTHING,
  }),
  apps: get('/apps', {
    name: 'android_get_apps',
    title: 'List apps',
    description: 'Returns package and label of every app that can be opened.',
    effect: 'read',
    untrusted: true,
    input: NOTHING,
  }),

  tap: post('/tap', {
    name: 'android_tap',
    title: 'Tap an element or a point',
    description: 'Taps an element, or a point of the screen. Returns the point.',
    ...ACTS,
    aliases: { ...NODE_ID, ...DURATION },
    input: v.pipe(
      args({
        nodeId,
        ...point,
        duration_ms: v.optional(integerWithin('duration_ms', 1, MAX_GESTURE, 'how long, in ms'), 100),
        text: hint,
      }),
      rule((given) => (given.nodeId === undefined ? missingPoint(given) : undefined)),
    ),
  }),
  tapText: post('/tap_text', {
    name: 'android_tap_text',
    title: 'Tap the element with a text',
    description:
      'Taps the element with that text: the exact label first, then a part of one. Returns how it was tapped.',
    ...ACTS,
    input: args({
      text: requiredText('text', 'text or description of the element'),
      exact: v.optional(flag('exact', 'whether only the whole label counts'), false),
    }),
  }),
  longPress: post('/long_press', {
    name: 'android_long_press',
    title: 'Press an element or a point long',
    description: 'Presses an element or a point of the screen for a while. Give either nodeId or x and y.',
    ...ACTS,
    aliases: { ...NODE_ID, ...DURATION },
    input: v.pipe(
      args({
        nodeId,
        ...point,
        duration_ms: v.optional(integerWithin('duration_ms', 100, 3000, 'how long, in ms', 'duration'), 500),
        text: hint,
      }),
      rule((given) => {
        const hasPoint = given.x !== undefined || given.y !== undefined;
        if ((given.nodeId !== undefined) === hasPoint) return 'give either x and y or nodeId';
        return hasPoint ? missingPoint(given) : undefined;
      }),
    ),
  }),
  drag: post('/drag', {
    name: 'android_drag',
    title: 'Drag from point to point',
    description: 'Moves a finger from one point of the screen to another.',
    ...ACTS,
    aliases: DURATION,
    input: args({ ...ends, duration_ms: v.optional(clamped('duration_ms', 100, 3000, 'how long, in ms'), 500) }),
  }),
  type: post('/type', {
    name: 'android_type',
    title: 'Type into the focused field',
    description: 'Replaces the content of the field that has the focus; tap the field first.',
    effect: 'act',
    hints: { destructive: true },
    aliases: { clear_first: 'clearFirst' },
    input: args({
      text: filledText('text', 'what to type'),
      clearFirst: v.optional(flag('clearFirst', 'has no effect: the content is always replaced')),
    }),
  }),
  swipe: post('/swipe', {
    name: 'android_swipe',
    title: 'Swipe across the screen',
    description:
      'Swipes between two points, or in a direction through the middle of the screen. Older phones only know points.',
    ...ACTS,
    aliases: DURATION,
    input: v.pipe(
      args({
        start_x: v.optional(ends.start_x),
        start_y: v.optional(ends.start_y),
        end_x: v.optional(ends.end_x),
        end_y: v.optional(ends.end_y),
        direction: v.optional(direction),
        distance: v.optional(
          oneOf('distance', ['short', 'medium', 'long'], 'how far', 'distance must be short, medium or long'),
          'medium',
        ),
        duration_ms: v.optional(integerWithin('duration_ms', 1, MAX_GESTURE, 'how long, in ms'), 400),
      }),
      rule((given) => {
        const { start_x, start_y, end_x, end_y } = given;
        if ([start_x, start_y, end_x, end_y].some((one) => one !== undefined)) return missingEnds(given);
        return given.direction ? undefined : 'give start_x, start_y, end_x and end_y, or direction';
      }),
    ),
  }),
  scroll: post('/scroll', {
    name: 'android_scroll',
    title: 'Scroll the screen or an element',
    description: 'Scrolls the screen, or an element of it, by half of its size.',
    effect: 'act',
    aliases: NODE_ID,
    input: args({ direction, nodeId }),
  }),
  pressKey: post('/press_key', {
    name: 'android_press_key',
    title: 'Press home, back or another system key',
    description:
      'Goes home or back, or opens recent apps, notifications, quick settings or the power dialog, or locks.',
    effect: 'act',
    input: args({ key: oneOf('key', KEYS, 'which key', `unsupported key; one of ${KEYS.join(', ')}`) }),
  }),
  wait: post('/wait', {
    name: 'android_wait',
    title: 'Wait for a time or an element',
    description:
      'Waits for some time (ms), or until an element appears (text or className, for timeoutMs at most). Returns how ' +
      'long, and whether it was found. Older phones only know ms.',
    effect: 'read',
    untrusted: true,
    aliases: { class_name: 'className', timeout_ms: 'timeoutMs' },
    input: args({
      ms: v.optional(clamped('ms', 0, MAX_WAIT, 'how long, in ms')),
      timeoutMs: v.optional(clamped('timeoutMs', 0, MAX_WAIT, 'how long to wait for the element, in ms')),
      text: v.optional(text('text', 'part of its text or description, in any case')),
      className: v.optional(text('className', 'its exact class')),
    }),
  }),
  openApp: post('/open_app', {
    name: 'android_open_app',
    title: 'Open an app',
    description: 'Brings an app to the front.',
    effect: 'act',
    hints: REPEATABLE,
    input: args({ package: v.pipe(requiredText('package', 'its package, as android_get_apps returns it'), v.trim()) }),
  }),
  returnToHermes: post('/return_to_hermes', {
    name: 'android_return_to_svc',
    title: 'Return to the phone app',
    description: 'Brings the app that is paired with the relay to the front, when the work in other apps is done.',
    effect: 'act',
    hints: REPEATABLE,
    input: NOTHING,
  }),
  readClipboard: get('/clipboard', {
    name: 'android_clipboard_read',
    title: 'Read the clipboard',
    description: 'Returns the text in the clipboard of the phone; empty where there is none.',
    ...PRIVATE_READ,
    input: NOTHING,
  }),
  writeClipboard: post('/clipboard', {
    name: 'android_clipboard_write',
    title: 'Set the clipboard',
    description: 'Replaces the text in the clipboard of the phone.',
    effect: 'act',
    isPrivate: true,
    hints: { destructive: true, idempotent: true },
    input: args({ text: text('text', 'the new text; may be empty') }),
  }),
  media: post('/media', {
    name: 'android_media',
    title: 'Control playback and volume',
    description: 'Presses a media key, or sets the volume. Older phones refuse volume.',
    effect: 'act',
    input: v.pipe(
      args({
        action: oneOf('action', MEDIA_ACTIONS, 'what to do; volume needs level', 'unknown action'),
        level: v.optional(integerWithin('level', 0, 100, 'volume in percent, for the action volume')),
      }),
      rule(({ action, level }) => (action === 'volume' && level === undefined ? 'level must be 0 to 100' : undefined)),
    ),
  }),
  sendIntent: post('/send_intent', {
    name: 'android_send_intent',
    title: 'Start an activity',
    description: 'Starts the activity of an app that takes an Android intent, such as a web page or a settings screen.',
    ...ACTS,
    input: intent,
  }),
  broadcast: post('/broadcast', {
    name: 'android_broadcast',
    title: 'Send a broadcast',
    description: 'Sends an Android broadcast. Does not tell whether an app took it.',
    ...ACTS,
    input: intent,
  }),

  events: get('/events', {
    name: 'android_events',
    title: 'Read interface events',
    description:
      'Returns recorded clicks, text changes and window changes, oldest first; android_event_stream starts recording.',
    effect: 'read',
    onStoreBuild: true,
    isPrivate: true,
    untrusted: true,
    input: args({
      limit: v.optional(clamped('limit', 1, 500, 'how many of the newest to return at most'), 50),
      since: v.optional(integer('since', 'only later ones, in ms since 1970'), 0),
    }),
  }),
  eventStream: post('/events/stream', {
    name: 'android_event_stream',
    title: 'Record interface events',
    description: 'Starts or ends the recording of interface events. Either clears what was recorded.',
    effect: 'act',
    hints: REPEATABLE,
    input: args({ enabled: flag('enabled', 'whether to record') }, 'enabled must be true or false'),
  }),

  location: get('/location', {
    name: 'android_location',
    title: 'Locate the phone',
    description: 'Returns the last known position of the phone, and how old it is.',
    effect: 'read',
    isPrivate: true,
    input: NOTHING,
  }),
  searchContacts: post('/search_contacts', {
    name: 'android_search_contacts',
    title: 'Search contacts',
    description: 'Returns contacts of the owner with their phone numbers, mobile numbers first.',
    ...PRIVATE_READ,
    input: args({
      query: requiredText('query', 'part of the name or number'),
      limit: v.optional(clamped('limit', 1, 100, 'how many to return at most'), 20),
    }),
  }),
  call: post('/call', {
    name: 'android_call',
    title: 'Call a number',
    description: 'Calls a phone number, or opens the dialer with it. The owner is asked on the phone first.',
    ...ACTS,
    input: args({
      number: v.pipe(requiredText('number', 'the number'), v.regex(DIALLABLE, 'number cannot be called')),
    }),
  }),
  sendSms: post('/send_sms', {
    name: 'android_send_sms',
    title: 'Send a text message',
    description: 'Sends an SMS. The owner is asked on the phone first. Returns whether the carrier took it.',
    ...ACTS,
    input: args(
      {
        to: v.pipe(requiredText('to', 'phone number of the receiver'), v.regex(RECIPIENT, 'to is not a phone number')),
        body: filledText('body', 'the message'),
      },
      'send_sms needs to and body',
    ),
  }),
  shareMedia: post('/share_media', {
    name: 'android_share_media',
    title: 'Open the share sheet',
    description: 'Opens the share sheet of the phone with a text or files, at most 20. The owner is asked first.',
    ...ACTS,
    aliases: { body: 'text' },
    input: v.pipe(
      args({ text: v.optional(text('text', 'the text to share'), ''), ...sharing }),
      rule((given) => (given.text === '' && countOf(given) === 0 ? 'nothing to share' : fewAttachments(given))),
    ),
  }),
  sendMms: post('/send_mms', {
    name: 'android_send_mms',
    title: 'Write a media message',
    description: 'Opens a message with text and files, at most 20, for the owner to send. The owner is asked first.',
    ...ACTS,
    aliases: { text: 'body' },
    input: v.pipe(
      args({
        to: v.pipe(text('to', 'phone number of the receiver'), v.regex(RECIPIENT, 'to must be a phone number')),
        body: v.optional(text('body', 'the message'), ''),
        ...sharing,
      }),
      rule((given) => fewAttachments(given)),
    ),
  }),
} satisfies Record<string, DeviceRow>;

export const DEVICE_ROWS: readonly DeviceRow[] = Object.values(device);

const byPath: ReadonlyMap<string, readonly DeviceRow[]> = new Map(
  DEVICE_ROWS.map(({ path }) => [path, DEVICE_ROWS.filter((row) => row.path === path)]),
);

/** The calls of a path, one per method; none for paths outside Device Control. */
export const deviceRoutes = (path: string): readonly DeviceRow[] => byPath.get(path) ?? [];
