import type { IsForeign } from '../dispatch/link.ts';
import { isNamed } from './identity.ts';
import { refusal } from './refusal.ts';
import { type Device, namesOf } from './registry.ts';
import { isComputerTool } from './tools.ts';

/** Arguments of a tool that select a desktop; never forwarded to it (contract 07 §2.3). */
export const SELECTOR_KEYS = ['device', 'device_id'] as const;

const MAX_SHOWN = 16;

/** The selector among the given values, trimmed. Blank and non-string values count as absent. */
export function readSelector(values: Readonly<Record<string, unknown>>): string | undefined {
  for (const key of SELECTOR_KEYS) {
    const value = Object.hasOwn(values, key) ? values[key] : undefined;
    const text = typeof value === 'string' ? value.trim() : '';
    if (text !== '') return text;
  }
  return undefined;
}

/**
 * The devices that a selector matches; all of them without one. A name that is the id of one device never selects
 * another device with that name.
 */
export const named = (devices: readonly Device[], selector: string | undefined, isForeign: IsForeign): Device[] =>
  devices.filter(
    (device) =>
      selector === undefined ||
      (isNamed(namesOf(device), selector) &&
        (device.id === selector || !isForeign(selector, device.link.session.family))),
  );

/**
 * True if a desktop can run the tool. A desktop that advertises nothing is assumed to, except for tools of the whole
 * computer.
 */
export const offers = ({ tools }: Device, tool: string): boolean =>
  tools.size > 0 ? tools.has(tool) : !isComputerTool(tool);

function listed(devices: readonly Device[]): string {
  const shown = devices.slice(0, MAX_SHOWN).map(({ name, id }) => `${name} (${id})`);
  return shown.join(', ') + (devices.length > MAX_SHOWN ? ` and ${devices.length - MAX_SHOWN} more` : '');
}

/**
 * Sockets of one session under one device id are one desktop: two programs side by side, or a connection that returned
 * before the relay noticed that the old one is dead.
 */
const isSameDesktop = (a: Device, b: Device): boolean =>
  a.link.session.family === b.link.session.family && a.id === b.id;

/**
 * The one device for a tool, never guessing between desktops. Among one desktop's own sockets, the youngest that offers
 * the tool; sockets that advertise nothing count only if all of them do.
 * @throws RelayError `bad-gateway` with `error_code` `no_desktop`, `unknown_device`, `ambiguous_device` or
 * `tool_not_advertised`.
 */
export function choose(
  devices: readonly Device[],
  { selector, tool, isForeign }: { selector: string | undefined; tool: string; isForeign: IsForeign },
): Device {
  if (devices.length === 0)
    throw refusal('bad-gateway', 'no_desktop', 'No desktop connected: start the desktop client');
  const shown = selector === undefined ? '' : selector.slice(0, 128).toWellFormed();
  const [first, ...others] = named(devices, selector, isForeign);
  if (!first)
    throw refusal('bad-gateway', 'unknown_device', `Unknown desktop: ${shown}. Available: ${listed(devices)}`);
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
    .filter((device) => offers(device, tool))
    .sort((a, b) => b.connectedAt - a.connectedAt);
  if (!best) throw refusal('bad-gateway', 'tool_not_advertised', `${first.name} does not offer ${tool}`);
  return best;
}
