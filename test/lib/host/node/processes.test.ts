import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { hasEnded, parseStat } from '../../../../lib/host/node/proc-stat.ts';
import { createProcesses } from '../../../../lib/host/node/processes.ts';

const processes = createProcesses();

describe('exists', () => {
  it('finds this process, and no longer one that has exited', async () => {
    expect(processes.exists(process.pid)).toBe(true);
    const child = spawn(process.execPath, ['-e', ''], { stdio: 'ignore' });
    await once(child, 'exit');
    expect(processes.exists(child.pid ?? 0)).toBe(false);
  });

  it('counts a process of another user, and sends signal 0 only', () => {
    const kill = vi.spyOn(process, 'kill').mockImplementation(() => {
      throw Object.assign(new Error('kill EPERM'), { code: 'EPERM' });
    });
    expect(processes.exists(4321)).toBe(true);
    expect(kill.mock.calls).toEqual([[4321, 0]]);
    kill.mockRestore();
  });

  it('never addresses a process group', () => {
    const kill = vi.spyOn(process, 'kill');
    for (const pid of [0, -1, -process.pid, 1.5, Number.NaN, 2 ** 31, 2 ** 53])
      expect(processes.exists(pid)).toBe(false);
    expect(kill).not.toHaveBeenCalled();
    kill.mockRestore();
  });
});

describe('facts', () => {
  it('returns start time and command of a process, or null', async () => {
    const facts = await processes.facts(process.pid);
    expect(facts?.startTime).toBe(parseStat(await readFile('/proc/self/stat', 'utf8'))?.startTime);
    expect(facts?.command).toContain('node');
    expect(await processes.facts(2 ** 31 - 1)).toBeNull();
    expect(await processes.facts(-1)).toBeNull();
  });

  it('reads the fields whatever the command name contains', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 15 }), fc.nat(), (name, startTime) => {
        const rest = Array.from({ length: 40 }, (_, index) => (index === 18 ? startTime : index));
        expect(parseStat(`42 (${name}) S ${rest.join(' ')}\n`)).toEqual({
          name,
          state: 'S',
          parent: 0,
          session: 2,
          foreground: 4,
          threads: 16,
          startTime,
        });
      }),
    );
  });

  it.each([
    ['Z', 1, true],
    ['X', 0, true],
    ['Z', 2, false],
    ['S', 1, false],
  ])('in state %s with %i threads, a process has ended: %s', (state, threads, ended) => {
    expect(hasEnded({ name: 'node', state, parent: 1, session: 2, foreground: -1, threads, startTime: 3 })).toBe(ended);
  });

  it('rejects malformed lines', () => {
    fc.assert(fc.property(fc.string(), (line) => void parseStat(line)));
    for (const line of ['', '1 (x', '1 (x) S 1 2', ')(']) expect(parseStat(line)).toBeNull();
  });
});
