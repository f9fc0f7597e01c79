import type { Graph } from './graph.ts';
import { rowsOf } from './graph.ts';

const WIDTH = 900;
const MARGIN = 20;
/** Of `lib/`, beside which stand the rooms that it may not import. */
const LIB_WIDTH = 640;
const ROW = 36;
const BOX = 26;
const PER_ROW = 6;

const STYLE = `
    text { font: 13px system-ui, sans-serif; fill: #1f2328; text-anchor: middle; dominant-baseline: central; }
    .name { font-weight: 600; }
    .note { font-size: 11px; fill: #59636e; }
    rect { fill: #ffffff; stroke: #8c959f; rx: 5px; }
    .room { fill: #f6f8fa; stroke: #59636e; }
    .outside { fill: none; stroke-dasharray: 4 3; }
    path { stroke: #59636e; stroke-width: 1.5; fill: none; marker-end: url(#head); }
    .line { marker-end: none; }
    marker path { stroke: none; fill: #59636e; marker-end: none; }
    @media (prefers-color-scheme: dark) {
      svg { background: #0d1117; }
      text { fill: #e6edf3; }
      .note { fill: #9198a1; }
      rect { fill: #0d1117; stroke: #656c76; }
      .room { fill: #161b22; stroke: #9198a1; }
      .outside { fill: none; }
      path { stroke: #9198a1; }
      marker path { fill: #9198a1; }
    }`;

const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

function box(x: number, y: number, width: number, height: number, name = ''): string {
  return `<rect class="${name}" x="${x}" y="${y}" width="${width}" height="${height}"/>`;
}

const text = (x: number, y: number, words: string, name = ''): string =>
  `<text class="${name}" x="${x}" y="${y}">${escaped(words)}</text>`;

/** A room with its name on top and a line on what it is below. */
const room = (x: number, y: number, width: number, height: number, name: string, lines: string[]): string[] => [
  box(x, y, width, height, 'room'),
  text(x + width / 2, y + 18, name, 'name'),
  ...lines.map((line, index) => text(x + width / 2, y + 38 + index * 17, line, 'note')),
];

const arrow = (x1: number, y1: number, x2: number, y2: number): string => `<path d="M${x1} ${y1} L${x2} ${y2}"/>`;

/** A row in as few lines of about the same length as it fits into. */
function inLines(row: string[]): string[][] {
  const count = Math.ceil(row.length / PER_ROW);
  const length = Math.ceil(row.length / count);
  return Array.from({ length: count }, (_, index) => row.slice(index * length, (index + 1) * length));
}

/** The architecture as an SVG: rooms, and the domains of `lib/` in rows that import only from below. */
export function drawRooms(domains: Graph): string {
  const rows = rowsOf(domains).reverse().flatMap(inLines);
  const shapes: string[] = [];
  const clients = ['phone', 'web app, console', 'desktop CLI', 'agent', 'svc commands'];
  const step = (WIDTH - 2 * MARGIN) / clients.length;
  clients.forEach((name, index) => {
    const x = MARGIN + index * step;
    shapes.push(box(x + 6, MARGIN, step - 12, BOX, 'outside'), text(x + step / 2, MARGIN + BOX / 2, name));
  });
  const handlersTop = MARGIN + BOX + 36;
  shapes.push(
    arrow(WIDTH / 2, MARGIN + BOX + 4, WIDTH / 2, handlersTop - 4),
    text(WIDTH / 2 + 110, handlersTop - 20, 'HTTP requests, WebSockets', 'note'),
    ...room(MARGIN, handlersTop, WIDTH - 2 * MARGIN, 66, 'handlers/', [
      'tables of routes, sockets and channels; guards; one file per resource: validates, calls one domain method, answers',
      'web/: the browser code of the pages, which shares only pure code with the relay',
    ]),
  );
  const libTop = handlersTop + 66 + 36;
  const libHeight = 62 + rows.length * ROW;
  shapes.push(
    arrow(MARGIN + LIB_WIDTH / 2, handlersTop + 70, MARGIN + LIB_WIDTH / 2, libTop - 4),
    ...room(MARGIN, libTop, LIB_WIDTH, libHeight, 'lib/', ['a row imports only from rows below it']),
  );
  rows.forEach((row, index) => {
    const width = (LIB_WIDTH - 20) / Math.max(row.length, 3);
    const left = MARGIN + 10 + (LIB_WIDTH - 20 - width * row.length) / 2;
    row.forEach((name, place) => {
      const [x, y] = [left + place * width, libTop + 56 + index * ROW];
      shapes.push(box(x + 4, y, width - 8, BOX), text(x + width / 2, y + BOX / 2, name));
    });
  });
  const side = MARGIN + LIB_WIDTH + 40;
  const sideWidth = WIDTH - MARGIN - side;
  const storageTop = libTop + libHeight - 190;
  const middle = side + sideWidth / 2;
  const labelAt = (libTop + 110 + storageTop) / 2;
  shapes.push(
    ...room(side, libTop, sideWidth, 110, 'cli/', [
      'one file per command;',
      'runtime/ starts the relay:',
      'a Node process at home, or',
      'a Durable Object at the edge',
    ]),
    arrow(side - 4, libTop + 55, MARGIN + LIB_WIDTH + 4, libTop + 55),
    ...room(side, storageTop, sideWidth, 90, 'storage/', [
      'stores by name (unstorage)',
      'over SQLite or the object;',
      'lib/ knows its types only',
    ]),
    ...room(side, storageTop + 100, sideWidth, 90, 'lib/host/node/', [
      'files, processes, terminals,',
      'network: the only code of lib/',
      'that may use node:*',
    ]),
    `<path class="line" d="M${middle} ${libTop + 114} V${labelAt - 12}"/>`,
    text(middle, labelAt, 'hands both to createRelay()', 'note'),
    arrow(middle, labelAt + 12, middle, storageTop - 4),
  );
  const height = libTop + libHeight + MARGIN;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="Rooms of svc-relay and what may import what">
  <style>${STYLE}
  </style>
  <defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 L10 5 L0 10 z"/></marker></defs>
  ${shapes.map((shape) => shape.replace(' class=""', '')).join('\n  ')}
</svg>
`;
}
