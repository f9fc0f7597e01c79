import type { device } from '../../operations/device.ts';
import type { Gesture, Rect } from '../device.ts';
import type { CommandCall } from '../gates/gate.ts';
import { centre, isEmpty, type ListedNode, readScreen, type Screen } from '../tree.ts';
import { type ArgsOf, badRequest, type HandlerOf } from './args.ts';
import { currentScreen, nodeById, withLabels } from './nodes.ts';

type Point = { x: number; y: number };

/** Moves a finger. @throws CommandFailure 400 if the system cancels the gesture. */
async function stroke({ env }: CommandCall, from: Point, to: Point, durationMs: number): Promise<void> {
  const gesture: Gesture = { from, to, durationMs };
  if (!(await env.device.gesture(gesture))) throw badRequest('the gesture was cancelled');
}

function visibleCentre(bounds: Rect): Point {
  if (isEmpty(bounds)) throw badRequest('the node has no visible area');
  return centre(bounds);
}

/** The schema requires both if there is no node. */
const pointOf = ({ x = 0, y = 0 }: Partial<Point>): Point => ({ x, y });

export const tap: HandlerOf<typeof device.tap> = async (call, { nodeId, duration_ms, ...args }) => {
  const target =
    nodeId === undefined ? pointOf(args) : visibleCentre(nodeById(await currentScreen(call), nodeId).node.bounds);
  await stroke(call, target, target, duration_ms);
  return { ...target, duration_ms };
};

export const longPress: HandlerOf<typeof device.longPress> = async (call, { nodeId, duration_ms, ...args }) => {
  if (nodeId === undefined) return pressAt(call, pointOf(args), duration_ms);
  const { node } = nodeById(await currentScreen(call), nodeId);
  if (node.longClickable && (await call.env.device.longClick(node))) {
    return { node_id: nodeId, mode: 'action_long_click' };
  }
  return pressAt(call, visibleCentre(node.bounds), duration_ms);
};

async function pressAt(call: CommandCall, target: Point, duration_ms: number) {
  await stroke(call, target, target, duration_ms);
  return { ...target, duration_ms, mode: 'gesture' };
}

type Ends = Record<'start_x' | 'start_y' | 'end_x' | 'end_y', number>;

async function move(call: CommandCall, ends: Ends, duration_ms: number) {
  await stroke(call, { x: ends.start_x, y: ends.start_y }, { x: ends.end_x, y: ends.end_y }, duration_ms);
  return { ...ends, duration_ms };
}

export const drag: HandlerOf<typeof device.drag> = (call, { device: _, duration_ms, ...ends }) =>
  move(call, ends, duration_ms);

type SwipeArgs = ArgsOf<typeof device.swipe>;

const DIRECTIONS: Record<NonNullable<SwipeArgs['direction']>, Point> = {
  up: { x: 0, y: -1 },
  down: { x: 0, y: 1 },
  left: { x: -1, y: 0 },
  right: { x: 1, y: 0 },
};

/** Swipe distance to each side of the centre, as a fraction of the window's side. */
const DISTANCES: Record<SwipeArgs['distance'], number> = { short: 0.1, medium: 0.25, long: 0.4 };

/** A line through the centre of `area` in `direction`, reaching `fraction` of the side to each side of the centre. */
function lineAcross(area: Rect, direction: Point, fraction: number): Ends {
  const { x, y } = centre(area);
  const dx = Math.floor((area.right - area.left) * fraction) * direction.x;
  const dy = Math.floor((area.bottom - area.top) * fraction) * direction.y;
  const [left, top] = [Math.max(area.left, 0), Math.max(area.top, 0)];
  return {
    start_x: Math.max(x - dx, left),
    start_y: Math.max(y - dy, top),
    end_x: Math.max(x + dx, left),
    end_y: Math.max(y + dy, top),
  };
}

export const swipe: HandlerOf<typeof device.swipe> = async (call, { direction, distance, duration_ms, ...args }) => {
  const { start_x, start_y = 0, end_x = 0, end_y = 0 } = args;
  // Agent tools send both forms, because older phones know only one. The coordinates are exact, so they take
  // precedence.
  if (start_x !== undefined || direction === undefined) {
    // In this case the schema requires all four.
    return move(call, { start_x: start_x ?? 0, start_y, end_x, end_y }, duration_ms);
  }
  const { rootBounds } = await currentScreen(call);
  return move(call, lineAcross(rootBounds, DIRECTIONS[direction], DISTANCES[distance]), duration_ms);
};

export const scroll: HandlerOf<typeof device.scroll> = async (call, { direction, nodeId }) => {
  const { x, y } = DIRECTIONS[direction];
  const screen = await currentScreen(call);
  const area = nodeId === undefined ? screen.rootBounds : nodeById(screen, nodeId).node.bounds;
  // `0 - x` instead of `-x`: -0 would be sent as 0 but does not equal it.
  return move(call, lineAcross(area, { x: 0 - x, y: 0 - y }, 0.25), 400);
};

const labelsOf = ({ text, description }: ListedNode): string[] =>
  [text, description].flatMap((label) => (label === null ? [] : [label.trim().toLowerCase()]));

const isClickable = ({ node, ancestors }: ListedNode): boolean =>
  [node, ...ancestors].some(({ clickable }) => clickable);

/**
 * The nodes that a text may mean, as groups in the order in which they are tried: exact labels, then substrings. The
 * second group is omitted if an exact match is clickable.
 */
function candidateGroups({ listed }: Screen, needle: string, exactOnly: boolean): ListedNode[][] {
  const wanted = needle.trim().toLowerCase();
  const exact = listed.filter((node) => labelsOf(node).includes(wanted));
  if (exactOnly || exact.some(isClickable)) return [exact];
  return [exact, listed.filter((node) => labelsOf(node).some((label) => label.includes(wanted)))];
}

/**
 * The destructive text of `/tap_text`: the given text and all labels that it may match, because `Bu` also taps "Buy
 * now" (contract 03 §8.3 names the text alone).
 */
export async function tapTextLabels(
  { env }: CommandCall,
  { text, exact }: ArgsOf<typeof device.tapText>,
): Promise<string> {
  const candidates = candidateGroups(await readScreen(env.device), text, exact).flat();
  return withLabels(
    text,
    candidates.flatMap((node) => [node.text, node.description]),
  );
}

/** Clicks the first candidate that accepts a click. */
async function clickNode({ env }: CommandCall, candidates: ListedNode[]) {
  for (const { node } of candidates) {
    if (node.clickable && (await env.device.click(node))) return { via: 'direct click', depth: 0 };
  }
  return null;
}

/** Clicks the nearest ancestor that accepts a click. */
async function clickAncestor({ env }: CommandCall, candidates: ListedNode[]) {
  for (const { ancestors } of candidates) {
    for (const [index, node] of ancestors.entries()) {
      if (!node.clickable || !(await env.device.click(node))) continue;
      const depth = index + 1;
      return { via: `parent click (${depth} levels up)`, depth };
    }
  }
  return null;
}

/** Exact label, clickable ancestor, substring, then the centre of the best match (contract 03 §5, `/tap_text`). */
export const tapText: HandlerOf<typeof device.tapText> = async (call, { text: needle, exact }) => {
  const groups = candidateGroups(await currentScreen(call), needle, exact);

  for (const candidates of groups) {
    const clicked = (await clickNode(call, candidates)) ?? (await clickAncestor(call, candidates));
    if (clicked) {
      const { via, depth } = clicked;
      return { ok: true, via, message: `Tapped '${needle}' (${via})`, needle, depth };
    }
  }
  const [best] = groups.flat();
  if (!best) throw badRequest('no node with that text on the screen');
  const { x, y } = centre(best.node.bounds);
  await stroke(call, { x, y }, { x, y }, 100);
  const via = 'coordinate fallback';
  return { ok: true, via, message: `Tapped '${needle}' at ${x}, ${y}`, needle, x, y };
};
