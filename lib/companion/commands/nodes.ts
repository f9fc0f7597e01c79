import type { device } from '../../operations/device.ts';
import type { Rect } from '../device.ts';
import { type CommandCall, CommandFailure } from '../gates/gate.ts';
import { isBlank } from '../text.ts';
import { type ListedNode, labelOf, nodeAt, readScreen, type Screen } from '../tree.ts';
import type { ArgsOf } from './args.ts';

const ZERO: Rect = { left: 0, top: 0, right: 0, bottom: 0 };

/** The node object `N` of contract 03 §5. */
export const nodeJson = ({ nodeId, node, text, description }: ListedNode, includeBounds = true) => ({
  nodeId,
  text,
  contentDescription: description,
  className: node.className,
  viewId: node.viewId,
  bounds: includeBounds ? node.bounds : ZERO,
  clickable: node.clickable,
  longClickable: node.longClickable,
  scrollable: node.scrollable,
  editable: node.editable,
  focused: node.focused,
  selected: node.selected,
  enabled: node.enabled,
});

/** The current screen. @throws CommandFailure 500 if there is no window. */
export async function currentScreen({ env }: CommandCall): Promise<Screen> {
  const screen = await readScreen(env.device);
  if (screen.windows.length === 0) throw new CommandFailure(500, 'no window');
  return screen;
}

const findNode = ({ listed }: Screen, nodeId: string): ListedNode | undefined =>
  listed.find((node) => node.nodeId === nodeId);

/** The node with that id on the current screen. @throws CommandFailure 404 if it does not exist. */
export function nodeById(screen: Screen, nodeId: string): ListedNode {
  const found = findNode(screen, nodeId);
  if (!found) throw new CommandFailure(404, 'node not found');
  return found;
}

export interface NodeFilter {
  text?: string;
  className?: string;
  clickable?: boolean;
}

/** Listed nodes that meet all given conditions (contract 03 §5, `/find_nodes`). */
export function matchingNodes(screen: Screen, { text, className, clickable }: NodeFilter): ListedNode[] {
  const needle = text?.toLowerCase();
  const contains = (value: string | null) => value?.toLowerCase().includes(needle ?? '') ?? false;
  return screen.listed.filter(
    (listed) =>
      (needle === undefined || contains(listed.text) || contains(listed.description)) &&
      (className === undefined || listed.node.className === className) &&
      (clickable === undefined || listed.node.clickable === clickable),
  );
}

/**
 * The destructive text of `/tap` and `/long_press`: the label of the addressed node, and the hint `text` if given
 * (contract 03 §8.3). The hint can add a question but never remove one. Null if the node does not exist, which the
 * handler refuses.
 */
export async function addressedText(
  { env }: CommandCall,
  { nodeId, x, y, text: hint = '' }: ArgsOf<typeof device.tap>,
): Promise<string | null> {
  const screen = await readScreen(env.device);
  if (nodeId !== undefined) {
    const found = findNode(screen, nodeId);
    return found ? withLabels(hint, [labelOf(found.node)]) : null;
  }
  const node = x === undefined || y === undefined ? null : nodeAt(screen, x, y);
  return withLabels(hint, node ? [labelOf(node)] : []);
}

/** The caller's text, followed by the labels on the screen that differ from it. */
export function withLabels(given: string, labels: (string | null)[]): string {
  const same = given.trim().toLowerCase();
  const others = new Set(labels.filter((label) => !isBlank(label) && label?.trim().toLowerCase() !== same));
  if (given === '' || others.size === 0) return [given, ...others].join('');
  return `${given} (${[...others].join(', ')})`;
}
