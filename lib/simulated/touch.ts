import type { Gesture, UiNode } from '../companion/device.ts';
import { contains } from '../companion/tree.ts';
import { type PlacedView, SCREEN } from './layout.ts';
import type { Shell, ShellWindow } from './shell.ts';
import type { System } from './system.ts';

/** A downward swipe that begins within this distance of the top edge opens the notification shade. */
const EDGE = 60;
const LONG_PRESS_MS = 500;

interface Target {
  window: ShellWindow;
  placed: PlacedView;
}

/** The views at a point in the topmost window, from the deepest up to the root. */
function targetsAt(windows: ShellWindow[], x: number, y: number): Target[] {
  const window = windows.find(({ root }) => contains(root.bounds, x, y));
  if (!window) return [];
  const path: UiNode[] = [];
  for (let node: UiNode | undefined = window.root; node; ) {
    path.unshift(node);
    node = node.children.findLast(({ bounds }) => contains(bounds, x, y));
  }
  return path.flatMap((node) => {
    const placed = window.placed.get(node.ref);
    return placed ? [{ window, placed }] : [];
  });
}

/** Applies touches and accessibility actions to the visible windows. */
export function createTouch(system: System, shell: Shell) {
  /** The view of a node, if it is still on the screen and unchanged. */
  function findTarget(node: UiNode): Target | null {
    for (const window of shell.windows()) {
      const placed = window.placed.get(node.ref);
      const same = (key: 'className' | 'text' | 'contentDescription' | 'viewId') => placed?.node[key] === node[key];
      if (placed && same('className') && same('text') && same('contentDescription') && same('viewId')) {
        return { window, placed };
      }
    }
    return null;
  }

  function click({ window, placed }: Target): boolean {
    const { view, key } = placed;
    if (view.enabled === false) return false;
    if (!view.onClick && !view.input) return false;
    shell.emit('click', window.packageName, placed);
    if (view.input) window.state.focus = key;
    else view.onClick?.();
    return true;
  }

  function longClick({ window, placed }: Target): boolean {
    if (!placed.view.onLongClick || placed.view.enabled === false) return false;
    shell.emit('click', window.packageName, placed);
    placed.view.onLongClick();
    return true;
  }

  function setText({ window, placed }: Target, text: string): boolean {
    const { view, node } = placed;
    if (!view.input || view.enabled === false) return false;
    window.state.focus = placed.key;
    shell.emit('text_changed', window.packageName, { ...placed, node: { ...node, text } });
    view.input.change(text);
    return true;
  }

  function scroll(targets: Target[], distance: number): void {
    const target = targets.find(({ placed }) => placed.scrollRange > 0);
    if (!target) return;
    const { window, placed } = target;
    const before = Math.min(window.state.scroll.get(placed.key) ?? 0, placed.scrollRange);
    const after = Math.min(Math.max(before + distance, 0), placed.scrollRange);
    if (after === before) return;
    window.state.scroll.set(placed.key, after);
    shell.emit('scroll', window.packageName, placed);
  }

  function gesture({ from, to, durationMs }: Gesture): boolean {
    if (!system.screenOn || !contains(SCREEN, from.x, from.y)) return false;
    const targets = targetsAt(shell.windows(), from.x, from.y);
    if (Math.abs(from.x - to.x) + Math.abs(from.y - to.y) < 20) {
      if (durationMs < LONG_PRESS_MS || !targets.some(longClick)) targets.some(click);
      return true;
    }
    const distanceUp = from.y - to.y;
    if (system.locked) {
      if (distanceUp > 300 && !system.credential) shell.unlock();
    } else if (from.y < EDGE && distanceUp < -300) shell.setOverlay('shade');
    else scroll(targets, distanceUp);
    return true;
  }

  /** An action on a node, which fails while the screen is off or once the node is gone. */
  const onNode =
    <A extends unknown[]>(act: (target: Target, ...rest: A) => boolean) =>
    (node: UiNode, ...rest: A): boolean => {
      const target = system.screenOn ? findTarget(node) : null;
      return target !== null && act(target, ...rest);
    };

  return { click: onNode(click), longClick: onNode(longClick), setText: onNode(setText), gesture };
}
