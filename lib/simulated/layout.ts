import type { Rect, UiNode } from '../companion/device.ts';
import { isEmpty } from '../companion/tree.ts';
import type { GreyPicture } from '../kit/png.ts';
import type { View } from './view.ts';

export const SCREEN: Rect = { left: 0, top: 0, right: 1080, bottom: 2340 };

/** Window state that survives a new layout. */
export interface ViewState {
  /** Key of the focused view. */
  focus: string | null;
  /** Scroll offset in pixels, keyed by view. */
  scroll: Map<string, number>;
}

/** A view with its position on the screen. */
export interface PlacedView {
  view: View;
  node: UiNode;
  /** The view's id, or its path in the tree. Identifies it for focus and scrolling. */
  key: string;
  /** Maximum scroll offset, in pixels. */
  scrollRange: number;
}

/** A window after layout: its tree, and its views keyed by node reference. */
export interface WindowLayout {
  root: UiNode;
  placed: Map<string, PlacedView>;
}

function naturalHeight(view: View): number {
  if (view.height !== undefined) return view.height;
  const heights = view.children.map(naturalHeight);
  return view.kind === 'row' ? Math.max(0, ...heights) : heights.reduce((sum, height) => sum + height, 0);
}

const clip = (rect: Rect, by: Rect): Rect => ({
  left: Math.max(rect.left, by.left),
  top: Math.max(rect.top, by.top),
  right: Math.max(Math.min(rect.right, by.right), Math.max(rect.left, by.left)),
  bottom: Math.max(Math.min(rect.bottom, by.bottom), Math.max(rect.top, by.top)),
});

/** The rectangles of a view's children. A column shares its remaining height among the scrolling ones. */
function arrange(view: View, rect: Rect, offset: number): Rect[] {
  const { children } = view;
  if (view.kind === 'row') {
    const width = (rect.right - rect.left) / Math.max(1, children.length);
    return children.map((_, index) => ({
      ...rect,
      left: rect.left + Math.floor(index * width),
      right: rect.left + Math.floor((index + 1) * width),
    }));
  }
  const fixed = children.filter((child) => child.kind !== 'scroll');
  const used = fixed.reduce((sum, child) => sum + naturalHeight(child), 0);
  const spare = Math.max(0, rect.bottom - rect.top - used) / Math.max(1, children.length - fixed.length);
  let top = rect.top - offset;
  return children.map((child) => {
    const height = child.kind === 'scroll' && view.kind !== 'scroll' ? Math.floor(spare) : naturalHeight(child);
    const place = { left: rect.left, top, right: rect.right, bottom: top + height };
    top += height;
    return place;
  });
}

function displayText({ input, text }: View): string | null {
  if (!input) return text ?? null;
  if (input.value === '') return null;
  return input.password ? '•'.repeat(input.value.length) : input.value;
}

/** Lays out a window. References are prefixed with `owner`, so that they are unique across windows. */
export function layOut(view: View, owner: string, state: ViewState): WindowLayout {
  const placed = new Map<string, PlacedView>();

  function place(view: View, path: string, rect: Rect, visible: Rect): UiNode {
    const ref = `${owner}#${path}`;
    const key = view.id ?? path;
    const bounds = clip(rect, visible);
    const scrollRange = view.kind === 'scroll' ? Math.max(0, naturalHeight(view) - (rect.bottom - rect.top)) : 0;
    const offset = Math.min(state.scroll.get(key) ?? 0, scrollRange);
    const node: UiNode = {
      ref,
      className: view.className,
      text: displayText(view),
      contentDescription: view.description ?? null,
      hintText: view.hint ?? null,
      viewId: view.id === undefined ? null : `${owner}:id/${view.id}`,
      bounds,
      clickable: view.onClick !== undefined || view.input !== undefined,
      longClickable: view.onLongClick !== undefined,
      focusable: view.input !== undefined,
      focused: view.input !== undefined && state.focus === key,
      editable: view.input !== undefined,
      scrollable: scrollRange > 0,
      checkable: view.checked !== undefined,
      checked: view.checked ?? false,
      enabled: view.enabled ?? true,
      selected: false,
      password: view.input?.password ?? false,
      children: [],
    };
    placed.set(ref, { view, node, key, scrollRange });
    const inner = view.kind === 'scroll' ? bounds : visible;
    const rects = arrange(view, rect, offset);
    node.children = view.children.flatMap((child, index) => {
      const childNode = place(child, `${path}.${index}`, rects[index] ?? SCREEN, inner);
      // Like a RecyclerView: rows that are scrolled out of sight are not in the tree.
      return view.kind === 'scroll' && isEmpty(childNode.bounds) ? [] : [childNode];
    });
    return node;
  }

  return { root: place(view, '0', SCREEN, SCREEN), placed };
}

/** Draws each rectangle as a frame, a shade darker than those below it. `scale` screen pixels become one image pixel. */
export function drawFrames(screen: Rect, rects: Rect[], scale: number): GreyPicture {
  const width = Math.floor((screen.right - screen.left) / scale);
  const height = Math.floor((screen.bottom - screen.top) / scale);
  const rows = new Uint8Array(width * height).fill(255);
  for (const rect of rects) {
    const [left, top] = [Math.floor(rect.left / scale), Math.floor(rect.top / scale)];
    const [right, bottom] = [Math.floor(rect.right / scale) - 1, Math.floor(rect.bottom / scale) - 1];
    for (let y = top; y <= bottom; y++) {
      for (let x = left; x <= right; x++) {
        const edge = x === left || x === right || y === top || y === bottom;
        const at = y * width + x;
        rows[at] = edge ? 60 : Math.max(120, (rows[at] ?? 0) - 12);
      }
    }
  }
  return { width, height, depth: 8, rows };
}
