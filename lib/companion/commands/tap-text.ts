import { type Call, CommandFailure, type Handler } from '../gates/gate.ts';
import { centre, type Listed } from '../tree.ts';
import { flag, required } from './args.ts';
import { currentScreen } from './nodes.ts';
import { stroke } from './touch.ts';

const labels = ({ text, description }: Listed): string[] =>
  [text, description].flatMap((label) => (label === null ? [] : [label.trim().toLowerCase()]));

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
  const wanted = needle.trim().toLowerCase();
  const { listed } = await currentScreen(call);
  const exact = listed.filter((node) => labels(node).includes(wanted));
  const partial = exactOnly ? [] : listed.filter((node) => labels(node).some((label) => label.includes(wanted)));

  for (const found of [exact, partial]) {
    const clicked = (await direct(call, found)) ?? (await parent(call, found));
    if (clicked) {
      const { via, depth } = clicked;
      return { ok: true, via, message: `Tapped '${needle}' (${via})`, needle, depth };
    }
  }
  const best = exact[0] ?? partial[0];
  if (!best) throw new CommandFailure(400, 'no node with that text on the screen');
  const { x, y } = centre(best.node.bounds);
  await stroke(call, { x, y }, { x, y }, 100);
  const via = 'coordinate fallback';
  return { ok: true, via, message: `Tapped '${needle}' at ${x}, ${y}`, needle, x, y };
};
