import { describe, expect, it } from 'vitest';
import { createStaticPhone, createTestPhone, rect, uiNode } from './support.ts';

const form = () =>
  uiNode({
    bounds: rect(0, 0, 1000, 2000),
    children: [
      uiNode({ text: 'OK', clickable: true, longClickable: true, bounds: rect(100, 100, 301, 200) }),
      uiNode({ text: 'Plain', bounds: rect(0, 300, 100, 400) }),
      uiNode({ editable: true, focused: true, bounds: rect(0, 500, 100, 600) }),
    ],
  });

const bad: [string, Record<string, unknown>, number][] = [
  ['/tap', {}, 400],
  ['/tap', { x: 1 }, 400],
  ['/tap', { x: -1, y: 2 }, 400],
  ['/tap', { x: 1.5, y: 2 }, 400],
  ['/tap', { x: 'a', y: 2 }, 400],
  ['/tap', { x: 1, y: 2, duration_ms: 0 }, 400],
  ['/tap', { nodeId: 'w9:9' }, 404],
  ['/tap', { nodeId: 7 }, 400],
  ['/tap_text', {}, 400],
  ['/tap_text', { text: '  ' }, 400],
  ['/tap_text', { text: 'no such thing' }, 400],
  ['/tap_text', { text: 'Pla', exact: true }, 400],
  ['/long_press', {}, 400],
  ['/long_press', { x: 1, y: 1, nodeId: 'w0:0' }, 400],
  ['/long_press', { x: 1 }, 400],
  ['/long_press', { x: 1, y: 1, duration: 99 }, 400],
  ['/long_press', { x: 1, y: 1, duration_ms: 3001 }, 400],
  ['/long_press', { nodeId: 'w0:9' }, 404],
  ['/drag', { start_x: 1, start_y: 1, end_x: 1 }, 400],
  ['/drag', { start_x: 1, start_y: 1, end_x: 1, end_y: -1 }, 400],
  ['/type', {}, 400],
  ['/type', { text: '' }, 400],
  ['/type', { text: 5 }, 400],
  ['/swipe', {}, 400],
  ['/swipe', { start_x: 1 }, 400],
  ['/swipe', { direction: 'sideways' }, 400],
  ['/swipe', { direction: 'constructor' }, 400],
  ['/swipe', { direction: 'up', distance: 'far' }, 400],
  ['/swipe', { direction: 'up', duration_ms: 0 }, 400],
  ['/scroll', {}, 400],
  ['/scroll', { direction: 'in' }, 400],
  ['/scroll', { direction: 'up', nodeId: 'w0:9' }, 404],
  ['/press_key', {}, 400],
  ['/press_key', { key: 'KEYCODE_A' }, 400],
  ['/press_key', { key: 'toString' }, 400],
  ['/wait', { ms: 'long' }, 400],
  ['/open_app', {}, 400],
  ['/open_app', { package: 'org.nobody' }, 404],
  ['/clipboard', {}, 400],
  ['/clipboard', { text: 5 }, 400],
  ['/media', {}, 400],
  ['/media', { action: 'rewind' }, 400],
  ['/media', { action: '__proto__' }, 400],
  ['/media', { action: 'volume' }, 400],
  ['/media', { action: 'volume', level: 101 }, 400],
  ['/send_intent', {}, 400],
  ['/send_intent', { action: 'x', component: 'nothing' }, 400],
  ['/send_intent', { action: 'x', component: 'a/b/c' }, 400],
  ['/send_intent', { action: 'org.nobody.ACTION' }, 400],
  ['/send_intent', { action: 'x', extras: [] }, 400],
  ['/broadcast', {}, 400],
  ['/events/stream', {}, 400],
  ['/events/stream', { enabled: 'true' }, 400],
  ['/search_contacts', {}, 400],
  ['/search_contacts', { query: ' ' }, 400],
  ['/call', {}, 400],
  ['/call', { number: 'Ada' }, 400],
];

describe('bad arguments (contract 03 §5)', () => {
  it.each(bad)('%s %j answers %i', async (path, body, status) => {
    const phone = createStaticPhone(form());
    const answer = await phone.call('POST', path, body);
    expect(answer).toMatchObject({ status, result: { error: expect.any(String) } });
    expect([...phone.gestures, ...phone.clicked, ...phone.typed, ...phone.person.asked]).toEqual([]);
  });
});

describe('gestures (contract 03 §5)', () => {
  const good: [string, Record<string, unknown>, Record<string, unknown>][] = [
    ['/tap', { x: 3, y: '4' }, { x: 3, y: 4, duration_ms: 100 }],
    ['/tap', { nodeId: 'w0:0', x: 1, y: 1 }, { x: 200, y: 150, duration_ms: 100 }],
    ['/tap', { node_id: 'w0:0', duration_ms: 50 }, { x: 200, y: 150, duration_ms: 50 }],
    ['/long_press', { x: 3, y: 4 }, { x: 3, y: 4, duration_ms: 500, mode: 'gesture' }],
    ['/long_press', { x: 3, y: 4, duration: 3000 }, { x: 3, y: 4, duration_ms: 3000, mode: 'gesture' }],
    ['/long_press', { node_id: 'w0:1' }, { x: 50, y: 350, duration_ms: 500, mode: 'gesture' }],
    [
      '/drag',
      { start_x: 1, start_y: 2, end_x: 3, end_y: 4 },
      { start_x: 1, start_y: 2, end_x: 3, end_y: 4, duration_ms: 500 },
    ],
    [
      '/drag',
      { start_x: 1, start_y: 2, end_x: 3, end_y: 4, duration_ms: 5 },
      { start_x: 1, start_y: 2, end_x: 3, end_y: 4, duration_ms: 100 },
    ],
    [
      '/swipe',
      { start_x: 1, start_y: 2, end_x: 3, end_y: 4 },
      { start_x: 1, start_y: 2, end_x: 3, end_y: 4, duration_ms: 400 },
    ],
    ['/swipe', { direction: 'up' }, { start_x: 500, start_y: 1500, end_x: 500, end_y: 500, duration_ms: 400 }],
    [
      '/swipe',
      { direction: 'left', distance: 'short' },
      { start_x: 600, start_y: 1000, end_x: 400, end_y: 1000, duration_ms: 400 },
    ],
    ['/scroll', { direction: 'down' }, { start_x: 500, start_y: 1500, end_x: 500, end_y: 500, duration_ms: 400 }],
    ['/scroll', { direction: 'right' }, { start_x: 750, start_y: 1000, end_x: 250, end_y: 1000, duration_ms: 400 }],
    [
      '/scroll',
      { direction: 'up', nodeId: 'w0:1' },
      { start_x: 50, start_y: 325, end_x: 50, end_y: 375, duration_ms: 400 },
    ],
  ];

  it.each(good)('%s %j', async (path, body, result) => {
    const phone = createStaticPhone(form());
    expect(await phone.ok('POST', path, body)).toEqual(result);
    expect(phone.gestures.length).toBe(1);
    expect(phone.gestures[0]?.durationMs).toBe(result.duration_ms);
  });

  it('/long_press uses the action of a node that has one', async () => {
    const phone = createStaticPhone(form());
    expect(await phone.ok('POST', '/long_press', { nodeId: 'w0:0' })).toEqual({
      node_id: 'w0:0',
      mode: 'action_long_click',
    });
    expect(phone.longClicked.length).toBe(1);
  });

  it('a gesture cancelled by the system answers 400', async () => {
    const phone = createStaticPhone(form(), { gesture: async () => false });
    expect((await phone.call('POST', '/tap', { x: 1, y: 1 })).status).toBe(400);
  });

  it('/type replaces the content of the focused field', async () => {
    const phone = createStaticPhone(form());
    expect(await phone.ok('POST', '/type', { text: 'hé😀', clearFirst: true })).toEqual({ length: 4 });
    expect(phone.typed).toMatchObject([{ text: 'hé😀' }]);
    const none = createStaticPhone(uiNode({ editable: true }));
    expect((await none.call('POST', '/type', { text: 'x' })).status).toBe(400);
  });
});

describe('/tap_text (contract 03 §5)', () => {
  const labelled = (...children: ReturnType<typeof uiNode>[]) => createStaticPhone(uiNode({ children }));
  const chain = (levels: number) => {
    let node = uiNode({ text: 'Deep' });
    for (let level = 1; level < levels; level++) node = uiNode({ children: [node] });
    return uiNode({ clickable: true, children: [node] });
  };

  it('prefers the exact label over an earlier substring', async () => {
    const phone = labelled(uiNode({ text: 'OK then', clickable: true }), uiNode({ text: ' ok ', clickable: true }));
    const result = await phone.ok('POST', '/tap_text', { text: 'OK' });
    expect(result).toMatchObject({
      ok: true,
      via: 'direct click',
      needle: 'OK',
      depth: 0,
      message: expect.any(String),
    });
    expect(phone.clicked[0]?.text).toBe(' ok ');
  });

  it('matches the description too, and a substring when nothing matches exactly', async () => {
    const phone = labelled(uiNode({ contentDescription: 'Open menu', clickable: true }));
    expect(await phone.ok('POST', '/tap_text', { text: 'menu' })).toMatchObject({ via: 'direct click' });
    expect((await phone.call('POST', '/tap_text', { text: 'menu', exact: true })).status).toBe(400);
  });

  it('clicks the nearest clickable ancestor, at most 8 levels up', async () => {
    expect(await labelled(chain(1)).ok('POST', '/tap_text', { text: 'Deep' })).toMatchObject({
      via: 'parent click (1 levels up)',
      depth: 1,
    });
    expect(await labelled(chain(8)).ok('POST', '/tap_text', { text: 'Deep' })).toMatchObject({ depth: 8 });
    expect(await labelled(chain(9)).ok('POST', '/tap_text', { text: 'Deep' })).toMatchObject({
      via: 'coordinate fallback',
      x: 50,
      y: 50,
    });
  });

  it('prefers an exact label with a clickable ancestor over a clickable substring', async () => {
    const phone = labelled(
      uiNode({ text: 'Go on', clickable: true }),
      uiNode({ clickable: true, viewId: 'row', children: [uiNode({ text: 'Go' })] }),
    );
    expect(await phone.ok('POST', '/tap_text', { text: 'go' })).toMatchObject({ depth: 1 });
    expect(phone.clicked[0]?.viewId).toBe('row');
  });

  it('taps the centre when no click is accepted', async () => {
    const phone = createStaticPhone(
      uiNode({ children: [uiNode({ text: 'A', clickable: true, bounds: rect(10, 20, 30, 40) })] }),
      { click: async () => false },
    );
    expect(await phone.ok('POST', '/tap_text', { text: 'A' })).toMatchObject({
      via: 'coordinate fallback',
      needle: 'A',
      x: 20,
      y: 30,
    });
    expect(phone.gestures).toMatchObject([{ from: { x: 20, y: 30 }, to: { x: 20, y: 30 } }]);
  });
});

describe('/press_key, /clipboard, /media', () => {
  it.each([
    'home',
    'back',
    'recents',
    'recent_apps',
    'overview',
    'notifications',
    'quick_settings',
    'power_dialog',
    'lock_screen',
  ])('key %s', async (key) => {
    expect(await createTestPhone().ok('POST', '/press_key', { key })).toEqual({ key });
  });

  it('the clipboard keeps text and label', async () => {
    const phone = createTestPhone();
    expect(await phone.ok('GET', '/clipboard')).toEqual({ text: '' });
    expect(await phone.ok('POST', '/clipboard', { text: 'abc' })).toEqual({ success: true, length: 3 });
    expect(phone.system.clipboard).toEqual({ text: 'abc', label: 'svc' });
    expect(await phone.ok('GET', '/clipboard')).toEqual({ text: 'abc' });
    expect(await phone.ok('POST', '/clipboard', { text: '' })).toEqual({ success: true, length: 0 });
  });

  it.each([
    ['play', 126],
    ['pause', 127],
    ['toggle', 85],
    ['next', 87],
    ['previous', 88],
    ['volume_up', 24],
    ['volume_down', 25],
  ])('media %s is key %i', async (action, keycode) => {
    expect(await createTestPhone().ok('POST', '/media', { action })).toEqual({ action, keycode });
  });

  it('media keys and volume reach the player', async () => {
    const phone = createTestPhone();
    await phone.ok('POST', '/media', { action: 'toggle' });
    await phone.ok('POST', '/media', { action: 'next' });
    expect(await phone.ok('POST', '/media', { action: 'volume', level: '35' })).toEqual({
      action: 'volume',
      level: 35,
    });
    await phone.ok('POST', '/media', { action: 'volume_up' });
    expect(phone.system.media).toEqual({ playing: true, track: 2, volume: 45 });
  });
});

describe('/wait (contract 03 §5)', () => {
  it.each([
    [{ ms: 300 }, 300],
    [{ ms: '300' }, 300],
    [{ ms: 99_999 }, 15_000],
    [{ ms: -5 }, 0],
    [{}, 0],
    [{ ms: 200, timeoutMs: 9000 }, 200],
  ])('%j sleeps %i ms', async (body, slept_ms) => {
    const phone = createTestPhone();
    const done = phone.ok('POST', '/wait', body);
    await phone.clock.advanceAsync(slept_ms);
    expect(await done).toEqual({ slept_ms });
  });

  it('returns as soon as the element appears', async () => {
    const phone = createTestPhone();
    const done = phone.ok('POST', '/wait', {
      text: 'write something',
      className: 'android.widget.EditText',
      timeoutMs: 5000,
    });
    await phone.clock.advanceAsync(1000);
    await phone.device.launch('org.example.notes');
    await phone.ok('POST', '/tap_text', { text: 'New note' });
    const field = phone.ok('POST', '/wait', { className: 'android.widget.EditText', timeoutMs: 5000 });
    expect(await field).toMatchObject({ slept_ms: 0, found: true, node: { editable: true } });
    await phone.clock.advanceAsync(5000);
    expect(await done).toEqual({ slept_ms: 5000, found: false });
  });

  it('returns the node only to callers that may inspect the screen', async () => {
    const phone = createTestPhone({ capabilities: {} });
    expect(await phone.ok('POST', '/wait', { text: 'Notes', timeoutMs: 100 })).toEqual({ slept_ms: 0, found: true });
  });

  it.each([
    ['bridge_disabled', (phone: ReturnType<typeof createTestPhone>) => phone.settings.update({ masterEnabled: false })],
    ['blocked package com.chase.sig.android', (phone) => phone.device.launch('com.chase.sig.android')],
  ])('stops when a gate refuses meanwhile: %s', async (expected, close) => {
    const phone = createTestPhone({}, { autoReturnMs: null });
    const done = phone.call('POST', '/wait', { text: 'Balance', timeoutMs: 5000 });
    await phone.clock.advanceAsync(400);
    await close(phone);
    await phone.clock.advanceAsync(200);
    const { status, result } = await done;
    expect([status, result.error_code ?? result.error]).toEqual([403, expected]);
    expect(phone.clock.pending).toBe(0);
  });

  it('ends when the phone is closed', async () => {
    const phone = createTestPhone({}, { autoReturnMs: null });
    const done = phone.call('POST', '/wait', { ms: 15_000 });
    await phone.clock.advanceAsync(100);
    phone.phone.close();
    expect((await done).status).toBe(200);
    expect(phone.clock.pending).toBe(0);
  });
});

describe('apps, intents and broadcasts (contract 03 §5)', () => {
  it('lists every launchable package once', async () => {
    const { device } = createTestPhone();
    const twice = { ...device, apps: async () => [...(await device.apps()), ...(await device.apps())] };
    const phone = createTestPhone({}, { device: twice });
    const result = await phone.ok('GET', '/get_apps');
    expect(result.apps).toContainEqual({ package: 'org.example.notes', label: 'Notes' });
    expect(result.count).toBe((await device.apps()).length);
    expect(await phone.ok('GET', '/apps')).toEqual(result);
  });

  const BANK = 'com.chase.sig.android';
  it.each([
    ['/open_app', { package: BANK }],
    ['/open_app', { package: ` ${BANK} ` }],
    ['/send_intent', { action: 'x', package: BANK }],
    ['/send_intent', { action: 'x', component: `${BANK}/.Main` }],
    ['/send_intent', { action: 'x', package: 'org.example.notes', component: `${BANK}/.Main` }],
    ['/broadcast', { action: 'x', package: BANK }],
    ['/broadcast', { action: 'x', component: `${BANK}/.Receiver` }],
  ])('%s %j is a blocked target', async (path, body) => {
    const phone = createTestPhone();
    const answer = await phone.call('POST', path, body);
    expect(answer).toMatchObject({ status: 403, blocked: true, result: { error: `blocked package ${BANK}` } });
    expect([...phone.system.intents, ...phone.system.broadcasts]).toEqual([]);
    expect(phone.device.info().foreground).not.toBe(BANK);
  });

  it('an implicit intent that resolves to a blocked package is refused too', async () => {
    const phone = createTestPhone({ blocklist: ['com.android.browser'] });
    const answer = await phone.call('POST', '/send_intent', {
      action: 'android.intent.action.VIEW',
      data: 'https://a.example/',
    });
    expect(answer.result.error).toBe('blocked package com.android.browser');
  });

  it('/open_app brings the app to the front', async () => {
    const phone = createTestPhone();
    expect(await phone.ok('POST', '/open_app', { package: 'org.example.notes' })).toEqual({
      ok: true,
      package: 'org.example.notes',
    });
    expect(await phone.ok('GET', '/current_app')).toEqual({ package: 'org.example.notes' });
  });

  it('/return_to_hermes opens the companion, and reports when it is already open', async () => {
    const phone = createTestPhone();
    expect(await phone.ok('POST', '/return_to_hermes')).toEqual({ ok: true, package: 'com.svc.companion' });
    expect(await phone.ok('POST', '/return_to_hermes')).toEqual({
      ok: true,
      package: 'com.svc.companion',
      note: 'already foreground',
    });
    const { device } = createTestPhone();
    const broken = createTestPhone({}, { device: { ...device, launch: async () => false } });
    expect((await broken.call('POST', '/return_to_hermes')).status).toBe(500);
  });

  it('/send_intent echoes the request, with "" for unset members', async () => {
    const phone = createTestPhone();
    const body = {
      action: 'android.intent.action.VIEW',
      data: 'https://a.example/',
      extras: { a: 1, b: 'c', d: {}, e: null, f: true },
    };
    expect(await phone.ok('POST', '/send_intent', body)).toEqual({
      action: body.action,
      package: '',
      component: '',
      data: body.data,
    });
    expect(phone.system.intents).toMatchObject([{ extras: { a: '1', b: 'c', f: 'true' } }]);
    expect(await phone.ok('POST', '/broadcast', { action: 'a.B' })).toEqual({ action: 'a.B', package: '', data: '' });
    expect(phone.system.broadcasts.length).toBe(1);
  });
});
