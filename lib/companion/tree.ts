import { bytesToHex, utf8ToBytes } from '../kit/bytes.ts';
import { webSha256 } from '../kit/web-sha256.ts';
import type { Device, Rect, UiNode, UiWindow } from './device.ts';
import { isBlank, truncate } from './text.ts';

/** Limit of listed nodes, over all windows together (contract 03 §5). */
const MAX_NODES = 512;
const MAX_TEXT = 2000;
/** Levels that `/tap_text` searches upwards for a clickable ancestor. */
const MAX_ANCESTORS = 8;

/** A node that callers can see and address. */
export interface ListedNode {
  nodeId: string;
  node: UiNode;
  /** At most the 8 nearest, parent first. */
  ancestors: UiNode[];
  text: string | null;
  description: string | null;
}

export interface Screen {
  windows: UiWindow[];
  listed: ListedNode[];
  /** True if nodes were left out because of the limit. */
  truncated: boolean;
  /** Union of the window roots. */
  rootBounds: Rect;
  packageName: string | null;
}

export const isEmpty = (rect: Rect): boolean => !(rect.right > rect.left && rect.bottom > rect.top);

export const contains = (rect: Rect, x: number, y: number): boolean =>
  x >= rect.left && x < rect.right && y >= rect.top && y < rect.bottom;

export const centre = (rect: Rect): { x: number; y: number } => ({
  x: Math.floor((rect.left + rect.right) / 2),
  y: Math.floor((rect.top + rect.bottom) / 2),
});

const isListed = (node: UiNode): boolean =>
  !isEmpty(node.bounds) &&
  (!isBlank(node.text) ||
    !isBlank(node.contentDescription) ||
    node.clickable ||
    node.longClickable ||
    node.scrollable ||
    node.editable);

const shorten = (text: string | null): string | null => (text === null ? null : truncate(text, MAX_TEXT));

interface Frame {
  node: UiNode;
  ancestors: Chain | null;
}

/**
 * A linked list that shares its tail, since copying all ancestors of every node would be quadratic in the tree's depth.
 */
interface Chain {
  node: UiNode;
  up: Chain | null;
}

function toArray(chain: Chain | null): UiNode[] {
  const nodes: UiNode[] = [];
  for (let link = chain; link && nodes.length < MAX_ANCESTORS; link = link.up) nodes.push(link.node);
  return nodes;
}

/** Every node of a window in pre-order. Uses an explicit stack because a tree may be deeper than the call stack. */
function* preOrder(root: UiNode): Generator<Frame> {
  const stack: Frame[] = [{ node: root, ancestors: null }];
  for (let frame = stack.pop(); frame; frame = stack.pop()) {
    yield frame;
    const ancestors = { node: frame.node, up: frame.ancestors };
    for (let i = frame.node.children.length - 1; i >= 0; i--) {
      stack.push({ node: frame.node.children[i] as UiNode, ancestors });
    }
  }
}

function union(windows: UiWindow[]): Rect {
  const rects = windows.map((window) => window.root.bounds);
  const all = (side: keyof Rect, pick: (...values: number[]) => number) =>
    rects.length === 0 ? 0 : pick(...rects.map((rect) => rect[side]));
  return {
    left: all('left', Math.min),
    top: all('top', Math.min),
    right: all('right', Math.max),
    bottom: all('bottom', Math.max),
  };
}

/** Lists and numbers the nodes of all windows: `w<window>:<seq>`, where `seq` counts over all windows (contract 03 §5). */
export function listNodes(windows: UiWindow[]): Screen {
  const listed: ListedNode[] = [];
  let truncated = false;
  outer: for (const [index, window] of windows.entries()) {
    for (const { node, ancestors } of preOrder(window.root)) {
      if (!isListed(node)) continue;
      if (listed.length === MAX_NODES) {
        truncated = true;
        break outer;
      }
      listed.push({
        nodeId: `w${index}:${listed.length}`,
        node,
        ancestors: toArray(ancestors),
        text: shorten(node.text),
        description: shorten(node.contentDescription),
      });
    }
  }
  return { windows, listed, truncated, rootBounds: union(windows), packageName: windows[0]?.packageName ?? null };
}

/** The current screen. */
export const readScreen = async (device: Device): Promise<Screen> => listNodes(await device.windows());

/** The deepest node at a point, in the topmost window that contains it. The last drawn of several siblings wins. */
export function nodeAt(screen: Screen, x: number, y: number): UiNode | null {
  for (const { root } of screen.windows) {
    if (!contains(root.bounds, x, y)) continue;
    let found = root;
    for (;;) {
      const child = found.children.findLast((candidate) => contains(candidate.bounds, x, y));
      if (!child) return found;
      found = child;
    }
  }
  return null;
}

/**
 * The label a person sees: text, then description (contract 03 §8.3). A node without either is described by the labels
 * inside it, because a row that is clicked as a whole has its "Buy" in a child.
 */
export function labelOf(node: UiNode): string {
  for (const text of [node.text, node.contentDescription]) if (text && !isBlank(text)) return text;
  const inside: string[] = [];
  for (const frame of preOrder(node)) {
    if (inside.length === MAX_NODES) break;
    const label = [frame.node.text, frame.node.contentDescription].find((text) => !isBlank(text));
    if (label) inside.push(label);
  }
  return inside.join(' ');
}

/** SHA-256 of the screen as 64 hex digits: `class|text|description|l,t,r,b|viewId` joined by U+001E (contract 03 §5). */
export async function hashScreen(screen: Screen): Promise<string> {
  const rows = screen.listed.map(({ node, text, description }) => {
    const { left, top, right, bottom } = node.bounds;
    const bounds = `${left},${top},${right},${bottom}`;
    return `${node.className ?? ''}|${text ?? ''}|${description ?? ''}|${bounds}|${node.viewId ?? ''}`;
  });
  return bytesToHex(await webSha256(utf8ToBytes(rows.join('\u001e'))));
}
