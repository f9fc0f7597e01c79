import type { Gesture, Rect } from '../device.ts';
import type { CommandCall, Handler } from '../gates/gate.ts';
import { isBlank } from '../text.ts';
import { centre, isEmpty, type ListedNode, readScreen, type Screen } from '../tree.ts';
import { badRequest, clamp, coordinate, flag, integer, lookUp, pick, required } from './args.ts';
import { currentScreen, nodeById, nodeIdOf, withLabels } from './nodes.ts';

/** The longest gesture that Android dispatches. */
const MAX_GESTURE_MS = 60_000;

type Point = { x: number; y: number };

/** Moves a finger. @throws CommandFailure 400 when the system cancels the gesture. */
async function stroke({ env }: CommandCall, from: Point, to: Point, durationMs: number): Promise<void> {
  const gesture: Gesture = { from, to, durationMs };
  if (!(await env.device.gesture(gesture))) throw badRequest('the gesture was cancelled');
}

const hasCoordinates = (call: CommandCall) => pick(call.args, 'x', 'y') !== undefined;
const pointOf = ({ args }: CommandCall): Point => ({ x: coordinate(args, 'x'), y: coordinate(args, 'y') });

function visibleCentre(bounds: Rect): Point {
  if (isEmpty(bounds)) throw badRequest('the node has no visible area');
  return centre(bounds);
}

function positiveDuration(call: CommandCall, fallback: number): number {
  const duration = integer(call.args, 'duration_ms', 'duration') ?? fallback;
  if (duration < 1 || duration > MAX_GESTURE_MS) throw badRequest(`duration_ms must be 1 to ${MAX_GESTURE_MS}`);
  return duration;
}

export const tap: Handler = async (call) => {
  const duration_ms = positiveDuration(call, 100);
  const nodeId = nodeIdOf(call.args);
  const target =
    nodeId === undefined ? pointOf(call) : visibleCentre(nodeById(await currentScreen(call), nodeId).node.bounds);
  await stroke(call, target, target, duration_ms);
  return { ...target, duration_ms };
};

export const longPress: Handler = async (call) => {
  const duration_ms = integer(call.args, 'duration_ms', 'duration') ?? 500;
  if (duration_ms < 100 || duration_ms > 3000) throw badRequest('duration must be 100 to 3000');
  const nodeId = nodeIdOf(call.args);
  if ((nodeId !== undefined) === hasCoordinates(call)) throw badRequest('give either x and y or nodeId');
  if (nodeId === undefined) return pressAt(call, pointOf(call), duration_ms);
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

const endsOf = ({ args }: CommandCall) => ({
  start_x: coordinate(args, 'start_x'),
  start_y: coordinate(args, 'start_y'),
  end_x: coordinate(args, 'end_x'),
  end_y: coordinate(args, 'end_y'),
});

type Ends = ReturnType<typeof endsOf>;

async function move(call: CommandCall, ends: Ends, duration_ms: number) {
  await stroke(call, { x: ends.start_x, y: ends.start_y }, { x: ends.end_x, y: ends.end_y }, duration_ms);
  return { ...ends, duration_ms };
}

export const drag: Handler = (call) => {
  const duration = clamp(integer(call.args, 'duration_ms', 'duration') ?? 500, 100, 3000);
  return move(call, endsOf(call), duration);
};

const DIRECTIONS: Record<string, Point> = {
  up: { x: 0, y: -1 },
  down: { x: 0, y: 1 },
  left: { x: -1, y: 0 },
  right: { x: 1, y: 0 },
};

/** Swipe distance to each side of the centre, as a fraction of the window's side. */
const DISTANCES: Record<string, number> = { short: 0.1, medium: 0.25, long: 0.4 };

function directionOf({ args }: CommandCall): Point {
  const direction = lookUp(DIRECTIONS, required(args, 'direction'));
  if (!direction) throw badRequest('direction must be up, down, left or right');
  return direction;
}

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

export const swipe: Handler = async (call) => {
  const { args } = call;
  const duration = positiveDuration(call, 400);
  // Agent tools send both forms because older phones only know one. The coordinates are exact, so they win.
  if (pick(args, 'start_x', 'start_y', 'end_x', 'end_y') !== undefined) return move(call, endsOf(call), duration);
  if (pick(args, 'direction') === undefined) throw badRequest('give start_x, start_y, end_x and end_y, or direction');
  const direction = directionOf(call);
  const fraction = lookUp(DISTANCES, pick(args, 'distance') === undefined ? 'medium' : required(args, 'distance'));
  if (fraction === undefined) throw badRequest('distance must be short, medium or long');
  return move(call, lineAcross((await currentScreen(call)).rootBounds, direction, fraction), duration);
};

export const scroll: Handler = async (call) => {
  const { x, y } = directionOf(call);
  const screen = await currentScreen(call);
  const nodeId = nodeIdOf(call.args);
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
 * second group is left out when an exact match can be clicked.
 */
function candidateGroups({ listed }: Screen, needle: string, exactOnly: boolean): ListedNode[][] {
  const wanted = needle.trim().toLowerCase();
  const exact = listed.filter((node) => labelsOf(node).includes(wanted));
  if (exactOnly || exact.some(isClickable)) return [exact];
  return [exact, listed.filter((node) => labelsOf(node).some((label) => label.includes(wanted)))];
}

/**
 * The destructive text of `/tap_text`: the given text and the full labels it may match, because `Bu` also taps "Buy now"
 * (contract 03 §8.3 names the text alone).
 */
export async function tapTextLabels({ args, env }: CommandCall): Promise<string | null> {
  const { text } = args;
  if (typeof text !== 'string' || isBlank(text)) return null;
  const exactOnly = args.exact === true || args.exact === 'true';
  const candidates = candidateGroups(await readScreen(env.device), text, exactOnly).flat();
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
export const tapText: Handler = async (call) => {
  const needle = required(call.args, 'text');
  const exactOnly = flag(call.args, 'exact') ?? false;
  const groups = candidateGroups(await currentScreen(call), needle, exactOnly);

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
