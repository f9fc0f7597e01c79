/**
 * Makes the pictures of README.md: `npm run pictures`. Needs a build, Debian's chromium, and util-linux and iproute2 for
 * a network of its own, so that no picture shows an address of this machine.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pty from '@lydell/node-pty';
import xterm from '@xterm/headless';
import { chromium } from 'playwright-core';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PROGRAM = join(ROOT, 'dist/cli/svc.js');
const FOLDER = join(ROOT, 'cli/pictures');

const RELAY = 'http://127.0.0.1:8767';
/** The address of this machine in that network. */
const ADDRESS = '192.168.1.20';

/** Bytes of a picture, at most. */
const MAX_SIZE = 80 * 1024;
/** Milliseconds to wait for what a screen should show. Only a failure takes that long. */
const TIMEOUT = 30_000;

/** Pixels of a cell, and of the frame around the screen. */
const CELL = { width: 8, height: 17 };
const FRAME = 12;
const COLOURS = ['#0d1117', '#ff7b72', '#7ee787', '#f2cc60', '#79c0ff', '#d2a8ff', '#76e3ea', '#c9d1d9'];
const BRIGHT = ['#8b949e', '#ffa198', '#a5f0b0', '#ffe082', '#a5d6ff', '#e2c5ff', '#b3f0ff', '#ffffff'];
const [BACKGROUND, FOREGROUND] = [COLOURS[0], COLOURS[7]];

const INSIDE = 'SVC_PICTURES_NETWORK';
if (process.env[INSIDE] === undefined) process.exit(await again());

const home = await mkdtemp(join(tmpdir(), 'svc-pictures-'));
/** Nothing of this machine. The agent is left out: none runs here. */
const env = {
  PATH: process.env.PATH,
  HOME: home,
  SVC_HOME: home,
  TERM: 'xterm-256color',
  LANG: 'C.UTF-8',
  TZ: 'UTC',
  API_SERVER_ENABLED: '0',
};
const running = [];
try {
  running.push(spawn(process.execPath, [PROGRAM, 'relay', 'start'], { env, stdio: 'ignore' }));
  await until('the relay', async () => (await fetch(`${RELAY}/health`)).ok);
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
  try {
    await mkdir(FOLDER, { recursive: true });
    await save(browser, 'pairing', await pairing());
    await save(browser, 'companion', await companion());
  } finally {
    await browser.close();
  }
} finally {
  for (const child of running.reverse()) child.kill();
  await Promise.all(running.map((child) => (child.exitCode === null && child.once ? once(child, 'exit') : undefined)));
  await rm(home, { recursive: true, force: true });
}

/** `svc pair`, waiting for a device. */
async function pairing() {
  const terminal = open(80, 54, ['pair']);
  await terminal.shows(/Waiting for a device/);
  return terminal;
}

/** `svc companion run`, with the phone's screen and a question about what a tool wants to tap. */
async function companion() {
  const link = await output(['pair']);
  await output(['companion', 'pair', /svc-relay:\S+/.exec(link)[0]]);
  const token = (await output(['pair', '--token', '--name', 'agent'])).trim();
  const terminal = open(80, 24, ['companion', 'run', '--master', 'on', '--grant', 'all']);
  await terminal.shows(/online: /);
  const call = async (path, body) => {
    const headers = { authorization: `Bearer ${token}` };
    return fetch(RELAY + path, { method: 'POST', headers, body: JSON.stringify(body) });
  };
  await call('/open_app', { package: 'org.example.shop' });
  await call('/tap_text', { text: 'Kettle' });
  terminal.type('v');
  await terminal.shows(/Buy now/);
  // Answered by nobody.
  call('/tap_text', { text: 'Buy now' }).catch(() => {});
  await terminal.shows(/y allow/);
  return terminal;
}

/** A program of this checkout in a terminal of its own. */
function open(cols, rows, words) {
  const screen = new xterm.Terminal({ cols, rows, allowProposedApi: true });
  const child = pty.spawn(process.execPath, [PROGRAM, ...words], { cols, rows, env, cwd: home });
  running.push(child);
  child.onData((data) => screen.write(data));
  const line = (y) => screen.buffer.active.getLine(screen.buffer.active.viewportY + y);
  const text = () => Array.from({ length: rows }, (_, y) => line(y).translateToString(true)).join('\n');
  return {
    cols,
    rows,
    line,
    text,
    type: (keys) => child.write(keys),
    shows: (pattern) => until(String(pattern), () => pattern.test(text()), text),
  };
}

async function save(browser, name, terminal) {
  const svg = draw(terminal);
  const page = await browser.newPage({ deviceScaleFactor: 1.25 });
  await page.setContent(`<body style="margin:0">${svg}</body>`);
  const png = await page.locator('svg').screenshot({ type: 'png' });
  await page.close();
  if (png.length > MAX_SIZE) throw new Error(`${name}.png has ${png.length} bytes, more than ${MAX_SIZE}`);
  if (terminal.text().includes(home)) throw new Error(`${name}.png shows a path of this machine`);
  await writeFile(join(FOLDER, `${name}.png`), png);
  process.stdout.write(`cli/pictures/${name}.png: ${png.length} bytes\n`);
}

/** The screen as an SVG: a cell at a time, and half blocks as rectangles, so that a QR code has no gaps. */
function draw({ cols, line, text }) {
  const used = text().trimEnd().split('\n').length;
  const [width, height] = [cols * CELL.width + 2 * FRAME, used * CELL.height + 2 * FRAME];
  const shapes = [];
  for (let y = 0; y < used; y++) {
    for (let x = 0; x < cols; x++) {
      const cell = line(y).getCell(x);
      const [left, top] = [FRAME + x * CELL.width, FRAME + y * CELL.height];
      const box = (from, to, fill) =>
        `<rect x="${left}" y="${top + from}" width="${CELL.width}" height="${to - from}" fill="${fill}"/>`;
      const inverse = cell.isInverse() !== 0;
      const [front, back] = [colour(cell, 'Fg') ?? FOREGROUND, colour(cell, 'Bg') ?? BACKGROUND];
      const [ink, paper] = inverse ? [back, front] : [front, back];
      if (paper !== BACKGROUND) shapes.push(box(0, CELL.height, paper));
      const half = CELL.height / 2;
      const char = cell.getChars();
      if (char === '█') shapes.push(box(0, CELL.height, ink));
      else if (char === '▀') shapes.push(box(0, half, ink));
      else if (char === '▄') shapes.push(box(half, CELL.height, ink));
      else if (char.trim() !== '') {
        const style = `${cell.isBold() ? ' font-weight="bold"' : ''}${cell.isDim() ? ' opacity="0.6"' : ''}`;
        shapes.push(`<text x="${left}" y="${top + 13}" fill="${ink}"${style}>${escaped(char)}</text>`);
      }
    }
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" shape-rendering="crispEdges"
    font-family="DejaVu Sans Mono, Liberation Mono, monospace" font-size="13"
    ><rect width="${width}" height="${height}" rx="8" fill="${BACKGROUND}"/>${shapes.join('')}</svg>`;
}

/** A colour of a cell's front or back; undefined for the default one. */
function colour(cell, side) {
  if (cell[`is${side}Default`]()) return undefined;
  const code = cell[`get${side}Color`]();
  if (cell[`is${side}RGB`]()) return `#${code.toString(16).padStart(6, '0')}`;
  return code < 8 ? COLOURS[code] : BRIGHT[code - 8];
}

function escaped(text) {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}

/** Output of a command on stdout. */
async function output(words) {
  const child = spawn(process.execPath, [PROGRAM, ...words], { env, stdio: ['ignore', 'pipe', 'ignore'] });
  let printed = '';
  child.stdout.setEncoding('utf8').on('data', (text) => {
    printed += text;
  });
  const [code] = await once(child, 'close');
  if (code !== 0) throw new Error(`svc ${words.slice(0, 2).join(' ')} ended with ${code}`);
  return printed;
}

async function until(what, look, show) {
  for (const end = Date.now() + TIMEOUT; Date.now() < end; ) {
    try {
      if (await look()) return;
    } catch {
      // Not there yet.
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${what} did not appear${show ? `:\n${show()}` : ''}`);
}

/** Runs this script in a network with one address, and returns its exit code. */
async function again() {
  const script = `ip link set lo up && ip link add lan type veth peer name wall && ip address add ${ADDRESS}/24 dev lan &&
    ip link set wall up && ip link set lan up && ip route add default dev lan && exec "$@"`;
  const words = ['--user', '--map-root-user', '--net', 'sh', '-c', script, 'sh', ...process.argv];
  const child = spawn('unshare', words, { stdio: 'inherit', env: { ...process.env, [INSIDE]: '1' } });
  const [code] = await once(child, 'exit');
  return code ?? 1;
}
