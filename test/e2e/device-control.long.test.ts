import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { ROUTES } from '../../lib/companion/commands/index.ts';
import { PERMANENT, TIMED } from '../../lib/companion/safety-settings.ts';
import { DEVICE_ROWS } from '../../lib/operations/device.ts';
import { ALLOWED, BANK, DENIAL } from '../lib/companion/support.ts';
import { type BuiltTarget, startBuiltTarget } from '../support/built-relay.ts';
import { type Companion, startCompanion, type TestPhone } from '../support/companion.ts';

type Args = Record<string, unknown>;

/** One method and path of contract 03: arguments and result from section 5, refusals from section 8. */
interface Row {
  /** Null for exempt commands. */
  capability: string | null;
  /** Answers before all gates except the first two. */
  ungated?: true;
  /** Passes gate 5. */
  offToo?: true;
  /** Passes gate 6. */
  anywhere?: true;
  /** Passes gate 9. */
  readOnly?: true;
  /** Brings the phone into a state in which the call makes sense. May add arguments. */
  arrange?(phone: TestPhone): Promise<Args | undefined> | Args | undefined;
  args?: Args;
  /** Expected body of the 200. */
  answer: Args;
  /** Checks the effect on the phone. */
  done?(phone: TestPhone): unknown;
  /** Arguments for which the phone asks its owner first. */
  asks?: Args;
  /** Arguments that name a blocklisted package. */
  targets?: Args[];
  /** Members of a refusal besides the sentence. */
  targetAnswer?: Args;
}

const text = expect.any(String);
const number = expect.any(Number);
const NOTES = 'org.example.notes';
const HASH = expect.stringMatching(/^[0-9a-f]{64}$/);
const SMS = { to: '+15550100', body: 'hello' };
const CONFIRMED = { confirmed: true };

const look = (capability: string, row: Omit<Row, 'capability'>): Row => ({ capability, readOnly: true, ...row });
const act = (capability: string, row: Omit<Row, 'capability'>): Row => ({ capability, ...row });
const INSPECT = 'screen_inspection';
const CONTROL = 'screen_control';

const open = (phone: TestPhone, name: string) => phone.device.launch(name).then(() => undefined);
const screenOf = async (phone: TestPhone) => JSON.stringify(await phone.device.windows());
/** Taps "New note", so that an empty field has the focus. */
async function writing(phone: TestPhone): Promise<undefined> {
  await open(phone, NOTES);
  await phone.ok('POST', '/tap_text', { text: 'New note' });
  await phone.ok('POST', '/tap', await nodeWhere(phone, ({ editable }) => editable));
}
type Node = { nodeId: string; text: string | null; editable: boolean; longClickable: boolean };
/** The first matching node on the screen. */
async function nodeWhere(phone: TestPhone, isWanted: (node: Node) => boolean): Promise<{ nodeId: string }> {
  const { nodes } = await phone.ok('GET', '/screen');
  return { nodeId: (nodes as Node[]).find(isWanted)?.nodeId ?? 'nowhere' };
}

const TABLE: Record<string, Row> = {
  'GET /ping': { capability: null, ungated: true, readOnly: true, answer: { pong: true, ts: number } },
  'POST /setup': { capability: null, ungated: true, readOnly: true, answer: { ok: true, note: text } },
  'GET /current_app': look('device_info', {
    offToo: true,
    arrange: (phone) => open(phone, NOTES),
    answer: { package: NOTES },
  }),

  'GET /screen': look(INSPECT, {
    arrange: (phone) => open(phone, NOTES),
    args: { include_bounds: true },
    answer: {
      packageName: NOTES,
      rootBounds: { left: 0, top: 0, right: 1080, bottom: 2340 },
      nodes: expect.arrayContaining([
        expect.objectContaining({
          text: 'Water the plants',
          bounds: { left: 0, right: 1080, top: number, bottom: number },
        }),
      ]),
      truncated: false,
      nodeCount: number,
    },
  }),
  'GET /screen_hash': look(INSPECT, { answer: { hash: HASH, node_count: number, truncated: false } }),
  'POST /diff_screen': look(INSPECT, {
    args: { previous_hash: '0'.repeat(64) },
    answer: { changed: true, hash: HASH, node_count: number, truncated: false },
  }),
  'POST /find_nodes': look(INSPECT, {
    args: { text: 'tea SHOP', limit: 5 },
    answer: { count: 1, matches: [expect.objectContaining({ text: 'Tea shop', nodeId: text })] },
  }),
  'POST /describe_node': look(INSPECT, {
    args: { nodeId: 'w0:0' },
    answer: expect.objectContaining({
      nodeId: 'w0:0',
      text: 'Home',
      checked: null,
      bounds: expect.objectContaining({ left: 0, width: 1080, centerX: 540 }),
    }),
  }),
  'GET /screenshot': look(INSPECT, { answer: { media: 'MEDIA:svc-relay://uploaded' } }),
  'GET /get_apps': look('device_info', {
    answer: { apps: expect.arrayContaining([{ package: NOTES, label: 'Notes' }]), count: number },
  }),
  'GET /apps': look('device_info', {
    answer: { apps: expect.arrayContaining([{ package: NOTES, label: 'Notes' }]), count: number },
  }),

  'POST /tap': act(CONTROL, {
    arrange: (phone) => nodeWhere(phone, (node) => node.text === 'Notes'),
    answer: { x: 540, y: number, duration_ms: 100 },
    done: (phone) => expect(phone.device.info().foreground).toBe(NOTES),
    asks: { x: 5, y: 5, text: 'Pay' },
  }),
  'POST /tap_text': act(CONTROL, {
    args: { text: 'notes', exact: true },
    answer: { ok: true, via: 'parent click (1 levels up)', depth: 1, needle: 'notes', message: text },
    done: (phone) => expect(phone.device.info().foreground).toBe(NOTES),
    asks: { text: 'Buy now' },
  }),
  'POST /long_press': act(CONTROL, {
    async arrange(phone) {
      await open(phone, NOTES);
      // The first row contains "Buy milk", which needs a confirmation.
      await phone.settings.update({ destructiveVerbs: ['delete'] });
      return { ...(await nodeWhere(phone, ({ longClickable }) => longClickable)), duration: 600 };
    },
    answer: { node_id: text, mode: 'action_long_click' },
    done: async (phone) => expect(await screenOf(phone)).toContain('Delete note'),
    asks: { x: 5, y: 5, text: 'Delete' },
  }),
  'POST /drag': act(CONTROL, {
    arrange: (phone) => open(phone, 'com.android.settings'),
    args: { start_x: 500, start_y: 2000, end_x: 500, end_y: 1500, duration_ms: 9000 },
    answer: { start_x: 500, start_y: 2000, end_x: 500, end_y: 1500, duration_ms: 3000 },
    done: async (phone) => expect(await screenOf(phone)).toContain('"Accessibility"'),
  }),
  'POST /type': act(CONTROL, {
    arrange: writing,
    args: { text: 'Call the plumber', clearFirst: true },
    answer: { length: 16 },
    done: async (phone) => expect(await screenOf(phone)).toContain('Call the plumber'),
    asks: { text: 'please send it' },
  }),
  'POST /swipe': act(CONTROL, {
    args: { direction: 'up', distance: 'short' },
    answer: { start_x: 540, start_y: 1404, end_x: 540, end_y: 936, duration_ms: 400 },
  }),
  'POST /scroll': act(CONTROL, {
    arrange: (phone) => open(phone, 'com.android.settings'),
    args: { direction: 'down' },
    answer: { start_x: 540, start_y: 1755, end_x: 540, end_y: 585, duration_ms: number },
    done: async (phone) => expect(await screenOf(phone)).toContain('"Accessibility"'),
  }),
  'POST /press_key': act(CONTROL, {
    args: { key: 'notifications' },
    answer: { key: 'notifications' },
    done: async (phone) => expect(await screenOf(phone)).toContain('Clear all'),
  }),
  'POST /wait': {
    capability: null,
    readOnly: true,
    args: { ms: 1, timeoutMs: 50 },
    answer: { slept_ms: number },
  },
  'POST /open_app': act(CONTROL, {
    args: { package: NOTES },
    answer: { ok: true, package: NOTES },
    done: (phone) => expect(phone.device.info().foreground).toBe(NOTES),
    targets: [{ package: BANK }],
  }),
  'POST /return_to_hermes': look(CONTROL, {
    offToo: true,
    anywhere: true,
    arrange: (phone) => open(phone, NOTES),
    answer: { ok: true, package: 'com.svc.companion' },
    done: (phone) => expect(phone.device.info().foreground).toBe('com.svc.companion'),
  }),
  'GET /clipboard': act('clipboard_read', {
    arrange: (phone) => phone.device.writeClipboard('kept', 'test').then(() => undefined),
    answer: { text: 'kept' },
  }),
  'POST /clipboard': act('clipboard_write', {
    args: { text: 'copied' },
    answer: { success: true, length: 6 },
    done: (phone) => expect(phone.system.clipboard).toEqual({ text: 'copied', label: 'svc' }),
  }),
  'POST /media': act('media_control', {
    args: { action: 'play' },
    answer: { action: 'play', keycode: 126 },
    done: (phone) => expect(phone.system.media.playing).toBe(true),
  }),
  'POST /send_intent': act(CONTROL, {
    args: { action: 'android.intent.action.VIEW', data: 'https://a.example/' },
    answer: { action: 'android.intent.action.VIEW', package: '', component: '', data: 'https://a.example/' },
    done: (phone) => expect(phone.device.info().foreground).toBe('com.android.browser'),
    targets: [
      { action: 'android.intent.action.MAIN', package: BANK },
      { action: 'android.intent.action.MAIN', component: `${BANK}/.Main` },
    ],
  }),
  'POST /broadcast': act(CONTROL, {
    args: { action: 'org.example.PING', extras: { n: 1 } },
    answer: { action: 'org.example.PING', package: '', data: '' },
    done: (phone) => expect(phone.system.broadcasts).toMatchObject([{ extras: { n: '1' } }]),
    targets: [
      { action: 'x', package: BANK },
      { action: 'x', component: `${BANK}/.Receiver` },
    ],
  }),

  'GET /events': look(INSPECT, {
    async arrange(phone) {
      await phone.ok('POST', '/events/stream', { enabled: true });
      return open(phone, NOTES);
    },
    args: { limit: 10, since: 0 },
    answer: {
      count: 1,
      streaming: true,
      entries: [
        {
          timestamp: number,
          event_type: 'window_state_changed',
          package_name: NOTES,
          source: 'TYPE_WINDOW_STATE_CHANGED',
        },
      ],
    },
  }),
  'POST /events/stream': look(INSPECT, {
    args: { enabled: true },
    answer: { streaming: true, buffer_cleared: true },
  }),

  'GET /location': look('location_read', {
    answer: {
      latitude: 51.4769,
      longitude: -0.0005,
      accuracy: 12,
      provider: 'fused',
      timestamp: number,
      staleness_ms: number,
      altitude: 46,
    },
  }),
  'POST /search_contacts': look('contacts_read', {
    args: { query: 'ada', limit: 1 },
    answer: {
      count: 1,
      query: 'ada',
      contacts: [{ id: '1', name: 'Ada Lovelace', phones: expect.any(Array) }],
    },
  }),
  'POST /call': act('communications', {
    args: { number: '+15550101' },
    answer: { number: '+15550101', mode: 'auto_dial', ...CONFIRMED },
    done: (phone) => expect(phone.system.calls).toMatchObject([{ number: '+15550101' }]),
    asks: { number: '+15550101' },
  }),
  'POST /send_sms': act('communications', {
    args: SMS,
    answer: {
      status: 'sent',
      android_result: 'RESULT_OK',
      to: SMS.to,
      length: 5,
      parts: 1,
      summary: text,
      ...CONFIRMED,
    },
    done: (phone) => expect(phone.system.outbox).toMatchObject([{ to: SMS.to, text: 'hello' }]),
    asks: SMS,
  }),
  'POST /share_media': act('outbound_sharing', {
    args: { media: 'MEDIA:svc-relay://tok', text: 'look', package: 'com.android.messaging' },
    answer: {
      ok: true,
      status: 'share_opened',
      mode: 'user_confirmed_share',
      attachments: 1,
      content_types: ['image/png'],
      package: 'com.android.messaging',
      summary: text,
      ...CONFIRMED,
    },
    done: (phone) => expect(phone.system.shares).toMatchObject([{ text: 'look', files: [{ name: 'tok.png' }] }]),
    asks: { text: 'look' },
    targets: [{ text: 'look', package: BANK }],
    targetAnswer: { status: 'blocked', reason: 'blocked_package' },
  }),
  'POST /send_mms': act('outbound_sharing', {
    args: { ...SMS, attachments: [{ token: 'tok' }] },
    answer: {
      ok: true,
      status: 'compose_opened',
      mode: 'user_confirmed_mms_handoff',
      to: SMS.to,
      attachments: 1,
      content_types: ['image/png'],
      summary: text,
      ...CONFIRMED,
    },
    done: (phone) => expect(phone.system.shares).toMatchObject([{ to: SMS.to, text: 'hello' }]),
    asks: SMS,
    targets: [{ ...SMS, package: BANK }],
    targetAnswer: { status: 'blocked', reason: 'blocked_package' },
  }),
};

const PAIRS = DEVICE_ROWS.map(({ method, path }) => ({ method, path, pair: `${method} ${path}` }));
/** Routes that always ask, rather than because of a word in their arguments. */
const ALWAYS_ASK = ['POST /call', 'POST /send_sms', 'POST /share_media', 'POST /send_mms'];

let relay: BuiltTarget;
let companion: Companion;
beforeAll(async () => {
  relay = await startBuiltTarget();
  companion = await startCompanion(relay, {
    deps: {
      async upload({ type, bytes }) {
        return type === 'image/png' && bytes[1] === 0x50 ? { token: 'uploaded' } : { status: 415 };
      },
      fetchMedia: async (source) => ({
        name: `${'token' in source ? source.token : source.path}.png`,
        type: 'image/png',
        bytes: new Uint8Array(8),
      }),
    },
  });
});
afterAll(async () => {
  await companion.stop();
  await relay.stop();
});
afterEach(() => {
  companion.replace();
});

/** Everything that a command can change on the phone. */
function traces({ device, system }: TestPhone): string {
  const { contacts: _contacts, clock: _clock, denied: _denied, ...kept } = system;
  return JSON.stringify({ ...kept, foreground: device.info().foreground });
}

const record = async () =>
  (await (await relay.operator('/bridge/activity?limit=1')).json()).activity[0] as Record<string, unknown>;

/** Makes a call that must be refused. The phone must be unchanged, and the relay must have recorded the call. */
async function refused(pair: string, args: Args, decision: string) {
  const [method = '', path = ''] = pair.split(' ');
  const before = traces(companion.phone);
  const answer = await companion.call(method, path, args);
  expect(traces(companion.phone), 'nothing happened').toBe(before);
  expect(await record()).toMatchObject({
    method,
    path,
    decision,
    response_status: answer.status,
    device_id: companion.deviceId,
    error: answer.body.error,
  });
  return answer;
}

const rowOf = (pair: string): Row => TABLE[pair] as Row;
/** Prepares the phone and returns the arguments of a call that would succeed. */
async function ready(pair: string, phone: TestPhone): Promise<Args> {
  const { arrange, args } = rowOf(pair);
  return { ...args, ...(await arrange?.(phone)) };
}

const CALLED = { status: 200, body: expect.not.objectContaining({ error: expect.anything() }) };

it('the relay, the phone and this table know the same 35 pairs', () => {
  const pairs = PAIRS.map(({ pair }) => pair).sort();
  expect(pairs.length).toBe(35);
  expect(new Set(PAIRS.map(({ path }) => path)).size).toBe(34);
  expect(Object.keys(TABLE).sort()).toEqual(pairs);
  expect(ROUTES.map(({ method, path }) => `${method} ${path}`).sort()).toEqual(pairs);
});

describe.each(PAIRS)('$pair (contract 03 §5, 8)', ({ method, path, pair }) => {
  const row = rowOf(pair);

  it('answers', async () => {
    const phone = companion.replace({}, { answer: ALWAYS_ASK.includes(pair) });
    const args = await ready(pair, phone);
    expect(await companion.call(method, path, args)).toEqual({ status: 200, body: row.answer });
    await row.done?.(phone);
    expect(phone.person.asked.length).toBe(ALWAYS_ASK.includes(pair) ? 1 : 0);
    expect(await record()).toMatchObject({
      method,
      path,
      decision: ALWAYS_ASK.includes(pair) ? 'confirmed' : 'executed',
      response_status: 200,
      error: null,
    });
  });

  it('store build', async () => {
    companion.replace({ flavor: 'store' });
    if (row.ungated) return expect(await companion.call(method, path)).toEqual({ status: 200, body: row.answer });
    expect(await refused(pair, row.args ?? {}, 'blocked')).toMatchObject({
      status: 403,
      body: { error_code: 'device_control_sideload_only', flavor: 'store' },
    });
  });

  it('missing capability', async () => {
    const without = Object.entries(ALLOWED.capabilities ?? {}).filter(([id]) => id !== row.capability);
    const phone = companion.replace({ capabilities: Object.fromEntries(without) });
    if (row.capability === null) {
      await phone.settings.update({ policy: 'unbound', capabilities: {} });
      return expect(await companion.call(method, path, row.args)).toMatchObject(CALLED);
    }
    expect([...PERMANENT, ...TIMED]).toContain(row.capability);
    expect(await refused(pair, row.args ?? {}, 'blocked')).toMatchObject({
      status: 403,
      body: { error_code: 'bridge_capability_denied', capability: row.capability, required_action: text },
    });
    expect(phone.person.asked).toEqual([]);
    for (const [policy, error_code] of [
      ['unbound', 'bridge_policy_unbound'],
      ['unavailable', 'bridge_policy_unavailable'],
      ['invalid', 'bridge_policy_invalid'],
    ] as const) {
      companion.replace({ policy });
      const answer = await refused(pair, row.args ?? {}, 'blocked');
      expect(answer).toMatchObject({ status: 403, body: { error_code, capability: row.capability } });
    }
    if (!row.capability.startsWith('screen_')) return;
    // With the toggle off, no timer has removed the lease yet.
    const lapsed = { ...ALLOWED.capabilities, [row.capability]: Date.now() - 1 };
    companion.replace({ masterEnabled: false, capabilities: lapsed });
    expect(await refused(pair, row.args ?? {}, 'blocked')).toMatchObject({
      status: 403,
      body: { error_code: 'bridge_capability_expired', capability: row.capability },
    });
  });

  it('accessibility off', async () => {
    companion.replace().system.accessibility = false;
    if (row.ungated) return expect(await companion.call(method, path)).toMatchObject(CALLED);
    expect(await refused(pair, row.args ?? {}, 'error')).toMatchObject({
      status: 503,
      body: { error_code: 'service_unavailable', required_action: text },
    });
  });

  it('master toggle off', async () => {
    const phone = companion.replace({ masterEnabled: false });
    if (row.ungated || row.offToo) return expect(await companion.call(method, path)).toMatchObject(CALLED);
    expect(await refused(pair, row.args ?? {}, 'blocked')).toMatchObject({
      status: 403,
      body: { error_code: 'bridge_disabled', required_action: text },
    });
    expect(phone.person.asked).toEqual([]);
  });

  it('blocklisted package', async () => {
    const phone = companion.replace();
    await phone.device.launch(BANK);
    if (row.ungated || row.anywhere) {
      expect(await companion.call(method, path)).toMatchObject(CALLED);
    } else {
      const answer = await refused(pair, row.args ?? {}, 'blocked');
      expect(answer).toEqual({ status: 403, body: { error: `blocked package ${BANK}` } });
    }
    for (const args of row.targets ?? []) {
      const { person } = companion.replace();
      const answer = await refused(pair, args, 'blocked');
      expect(answer).toEqual({ status: 403, body: { error: `blocked package ${BANK}`, ...row.targetAnswer } });
      expect(person.asked).toEqual([]);
    }
  });

  it.skipIf(!row.asks)('denied confirmation', async () => {
    const { person } = companion.replace({}, { answer: false });
    expect(await refused(pair, row.asks ?? {}, 'blocked')).toEqual({
      status: 403,
      body: {
        ...DENIAL,
        detail: text,
        instruction: expect.stringContaining('do not retry this intent by other means'),
      },
    });
    expect(person.asked.length).toBe(1);
    // With nobody to ask, routes that always ask report that, and words on a button are denied.
    companion.replace({}, { confirm: undefined });
    const alone = await refused(pair, row.asks ?? {}, 'blocked');
    expect(alone.status).toBe(ALWAYS_ASK.includes(pair) ? 503 : 403);
  });

  it('keyguard with a credential', async () => {
    const phone = companion.replace({ unattended: true });
    Object.assign(phone.system, { locked: true, credential: true, screenOn: false });
    if (row.readOnly) return expect(await companion.call(method, path, row.args)).toMatchObject(CALLED);
    expect(await refused(pair, row.args ?? {}, 'error')).toMatchObject({
      status: 423,
      body: { error_code: 'keyguard_blocked', final: true, required_action: text },
    });
    expect(phone.person.asked).toEqual([]);
  });
});

it('for a store build that has sent its status, the relay refuses all but three pairs and sends no frame', async () => {
  companion.replace({ flavor: 'store' });
  const supported = async () => (await (await relay.operator('/bridge/status')).json()).bridge.device_control_supported;
  companion.report();
  await vi.waitFor(async () => expect(await supported()).toBe(false));
  const before = (await (await relay.operator('/bridge/activity')).json()).activity[0].request_id;
  for (const { method, path, pair } of PAIRS) {
    if (['/ping', '/setup', '/events'].includes(path)) continue;
    const answer = await companion.call(method, path, rowOf(pair).args);
    expect(answer, pair).toMatchObject({ status: 403, body: { error_code: 'device_control_sideload_only' } });
  }
  expect((await record()).request_id).toBe(before);
  companion.replace();
  companion.report();
  await vi.waitFor(async () => expect(await supported()).toBe(true));
});
