import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { UiNode } from '../../../lib/companion/device.ts';
import { hashScreen, listNodes, nodeAt } from '../../../lib/companion/tree.ts';
import { createStaticDevice, createStaticPhone, createTestPhone, rect, uiNode } from './support.ts';

type N = { nodeId: string; text: string | null; bounds: Record<string, number> };

const sample = () =>
  uiNode({
    bounds: rect(0, 0, 1000, 2000),
    children: [
      uiNode({ text: 'Hello', className: 'android.widget.TextView', bounds: rect(0, 0, 1000, 100) }),
      uiNode({ text: '  ', bounds: rect(0, 100, 1000, 200) }),
      uiNode({ text: 'Hidden', bounds: rect(50, 50, 50, 90) }),
      uiNode({ contentDescription: 'Say hello', clickable: true, viewId: 'a:id/b', bounds: rect(10, 300, 111, 400) }),
      uiNode({
        scrollable: true,
        bounds: rect(0, 500, 1000, 2000),
        children: [uiNode({ checkable: true, checked: true, longClickable: true, bounds: rect(0, 500, 9, 509) })],
      }),
    ],
  });

describe('/screen (contract 03 §5)', () => {
  it('lists nodes with a label or an action and a non-empty rectangle', async () => {
    const { ok } = createStaticPhone(sample());
    const screen = await ok('GET', '/screen');
    expect(screen).toMatchObject({
      packageName: 'org.example.app',
      rootBounds: { left: 0, top: 0, right: 1000, bottom: 2000 },
      truncated: false,
      nodeCount: 4,
    });
    expect((screen.nodes as N[]).map(({ nodeId }) => nodeId)).toEqual(['w0:0', 'w0:1', 'w0:2', 'w0:3']);
    expect((screen.nodes as N[])[1]).toEqual({
      nodeId: 'w0:1',
      text: null,
      contentDescription: 'Say hello',
      className: 'android.view.View',
      viewId: 'a:id/b',
      bounds: { left: 10, top: 300, right: 111, bottom: 400 },
      clickable: true,
      longClickable: false,
      scrollable: false,
      editable: false,
      focused: false,
      selected: false,
      enabled: true,
    });
  });

  it.each([['include_bounds'], ['bounds']])('%s=false zeroes the rectangles and lists the same nodes', async (name) => {
    const { ok } = createStaticPhone(sample());
    const nodes = (await ok('GET', '/screen', { [name]: 'false' })).nodes as N[];
    expect(nodes.length).toBe(4);
    for (const node of nodes) expect(node.bounds).toEqual({ left: 0, top: 0, right: 0, bottom: 0 });
    const both = (await ok('GET', '/screen', { [name]: 'true' })).nodes as N[];
    expect(both[1]?.bounds.right).toBe(111);
  });

  it('numbers nodes over all windows, topmost first, and unites their rectangles', async () => {
    const { device } = createStaticDevice(() => [
      { packageName: 'top', root: uiNode({ text: 'a', bounds: rect(10, 10, 20, 20) }) },
      { packageName: null, root: uiNode({ text: 'b', bounds: rect(0, 15, 15, 90) }) },
    ]);
    const screen = await createTestPhone({}, { device }).ok('GET', '/screen');
    expect((screen.nodes as N[]).map(({ nodeId }) => nodeId)).toEqual(['w0:0', 'w1:1']);
    expect(screen).toMatchObject({ packageName: 'top', rootBounds: { left: 0, top: 10, right: 20, bottom: 90 } });
  });

  it('stops at 512 nodes over all windows together', async () => {
    const many = (count: number) =>
      uiNode({ children: Array.from({ length: count }, (_, index) => uiNode({ text: `${index}` })) });
    const windows = (first: number, second: number) => [
      { packageName: 'a', root: many(first) },
      { packageName: 'b', root: many(second) },
    ];
    expect(listNodes(windows(300, 212))).toMatchObject({ truncated: false, listed: { length: 512 } });
    expect(listNodes(windows(300, 213))).toMatchObject({ truncated: true, listed: { length: 512 } });
  });

  it('cuts texts at 2000 characters, never inside a surrogate pair', async () => {
    const { ok } = createStaticPhone(uiNode({ text: 'x'.repeat(3000), contentDescription: `${'x'.repeat(1999)}😀` }));
    const [node] = (await ok('GET', '/screen')).nodes as { text: string; contentDescription: string }[];
    expect([node?.text.length, node?.contentDescription.length]).toEqual([2000, 1999]);
  });

  it.each([
    ['GET', '/screen', {}],
    ['GET', '/screen_hash', {}],
    ['POST', '/diff_screen', { previous_hash: 'x' }],
    ['POST', '/find_nodes', {}],
  ])('%s %s without a window answers 500', async (method, path, body) => {
    const { device } = createStaticDevice(() => []);
    expect(await createTestPhone({}, { device }).call(method, path, body)).toMatchObject({
      status: 500,
      result: { error: 'no window' },
    });
  });

  it('handles a tree deeper than the call stack', async () => {
    let root = uiNode({ text: 'deep' });
    for (let depth = 0; depth < 50_000; depth++) root = uiNode({ ref: 'x', text: 'a', children: [root] });
    expect((await createStaticPhone(root).ok('GET', '/screen')).truncated).toBe(true);
  });
});

describe('hashes (contract 03 §5)', () => {
  it('are SHA-256 over class, text, description, rectangle and id', async () => {
    const expected = [
      'android.widget.TextView|Hello||0,0,1000,100|',
      'android.view.View||Say hello|10,300,111,400|a:id/b',
      'android.view.View|||0,500,1000,2000|',
      'android.view.View|||0,500,9,509|',
    ].join('\u001e');
    const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(expected));
    const { ok } = createStaticPhone(sample());
    const hash = Buffer.from(digest).toString('hex');
    expect(await ok('GET', '/screen_hash')).toEqual({ hash, node_count: 4, truncated: false });
    expect(await ok('POST', '/diff_screen', { previous_hash: hash })).toEqual({
      changed: false,
      hash,
      node_count: 4,
      truncated: false,
    });
    expect((await ok('POST', '/diff_screen', { previous_hash: 'f00' })).changed).toBe(true);
  });

  it('change exactly when the screen changes', async () => {
    const { ok } = createTestPhone();
    const before = (await ok('GET', '/screen_hash')).hash;
    expect((await ok('GET', '/screen_hash')).hash).toBe(before);
    await ok('POST', '/open_app', { package: 'org.example.notes' });
    expect((await ok('POST', '/diff_screen', { previous_hash: before })).changed).toBe(true);
    await ok('POST', '/press_key', { key: 'home' });
    expect((await ok('POST', '/diff_screen', { previous_hash: before })).changed).toBe(false);
  });

  it('/diff_screen requires a hash', async () => {
    expect((await createTestPhone().call('POST', '/diff_screen')).status).toBe(400);
  });
});

describe('/find_nodes and /describe_node (contract 03 §5)', () => {
  it.each([
    [{ text: 'HELLO' }, ['w0:0', 'w0:1']],
    [{ text: 'hello', clickable: true }, ['w0:1']],
    [{ text: 'hello', clickable: 'false' }, ['w0:0']],
    [{ class_name: 'android.widget.TextView' }, ['w0:0']],
    [{ class_name: 'TextView' }, []],
    [{}, ['w0:0', 'w0:1', 'w0:2', 'w0:3']],
    [{ limit: 0 }, ['w0:0']],
    [{ limit: '2' }, ['w0:0', 'w0:1']],
    [{ limit: 100_000 }, ['w0:0', 'w0:1', 'w0:2', 'w0:3']],
  ])('%j', async (body, expected) => {
    const { matches, count } = await createStaticPhone(sample()).ok('POST', '/find_nodes', body);
    expect((matches as N[]).map(({ nodeId }) => nodeId)).toEqual(expected);
    expect(count).toBe(expected.length);
  });

  it.each([[{ limit: 'many' }], [{ limit: 1.5 }], [{ text: 3 }], [{ clickable: 'maybe' }]])(
    '%j answers 400',
    async (body) => {
      expect((await createStaticPhone(sample()).call('POST', '/find_nodes', body)).status).toBe(400);
    },
  );

  it('returns 20 nodes by default', async () => {
    const root = uiNode({ children: Array.from({ length: 30 }, () => uiNode({ text: 'a' })) });
    expect((await createStaticPhone(root).ok('POST', '/find_nodes')).count).toBe(20);
  });

  it.each(['nodeId', 'node_id'])('describes the node named by %s', async (name) => {
    const { ok } = createStaticPhone(sample());
    expect(await ok('POST', '/describe_node', { [name]: 'w0:1' })).toEqual({
      nodeId: 'w0:1',
      bounds: { left: 10, top: 300, right: 111, bottom: 400, centerX: 60, centerY: 350, width: 101, height: 100 },
      className: 'android.view.View',
      text: null,
      contentDescription: 'Say hello',
      hintText: null,
      viewIdResourceName: 'a:id/b',
      childCount: 0,
      clickable: true,
      longClickable: false,
      focusable: false,
      focused: false,
      editable: false,
      scrollable: false,
      checkable: false,
      checked: null,
      enabled: true,
      selected: false,
      password: false,
    });
    expect(await ok('POST', '/describe_node', { [name]: 'w0:3' })).toMatchObject({ checkable: true, checked: true });
  });

  it('answers 400 without an id, 404 for an unknown one', async () => {
    const { call } = createStaticPhone(sample());
    expect((await call('POST', '/describe_node')).status).toBe(400);
    for (const nodeId of ['w0:4', 'w1:0', 'w0:00', 'x']) {
      expect((await call('POST', '/describe_node', { nodeId })).status).toBe(404);
    }
  });
});

const text = fc.option(fc.constantFrom('', ' ', 'a', 'Pay', 'hello', '😀'), { nil: null });
const side = fc.integer({ min: -50, max: 300 });
const bounds = fc.record({ left: side, top: side, right: side, bottom: side });
const { node: tree } = fc.letrec<{ node: UiNode }>((tie) => ({
  node: fc
    .record({
      text,
      contentDescription: text,
      bounds,
      clickable: fc.boolean(),
      scrollable: fc.boolean(),
      children: fc.oneof({ depthSize: 'small' }, fc.constant<UiNode[]>([]), fc.array(tie('node'), { maxLength: 5 })),
    })
    .map((change) => uiNode(change)),
}));

describe('any tree', () => {
  it('has unique ids that denote the same node in every command', async () => {
    await fc.assert(
      fc.asyncProperty(tree, async (root) => {
        const phone = createStaticPhone(root);
        const screen = await phone.ok('GET', '/screen');
        const nodes = screen.nodes as N[];
        expect(new Set(nodes.map(({ nodeId }) => nodeId)).size).toBe(nodes.length);
        expect(nodes.map(({ nodeId }) => Number(nodeId.split(':')[1]))).toEqual(nodes.map((_, index) => index));
        expect((await phone.ok('POST', '/find_nodes', { limit: 512 })).matches).toEqual(nodes);
        phone.person.answer = true;
        for (const node of nodes.slice(0, 5)) {
          const described = await phone.ok('POST', '/describe_node', { nodeId: node.nodeId });
          expect(described).toMatchObject({ text: node.text, bounds: node.bounds });
          const { centerX, centerY } = described.bounds as Record<string, number>;
          expect(await phone.ok('POST', '/tap', { nodeId: node.nodeId })).toMatchObject({ x: centerX, y: centerY });
        }
        expect(await phone.ok('GET', '/screen_hash')).toMatchObject({ node_count: nodes.length });
        expect(await hashScreen(listNodes([{ packageName: 'a', root }]))).toMatch(/^[0-9a-f]{64}$/);
      }),
      { numRuns: 60 },
    );
  });

  it('finds a node at a point only if it contains the point', () => {
    fc.assert(
      fc.property(tree, side, side, (root, x, y) => {
        const node = nodeAt(listNodes([{ packageName: null, root }]), x, y);
        if (!node) return;
        const { left, top, right, bottom } = node.bounds;
        expect(x >= left && x < right && y >= top && y < bottom).toBe(true);
      }),
    );
  });
});
