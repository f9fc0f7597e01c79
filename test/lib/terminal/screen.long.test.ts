import { describe, expect, test, vi } from 'vitest';
import { start } from './support.ts';

describe('a flood', () => {
  test('of colours pauses the program, and resumes it later', async () => {
    const pressure = vi.fn();
    const screen = start(pressure);
    for (let line = 0; line < 40_000; line++)
      screen.write(`\x1b[3${line % 8}mcolour ${line} of many colours\x1b[0m\r\n`);
    expect(pressure.mock.calls).toEqual([[true]]);
    await vi.waitFor(() => expect(pressure.mock.calls).toEqual([[true], [false]]));
    expect((await screen.replay())?.replay).toContain('colour 39999');
    screen.close();
  });
});
