import type { Gesture, UiNode } from '../device.ts';
import { contains } from '../tree.ts';
import { type Placed, SCREEN } from './layout.ts';
import type { Shell, Shown } from './shell.ts';
import type { System } from './system.ts';

/** From here down, a swipe from the edge opens the shade; up on a keyguard it opens that. */
const EDGE = 60;
const LONG_PRESS_MS = 500;

interface Target {
  window: Shown;
  placed: Placed;
}

/** From the deepest view at a point up to the root of the topmost window there. */
function under(windows: Shown[], x: number, y: number): Target[] {
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

/** What a finger, or an accessibility action, does to what is drawn. */
export function createTouch(system: System, shell: Shell) {
  /** Where a node is now, if the screen still has it as it was. */
  function find(node: UiNode): Target | null {
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
    const target = targets.find(({ placed }) => placed.reach > 0);
    if (!target) return;
    const { window, placed } = target;
    const before = Math.min(window.state.scroll.get(placed.key) ?? 0, placed.reach);
    const after = Math.min(Math.max(before + distance, 0), placed.reach);
    if (after === before) return;
    window.state.scroll.set(placed.key, after);
    shell.emit('scroll', window.packageName, placed);
  }

  function gesture({ from, to, durationMs }: Gesture): boolean {
    if (!system.screenOn || !contains(SCREEN, from.x, from.y)) return false;
    const targets = under(shell.windows(), from.x, from.y);
    if (Math.abs(from.x - to.x) + Math.abs(from.y - to.y) < 20) {
      if (durationMs < LONG_PRESS_MS || !targets.some(longClick)) targets.some(click);
      return true;
    }
    const up = from.y - to.y;
    if (system.locked) {
      if (up > 300 && !system.credential) shell.unlock();
    } else if (from.y < EDGE && up < -300) shell.overlay('shade');
    else scroll(targets, up);
    return true;
  }

  const on =
    <A extends unknown[]>(act: (target: Target, ...rest: A) => boolean) =>
    (node: UiNode, ...rest: A): boolean => {
      const target = system.screenOn ? find(node) : null;
      return target !== null && act(target, ...rest);
    };

  return { click: on(click), longClick: on(longClick), setText: on(setText), gesture };
}
