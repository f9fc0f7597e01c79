import type { Rect } from '../device.ts';
import { type Call, CommandFailure } from '../gates/gate.ts';
import { isBlank } from '../text.ts';
import { type Listed, labelOf, nodeAt, readScreen, type Screen } from '../tree.ts';
import { type Args, integer, text } from './args.ts';

const ZERO: Rect = { left: 0, top: 0, right: 0, bottom: 0 };

/** The `N` of contract 03 §5. */
export const toN = ({ nodeId, node, text, description }: Listed, includeBounds = true) => ({
  nodeId,
  text,
  contentDescription: description,
  className: node.className,
  viewId: node.viewId,
  bounds: toB(includeBounds ? node.bounds : ZERO),
  clickable: node.clickable,
  longClickable: node.longClickable,
  scrollable: node.scrollable,
  editable: node.editable,
  focused: node.focused,
  selected: node.selected,
  enabled: node.enabled,
});

/** The `B` of contract 03 §5. */
export const toB = ({ left, top, right, bottom }: Rect) => ({ left, top, right, bottom });

/** The screen, or 500 when there is no window to look at. */
export async function currentScreen({ env }: Call): Promise<Screen> {
  const screen = await readScreen(env.device);
  if (screen.windows.length === 0) throw new CommandFailure(500, 'no window');
  return screen;
}

/** The node of that id on the screen as it is now, or 404. */
export function nodeById(screen: Screen, nodeId: string): Listed {
  const found = screen.listed.find((listed) => listed.nodeId === nodeId);
  if (!found) throw new CommandFailure(404, 'node not found');
  return found;
}

/** The `nodeId` (or `node_id`) of the arguments; blank counts as absent. */
export const nodeIdOf = (args: Args): string | undefined => text(args, 'nodeId', 'node_id')?.trim() || undefined;

export interface Filter {
  text?: string;
  className?: string;
  clickable?: boolean;
}

/** Listed nodes that meet every condition given (contract 03 §5, `/find_nodes`). */
export function matching(screen: Screen, { text, className, clickable }: Filter): Listed[] {
  const needle = text?.toLowerCase();
  const says = (value: string | null) => value?.toLowerCase().includes(needle ?? '') ?? false;
  return screen.listed.filter(
    (listed) =>
      (needle === undefined || says(listed.text) || says(listed.description)) &&
      (className === undefined || listed.node.className === className) &&
      (clickable === undefined || listed.node.clickable === clickable),
  );
}

/**
 * What the destructive gate reads for `/tap` and `/long_press`: the label of what is addressed, and the hint `text` if
 * given (contract 03 §8.3; a hint of the caller's can add a question but take none away). Arguments that address nothing
 * give null: the handler refuses them.
 */
export async function addressedText(call: Call): Promise<string | null> {
  const { args, env } = call;
  try {
    const hint = text(args, 'text') ?? '';
    const nodeId = nodeIdOf(args);
    const [x, y] = [integer(args, 'x'), integer(args, 'y')];
    const screen = await readScreen(env.device);
    if (nodeId !== undefined) return withLabels(hint, [labelOf(nodeById(screen, nodeId).node)]);
    const node = x === undefined || y === undefined ? null : nodeAt(screen, x, y);
    return withLabels(hint, node ? [labelOf(node)] : []);
  } catch (error) {
    if (error instanceof CommandFailure) return null;
    throw error;
  }
}

/** What a caller says, and what the screen says where that differs. */
export function withLabels(said: string, labels: (string | null)[]): string {
  const same = said.trim().toLowerCase();
  const others = new Set(labels.filter((label) => !isBlank(label) && label?.trim().toLowerCase() !== same));
  if (said === '' || others.size === 0) return [said, ...others].join('');
  return `${said} (${[...others].join(', ')})`;
}

/** What the destructive gate reads for `/type`. */
export const bodyText = async ({ args }: Call): Promise<string | null> =>
  typeof args.text === 'string' ? args.text : null;
