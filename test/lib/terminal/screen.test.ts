import { describe, expect, test, vi } from 'vitest';
import type { Replay } from '../../../lib/terminal/screen.ts';
import { TIMED } from '../../support/limits.ts';
import { createScreen as createReference } from '../../support/terminal.ts';
import { SIZE, start } from './support.ts';

/** Screen of a terminal after it received the text, in the form of a replay. */
async function shown(text: string, { cols, rows } = SIZE): Promise<string> {
  const reference = createReference(cols, rows);
  reference.write(text);
  return reference.all();
}

describe('replay', () => {
  test.each([
    ['text and colours', 'plain \x1b[1;31mred\x1b[0m \x1b[48;2;1;2;3mtrue\x1b[0m\r\n漢字 e\u0301 🎈\r\n$ '],
    ['a cursor in the middle', 'a\r\nb\r\nc\x1b[1;2H'],
    ['the other screen', 'before\r\n\x1b[?1049h\x1b[Hfull screen\x1b[10;5Hhere'],
    ['modes', '\x1b[?1h\x1b=\x1b[?2004h\x1b[?1002h\x1b[?1006hx'],
    ['long lines', 'x'.repeat(500)],
    ['more than the screen', Array.from({ length: 400 }, (_, line) => `line ${line}\r\n`).join('')],
  ])('restores %s', async (_, text) => {
    const screen = start();
    screen.write(text);
    const { replay } = (await screen.replay()) as Replay;
    expect(await shown(replay)).toBe(await shown(text));
    screen.close();
  });

  test('redraws a terminal in any state', async () => {
    const screen = start();
    screen.write('one\r\n\x1b[32mtwo\x1b[0m\r\n$ ');
    const { redraw } = (await screen.replay()) as Replay;
    const mess = createReference(SIZE.cols, SIZE.rows);
    mess.write('left over\r\n\x1b[?1049h\x1b[?1h\x1b[?1002h\x1b[?2004h\x1b[?25l\x1b[4h\x1b[5;9r\x1b[?6h\x1b[41mmess');
    mess.write(redraw);
    const wanted = createReference(SIZE.cols, SIZE.rows);
    wanted.write('one\r\n\x1b[32mtwo\x1b[0m\r\n$ ');
    expect(await mess.all(0)).toBe(await wanted.all(0));
    expect(await mess.cursor()).toEqual(await wanted.cursor());
    expect(mess.terminal.modes).toEqual(wanted.terminal.modes);
    screen.close();
  });

  test('restores state that the serializer leaves out', async () => {
    const screen = start();
    screen.write('\x1b]0;a title\x07\x1b[?25l\x1b[?1006h\x1b[4 q\x1b[3;10r\x1b[5;7Hx');
    const { replay } = (await screen.replay()) as Replay;
    for (const part of ['\x1b]0;a title\x07', '\x1b[?25l', '\x1b[?1006h', '\x1b[4 q', '\x1b[3;10r\x1b[5;8H']) {
      expect(replay).toContain(part);
    }
    screen.write('\x1bc');
    expect((await screen.replay())?.replay).not.toMatch(/\?25|1006|4 q|;10r/);
    screen.close();
  });

  test('is at most 65,536 characters long, with fewer lines if needed', async () => {
    const screen = start();
    const colourful = Array.from({ length: 40 }, (_, at) => `\x1b[38;2;${at};1;2mx`).join('');
    for (let line = 0; line < 300; line++) screen.write(`${colourful}\r\n`);
    const { replay } = (await screen.replay()) as Replay;
    expect(replay.length).toBeLessThanOrEqual(65_536);
    expect(replay.length).toBeGreaterThan(10_000);
    screen.close();
  });

  test('has the last size, applied in order with the text', async () => {
    const screen = start();
    screen.write('x'.repeat(100));
    screen.resize({ cols: 100, rows: 10 });
    screen.write('\x1b[10;100HE');
    const { replay } = (await screen.replay()) as Replay;
    expect(await shown(replay, { cols: 100, rows: 10 })).toContain('E');
    screen.close();
  });
});

describe('a flood', () => {
  test('of plain lines is not parsed, and causes no pressure', TIMED, async () => {
    const pressure = vi.fn();
    const screen = start(pressure);
    const lines = Array.from({ length: 1000 }, (_, line) => `${line}\r\n`).join('');
    const began = performance.now();
    for (let part = 0; part < 10_000; part++) screen.write(lines);
    expect(performance.now() - began).toBeLessThan(5_000);
    expect(pressure).not.toHaveBeenCalled();
    expect(await shown((await screen.replay())?.replay ?? '')).toBe(await shown(lines));
    screen.close();
  });

  test('does not pause a program whose screen has been closed', () => {
    const pressure = vi.fn();
    const screen = start(pressure);
    for (let line = 0; line < 80_000; line++) screen.write(`\x1b[3${line % 8}mcolour ${line}\x1b[0m\r\n`);
    screen.close();
    expect(pressure.mock.calls).toEqual([[true], [false]]);
  });
});
