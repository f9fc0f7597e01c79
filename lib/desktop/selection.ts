import { isNamed } from './identity.ts';
import { refusal } from './refusal.ts';
import { namesOf, type Target } from './targets.ts';
import { isComputerTool } from './tools.ts';

/** What names a desktop among the arguments of a tool; never forwarded to it (contract 07 §2.3). */
export const SELECTOR_KEYS = ['device', 'device_id'] as const;

const MAX_SHOWN = 16;

/** The selector among the given values, trimmed. An empty one and one that is no text count as none. */
export function readSelector(values: Readonly<Record<string, unknown>>): string | undefined {
  for (const key of SELECTOR_KEYS) {
    const value = Object.hasOwn(values, key) ? values[key] : undefined;
    const text = typeof value === 'string' ? value.trim() : '';
    if (text !== '') return text;
  }
  return undefined;
}

/** The targets that a selector stands for; all of them without one. */
export const named = (targets: readonly Target[], selector: string | undefined): Target[] =>
  targets.filter((target) => selector === undefined || isNamed(namesOf(target), selector));

/** Whether a desktop can be asked for the tool. One that advertises nothing may be, but for the whole computer. */
export const offers = ({ tools }: Target, tool: string): boolean =>
  tools.size > 0 ? tools.has(tool) : !isComputerTool(tool);

function listed(targets: readonly Target[]): string {
  const shown = targets.slice(0, MAX_SHOWN).map(({ name, id }) => `${name} (${id})`);
  return shown.join(', ') + (targets.length > MAX_SHOWN ? ` and ${targets.length - MAX_SHOWN} more` : '');
}

/**
 * Sockets of one session under one device id are one desktop: a program beside another, or a connection that is back
 * before the relay has noticed that the old one is dead.
 */
const isSameDesktop = (a: Target, b: Target): boolean =>
  a.link.session.family === b.link.session.family && a.id === b.id;

/**
 * The one target for a tool: never a guess between desktops. Of a desktop's own sockets the youngest that offers
 * the tool; those that advertise nothing count only where all do.
 * @throws RelayError `bad-gateway` with `error_code` `no_desktop`, `unknown_device`, `ambiguous_device` or
 * `tool_not_advertised`.
 */
export function choose(targets: readonly Target[], selector: string | undefined, tool: string): Target {
  if (targets.length === 0)
    throw refusal('bad-gateway', 'no_desktop', 'No desktop connected: start the desktop client');
  const shown = selector === undefined ? '' : selector.slice(0, 128).toWellFormed();
  const [first, ...others] = named(targets, selector);
  if (!first)
    throw refusal('bad-gateway', 'unknown_device', `Unknown desktop: ${shown}. Available: ${listed(targets)}`);
  if (!others.every((other) => isSameDesktop(first, other))) {
    const which = listed([first, ...others]);
    throw refusal(
      'bad-gateway',
      'ambiguous_device',
      selector === undefined
        ? `Several desktops are connected: name one with device or device_id: ${which}`
        : `Ambiguous desktop: ${shown}. It names: ${which}`,
    );
  }
  const own = [first, ...others];
  const advertising = own.filter(({ tools }) => tools.size > 0);
  const [best] = (advertising.length > 0 ? advertising : own)
    .filter((target) => offers(target, tool))
    .sort((a, b) => b.connectedAt - a.connectedAt);
  if (!best) throw refusal('bad-gateway', 'tool_not_advertised', `${first.name} does not offer ${tool}`);
  return best;
}
