import type { Rect, UiNode } from '../device.ts';
import { isEmpty } from '../tree.ts';
import type { View } from './view.ts';

export const SCREEN: Rect = { left: 0, top: 0, right: 1080, bottom: 2340 };

/** What belongs to a window and outlives a drawing of it. */
export interface ViewState {
  /** Key of the view that has the focus. */
  focus: string | null;
  /** Pixels that a scrolling view has moved, by its key. */
  scroll: Map<string, number>;
}

/** A view where it was drawn. */
export interface Placed {
  view: View;
  node: UiNode;
  /** The id, or where it stands in the tree: what focus and scrolling remember. */
  key: string;
  /** How far a scrolling view can move. */
  reach: number;
}

/** A drawn window: its tree, and every view by its reference. */
export interface Drawn {
  root: UiNode;
  placed: Map<string, Placed>;
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

/** Where the children of a view go. A column gives what is left over to the scrolling ones. */
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

function shownText({ input, text }: View): string | null {
  if (!input) return text ?? null;
  if (input.value === '') return null;
  return input.password ? '•'.repeat(input.value.length) : input.value;
}

/** Draws a window. References are prefixed with `owner`, so that two windows share none. */
export function draw(view: View, owner: string, state: ViewState): Drawn {
  const placed = new Map<string, Placed>();

  function place(view: View, path: string, rect: Rect, visible: Rect): UiNode {
    const ref = `${owner}#${path}`;
    const key = view.id ?? path;
    const shown = clip(rect, visible);
    const reach = view.kind === 'scroll' ? Math.max(0, naturalHeight(view) - (rect.bottom - rect.top)) : 0;
    const offset = Math.min(state.scroll.get(key) ?? 0, reach);
    const node: UiNode = {
      ref,
      className: view.className,
      text: shownText(view),
      contentDescription: view.description ?? null,
      hintText: view.hint ?? null,
      viewId: view.id === undefined ? null : `${owner}:id/${view.id}`,
      bounds: shown,
      clickable: view.onClick !== undefined || view.input !== undefined,
      longClickable: view.onLongClick !== undefined,
      focusable: view.input !== undefined,
      focused: view.input !== undefined && state.focus === key,
      editable: view.input !== undefined,
      scrollable: reach > 0,
      checkable: view.checked !== undefined,
      checked: view.checked ?? false,
      enabled: view.enabled ?? true,
      selected: view.selected ?? false,
      password: view.input?.password ?? false,
      children: [],
    };
    placed.set(ref, { view, node, key, reach });
    const inner = view.kind === 'scroll' ? shown : visible;
    const rects = arrange(view, rect, offset);
    node.children = view.children.flatMap((child, index) => {
      const drawn = place(child, `${path}.${index}`, rects[index] ?? SCREEN, inner);
      // As a list does: what is scrolled out of sight is not in the tree.
      return view.kind === 'scroll' && isEmpty(drawn.bounds) ? [] : [drawn];
    });
    return node;
  }

  return { root: place(view, '0', SCREEN, SCREEN), placed };
}
