import { type Call, CommandFailure, type Handler } from '../gates/gate.ts';
import { isBlank } from '../text.ts';
import { centre, type Listed, readScreen, type Screen } from '../tree.ts';
import { flag, required } from './args.ts';
import { currentScreen, withLabels } from './nodes.ts';
import { stroke } from './touch.ts';

const labels = ({ text, description }: Listed): string[] =>
  [text, description].flatMap((label) => (label === null ? [] : [label.trim().toLowerCase()]));

const lets = ({ node, ancestors }: Listed): boolean => [node, ...ancestors].some(({ clickable }) => clickable);

/**
 * The nodes that a text may mean, in the order they are tried: those called so, and those whose label has it inside, for
 * which there is no need where one of the first can be clicked.
 */
function candidates({ listed }: Screen, needle: string, exactOnly: boolean): Listed[][] {
  const wanted = needle.trim().toLowerCase();
  const exact = listed.filter((node) => labels(node).includes(wanted));
  if (exactOnly || exact.some(lets)) return [exact];
  return [exact, listed.filter((node) => labels(node).some((label) => label.includes(wanted)))];
}

/**
 * What the destructive gate reads: the text, and the labels of what it may mean. `Bu` is on a button that says "Buy now"
 * (contract 03 §8.3 names the text alone).
 */
export async function tapTextLabels({ args, env }: Call): Promise<string | null> {
  const { text } = args;
  if (typeof text !== 'string' || isBlank(text)) return null;
  const exactOnly = args.exact === true || args.exact === 'true';
  const found = candidates(await readScreen(env.device), text, exactOnly).flat();
  return withLabels(
    text,
    found.flatMap((node) => [node.text, node.description]),
  );
}

/** The node itself, the first of `found` that lets itself be clicked. */
async function direct({ env }: Call, found: Listed[]) {
  for (const { node } of found) {
    if (node.clickable && (await env.device.click(node))) return { via: 'direct click', depth: 0 };
  }
  return null;
}

/** The nearest ancestor that lets itself be clicked. */
async function parent({ env }: Call, found: Listed[]) {
  for (const { ancestors } of found) {
    for (const [index, node] of ancestors.entries()) {
      if (!node.clickable || !(await env.device.click(node))) continue;
      const depth = index + 1;
      return { via: `parent click (${depth} levels up)`, depth };
    }
  }
  return null;
}

/** Exact label, clickable ancestor, substring, then the middle of the best match (contract 03 §5, `/tap_text`). */
export const tapText: Handler = async (call) => {
  const needle = required(call.args, 'text');
  const exactOnly = flag(call.args, 'exact') ?? false;
  const groups = candidates(await currentScreen(call), needle, exactOnly);

  for (const found of groups) {
    const clicked = (await direct(call, found)) ?? (await parent(call, found));
    if (clicked) {
      const { via, depth } = clicked;
      return { ok: true, via, message: `Tapped '${needle}' (${via})`, needle, depth };
    }
  }
  const [best] = groups.flat();
  if (!best) throw new CommandFailure(400, 'no node with that text on the screen');
  const { x, y } = centre(best.node.bounds);
  await stroke(call, { x, y }, { x, y }, 100);
  const via = 'coordinate fallback';
  return { ok: true, via, message: `Tapped '${needle}' at ${x}, ${y}`, needle, x, y };
};
