import { CommandFailure, type Handler } from '../gates/gate.ts';
import { hashScreen } from '../tree.ts';
import { clamp, flag, integer, required, text } from './args.ts';
import { currentScreen, matching, nodeById, nodeIdOf, toB, toN } from './nodes.ts';

export const screen: Handler = async (call) => {
  const includeBounds = flag(call.args, 'include_bounds', 'bounds') ?? true;
  const { packageName, rootBounds, listed, truncated } = await currentScreen(call);
  const nodes = listed.map((node) => toN(node, includeBounds));
  return { packageName, rootBounds: toB(rootBounds), nodes, truncated, nodeCount: nodes.length };
};

export const screenHash: Handler = async (call) => {
  const current = await currentScreen(call);
  return { hash: await hashScreen(current), node_count: current.listed.length, truncated: current.truncated };
};

export const diffScreen: Handler = async (call) => {
  const previous = required(call.args, 'previous_hash');
  const current = await currentScreen(call);
  const hash = await hashScreen(current);
  const changed = hash !== previous.trim().toLowerCase();
  return { changed, hash, node_count: current.listed.length, truncated: current.truncated };
};

export const findNodes: Handler = async (call) => {
  const { args } = call;
  const filter = {
    text: text(args, 'text') || undefined,
    className: text(args, 'class_name') || undefined,
    clickable: flag(args, 'clickable'),
  };
  const limit = clamp(integer(args, 'limit') ?? 20, 1, 512);
  const matches = matching(await currentScreen(call), filter)
    .slice(0, limit)
    .map((node) => toN(node));
  return { matches, count: matches.length };
};

export const describeNode: Handler = async (call) => {
  const nodeId = nodeIdOf(call.args);
  if (nodeId === undefined) throw new CommandFailure(400, 'missing nodeId');
  const { node, text, description } = nodeById(await currentScreen(call), nodeId);
  const { left, top, right, bottom } = node.bounds;
  return {
    nodeId,
    bounds: {
      ...toB(node.bounds),
      centerX: Math.floor((left + right) / 2),
      centerY: Math.floor((top + bottom) / 2),
      width: right - left,
      height: bottom - top,
    },
    className: node.className,
    text,
    contentDescription: description,
    hintText: node.hintText,
    viewIdResourceName: node.viewId,
    childCount: node.children.length,
    clickable: node.clickable,
    longClickable: node.longClickable,
    focusable: node.focusable,
    focused: node.focused,
    editable: node.editable,
    scrollable: node.scrollable,
    checkable: node.checkable,
    checked: node.checkable ? node.checked : null,
    enabled: node.enabled,
    selected: node.selected,
    password: node.password,
  };
};
