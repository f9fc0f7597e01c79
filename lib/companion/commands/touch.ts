import type { Gesture, Rect } from '../device.ts';
import { type Call, CommandFailure, type Handler } from '../gates/gate.ts';
import { centre, isEmpty } from '../tree.ts';
import { clamp, coordinate, integer, pick, required } from './args.ts';
import { currentScreen, nodeById, nodeIdOf } from './nodes.ts';

/** The longest stroke Android dispatches, ms. */
const LONGEST = 60_000;

export type Point = { x: number; y: number };

const bad = (error: string) => new CommandFailure(400, error);

/** Lets the finger touch; 400 when the system does not let it. */
export async function stroke({ env }: Call, from: Point, to: Point, durationMs: number): Promise<void> {
  const gesture: Gesture = { from, to, durationMs };
  if (!(await env.device.gesture(gesture))) throw bad('the gesture was cancelled');
}

const hasCoordinates = (call: Call) => pick(call.args, 'x', 'y') !== undefined;
const point = ({ args }: Call): Point => ({ x: coordinate(args, 'x'), y: coordinate(args, 'y') });

function middle(bounds: Rect): Point {
  if (isEmpty(bounds)) throw bad('the node has no visible area');
  return centre(bounds);
}

function positiveDuration(call: Call, otherwise: number): number {
  const duration = integer(call.args, 'duration_ms', 'duration') ?? otherwise;
  if (duration < 1 || duration > LONGEST) throw bad(`duration_ms must be 1 to ${LONGEST}`);
  return duration;
}

export const tap: Handler = async (call) => {
  const duration_ms = positiveDuration(call, 100);
  const nodeId = nodeIdOf(call.args);
  const target = nodeId === undefined ? point(call) : middle(nodeById(await currentScreen(call), nodeId).node.bounds);
  await stroke(call, target, target, duration_ms);
  return { ...target, duration_ms };
};

export const longPress: Handler = async (call) => {
  const duration_ms = integer(call.args, 'duration_ms', 'duration') ?? 500;
  if (duration_ms < 100 || duration_ms > 3000) throw bad('duration must be 100 to 3000');
  const nodeId = nodeIdOf(call.args);
  if ((nodeId !== undefined) === hasCoordinates(call)) throw bad('give either x and y or nodeId');
  if (nodeId === undefined) return hold(call, point(call), duration_ms);
  const { node } = nodeById(await currentScreen(call), nodeId);
  if (node.longClickable && (await call.env.device.longClick(node))) {
    return { node_id: nodeId, mode: 'action_long_click' };
  }
  return hold(call, middle(node.bounds), duration_ms);
};

async function hold(call: Call, target: Point, duration_ms: number) {
  await stroke(call, target, target, duration_ms);
  return { ...target, duration_ms, mode: 'gesture' };
}

const ends = ({ args }: Call) => ({
  start_x: coordinate(args, 'start_x'),
  start_y: coordinate(args, 'start_y'),
  end_x: coordinate(args, 'end_x'),
  end_y: coordinate(args, 'end_y'),
});

type Ends = ReturnType<typeof ends>;

async function move(call: Call, line: Ends, duration_ms: number) {
  await stroke(call, { x: line.start_x, y: line.start_y }, { x: line.end_x, y: line.end_y }, duration_ms);
  return { ...line, duration_ms };
}

export const drag: Handler = (call) => {
  const duration = clamp(integer(call.args, 'duration_ms', 'duration') ?? 500, 100, 3000);
  return move(call, ends(call), duration);
};

const DIRECTIONS: Record<string, Point> = {
  up: { x: 0, y: -1 },
  down: { x: 0, y: 1 },
  left: { x: -1, y: 0 },
  right: { x: 1, y: 0 },
};

/** Parts of the window's side from the middle, each way. */
const DISTANCES: Record<string, number> = { short: 0.1, medium: 0.25, long: 0.4 };

const lookUp = <T>(table: Record<string, T>, name: string): T | undefined =>
  Object.hasOwn(table, name) ? table[name] : undefined;

function direction({ args }: Call): Point {
  const name = required(args, 'direction');
  const found = lookUp(DIRECTIONS, name);
  if (!found) throw bad('direction must be up, down, left or right');
  return found;
}

/** A line through the middle of `area`; the finger moves along `to`, `part` of the side each way. */
function across(area: Rect, to: Point, part: number): Ends {
  const { x, y } = centre(area);
  const dx = Math.floor((area.right - area.left) * part) * to.x;
  const dy = Math.floor((area.bottom - area.top) * part) * to.y;
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
  // Agent tools send both forms, so that older phones understand one of them: coordinates are the exact one.
  if (pick(args, 'start_x', 'start_y', 'end_x', 'end_y') !== undefined) return move(call, ends(call), duration);
  if (pick(args, 'direction') === undefined) throw bad('give start_x, start_y, end_x and end_y, or direction');
  const to = direction(call);
  const part = lookUp(DISTANCES, pick(args, 'distance') === undefined ? 'medium' : required(args, 'distance'));
  if (part === undefined) throw bad('distance must be short, medium or long');
  return move(call, across((await currentScreen(call)).rootBounds, to, part), duration);
};

export const scroll: Handler = async (call) => {
  const { x, y } = direction(call);
  const screen = await currentScreen(call);
  const nodeId = nodeIdOf(call.args);
  const area = nodeId === undefined ? screen.rootBounds : nodeById(screen, nodeId).node.bounds;
  // `-0` would be sent as 0 but compares as something else.
  return move(call, across(area, { x: 0 - x, y: 0 - y }, 0.25), 400);
};
