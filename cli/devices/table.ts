import { columns, hangingIndent, type Style, visibleWidth, type Writer } from '../output.ts';
import { type Device, duration, grantsLeft } from './rows.ts';

const MAX_NAME = 32;
/** Characters that the last column needs at least; on a narrower terminal every device gets lines of its own. */
const MIN_GRANTS = 24;
const HEAD = ['NAME', 'PLATFORM', 'STATE', 'ROUND TRIP', 'SESSION', 'ENDS', 'GRANTS'];

/**
 * The devices as lines: a table where the terminal is wide enough, else a paragraph per device. Without a terminal
 * every device is one line. `now` is epoch seconds.
 */
export function deviceLines(devices: Device[], now: number, style: Style, { isTTY, columns: wide }: Writer): string[] {
  const rows = devices.map((device) => cellsOf(device, now, style));
  const lines = columns([HEAD, ...rows], '');
  const room = isTTY === true ? wide : undefined;
  const start = lines[0]?.indexOf(HEAD.at(-1) ?? '') ?? 0;
  if (room === undefined) return lines.map((text, at) => (at === 0 ? style.bold(text) : text));
  if (room - start < MIN_GRANTS) return devices.flatMap((device) => paragraph(device, now, style, room));
  return lines.flatMap((text, at) => {
    if (at === 0) return [style.bold(text)];
    const grants = rows[at - 1]?.at(-1) ?? '';
    const [first = '', ...more] = hangingIndent(grants, { indent: start, columns: room });
    return [text.slice(0, text.length - grants.length) + first.trimStart(), ...more];
  });
}

function cellsOf(device: Device, now: number, style: Style): string[] {
  return [
    cut(device.name),
    device.platform,
    stateText(device, style),
    device.roundTrip === null ? '-' : `${Math.round(device.roundTrip)} ms`,
    device.prefix,
    endText(device, now),
    grantsLeft(device, now),
  ];
}

/** `connected 12 min`, `stale 50 s`, `offline 3 h`. Nothing without proof of life is called connected. */
export function stateText({ state, age }: Device, style: Style): string {
  const paint = { connected: style.green, stale: style.yellow, offline: style.dim }[state];
  return `${paint(state)} ${duration(age)}`;
}

const endText = ({ expiresAt }: Device, now: number): string =>
  expiresAt === null ? 'never' : `in ${duration(expiresAt - now)}`;

function paragraph(device: Device, now: number, style: Style, room: number): string[] {
  const { name, platform, prefix, roundTrip } = device;
  const facts = [
    stateText(device, style),
    ...(roundTrip === null ? [] : [`round trip ${Math.round(roundTrip)} ms`]),
    device.expiresAt === null ? 'never ends' : `ends ${endText(device, now)}`,
  ];
  return [
    ...hangingIndent(`${style.bold(cut(name))} (${platform}, ${prefix})`, { indent: 0, columns: room }),
    ...hangingIndent(facts.join(', '), { indent: 2, columns: room }),
    ...hangingIndent(grantsLeft(device, now), { indent: 2, columns: room }),
  ];
}

const cut = (name: string): string => (name.length > MAX_NAME ? `${name.slice(0, MAX_NAME - 1)}…` : name);

/** A line cut to the width of a terminal, so that it does not wrap. Colours take no room. */
export function cutLine(text: string, room: number): string {
  if (visibleWidth(text) <= room) return text;
  let left = Math.max(0, room - 1);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the escape sequences of `createStyle`
  const parts = text.split(/(\u001b\[\d+m)/);
  return parts
    .map((part, at) => {
      if (at % 2 === 1) return part;
      const visible = part.slice(0, left);
      left -= visible.length;
      return visible;
    })
    .join('')
    .concat('…');
}
