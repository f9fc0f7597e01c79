import { closeSync, existsSync, fstatSync, openSync, readFileSync } from 'node:fs';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import type { HostTerminals } from '../../../../lib/host/index.ts';
import { createTerminals } from '../../../../lib/host/node/terminals.ts';
import { garbageCollector } from '../../../support/garbage.ts';
import { TIMED } from '../../../support/limits.ts';
import { temporaryDirectory } from '../../../support/temp.ts';
import { terminalDescriptors } from '../../../support/terminal.ts';

const terminals = createTerminals() as HostTerminals;
const SIZE = { cols: 80, rows: 24 };
const env = { PATH: process.env.PATH ?? '', TERM: 'xterm-256color' };

function open(script: string, { paused = false } = {}) {
  const terminal = terminals.open({ file: '/bin/bash', args: ['-c', script], env, cwd: '/' }, SIZE);
  const chunks: Buffer[] = [];
  if (paused) terminal.pause();
  terminal.onOutput((bytes) => chunks.push(Buffer.from(bytes)));
  let calls = 0;
  const exit = new Promise<number>((resolve) =>
    terminal.onExit((exitCode) => {
      calls++;
      resolve(exitCode);
    }),
  );
  onTestFinished(() => {
    terminal.kill('SIGKILL');
    terminal.close();
  });
  return {
    terminal,
    exit,
    get calls() {
      return calls;
    },
    output: () => Buffer.concat(chunks),
    says: (what: string) => vi.waitFor(() => expect(Buffer.concat(chunks).toString()).toContain(what), { interval: 5 }),
  };
}

const collectGarbage = garbageCollector();

/** Bytes of live objects and buffers. */
function heldMemory(): number {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

function isOpenDescriptor(descriptor: number): boolean {
  try {
    fstatSync(descriptor);
    return true;
  } catch {
    return false;
  }
}

describe('output', () => {
  test('of a program that exits at once is complete before its exit', async () => {
    for (let round = 0; round < 30; round++) {
      const { exit, output } = open('seq 1 2000');
      expect(await exit).toBe(0);
      expect(output().toString().trimEnd().split('\r\n')).toHaveLength(2000);
    }
  });

  test('is complete even if nobody reads while the program runs', async () => {
    const shell = open('printf %3000s end', { paused: true });
    await vi.waitFor(() => expect(existsSync(`/proc/${shell.terminal.pid}`)).toBe(false));
    // Longer than the silence after which a terminal held by another program counts as drained.
    await new Promise((resolve) => setTimeout(resolve, 400));
    expect(shell.calls).toBe(0);
    shell.terminal.resume();
    await shell.exit;
    expect(shell.output()).toHaveLength(3000);
  });

  test('is raw bytes', async () => {
    const { exit, output } = open("stty -opost; printf '\\xff\\x00\\x80\\xe6\\xbc'");
    await exit;
    expect([...output()]).toEqual([0xff, 0, 0x80, 0xe6, 0xbc]);
  });

  test('ends with the program, not with a background job that holds the terminal', async () => {
    const shell = open('(trap "" HUP; sleep 60) & seq 1 1000');
    await shell.exit;
    expect(shell.output().toString().trimEnd().split('\r\n')).toHaveLength(1000);
  });

  test('pauses: the program blocks, and nothing is lost', async () => {
    const shell = open('seq 1 200000; echo done', { paused: true });
    const last = shell.output().length;
    shell.terminal.resume();
    await shell.says('100\r\n');
    shell.terminal.pause();
    expect(shell.output().length).toBeGreaterThan(last);
    shell.terminal.resume();
    await shell.exit;
    const lines = shell.output().toString().trimEnd().split('\r\n');
    expect(lines).toHaveLength(200_001);
    expect(lines.every((line, at) => line === String(at + 1) || line === 'done')).toBe(true);
  });
});

describe('input', () => {
  test('larger than the kernel’s buffer arrives whole', async () => {
    const shell = open('stty raw -echo; echo go; sha256sum <(head -c 1000000)');
    await shell.says('go');
    const bytes = new Uint8Array(1_000_000).map((_, at) => at * 7 + (at >> 8));
    for (let at = 0; at < bytes.length; at += 10_000) shell.terminal.write(bytes.subarray(at, at + 10_000));
    const digest = Buffer.from(await crypto.subtle.digest('SHA-256', bytes)).toString('hex');
    await shell.says(digest);
    expect(shell.terminal.unwritten()).toBe(0);
  });

  test('of single bytes that nobody reads takes little more memory than they have', async () => {
    const shell = open('stty raw -echo; echo go; sleep 60');
    await shell.says('go');
    const keys = 300_000;
    const before = heldMemory();
    for (let at = 0; at < keys; at++) shell.terminal.write(new Uint8Array(1));
    expect(shell.terminal.unwritten()).toBeGreaterThan(keys - 100_000);
    expect(heldMemory() - before).toBeLessThan(10_000_000);
  });

  test('of single bytes arrives whole and in order', async () => {
    const shell = open('stty raw -echo; echo go; sleep 0.2; sha256sum <(head -c 50000)');
    await shell.says('go');
    const bytes = new Uint8Array(50_000).map((_, at) => at * 7 + (at >> 8));
    for (const byte of bytes) shell.terminal.write(Uint8Array.of(byte));
    await shell.says(Buffer.from(await crypto.subtle.digest('SHA-256', bytes)).toString('hex'));
  });

  test('that nobody reads does not keep the relay busy', TIMED, async () => {
    const shell = open('stty raw -echo; echo go; sleep 60');
    await shell.says('go');
    shell.terminal.write(new Uint8Array(1_000_000));
    const before = process.cpuUsage();
    await new Promise((resolve) => setTimeout(resolve, 500));
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / 1000).toBeLessThan(250);
  });
});

describe('end', () => {
  test('of a program that is signalled as soon as it was forked', async () => {
    const shells = Array.from({ length: 50 }, () => {
      const shell = open('sleep 60');
      shell.terminal.kill('SIGHUP');
      return shell.exit;
    });
    expect(new Set(await Promise.all(shells))).toEqual(new Set([129]));
  });

  test.each([
    ['exit 3', 3],
    ['kill -9 $$', 137],
    ['kill -TERM $$', 143],
  ])('%s', async (script, expected) => {
    const shell = open(script);
    expect(await shell.exit).toBe(expected);
    expect(shell.calls).toBe(1);
  });

  test('a signal reaches the foreground program and the leader', async () => {
    const shell = open(
      'set -m; trap "echo leader" TERM; bash -c "trap \'echo child\' TERM; sleep 60 & echo up; wait"; sleep 1',
    );
    await shell.says('up');
    shell.terminal.kill('SIGTERM');
    await shell.says('child');
    await shell.says('leader');
  });

  test('closing frees the descriptor and hangs up', async () => {
    const before = terminalDescriptors();
    const shell = open('echo up; exec sleep 60');
    await shell.says('up');
    expect(terminalDescriptors()).toBe(before + 1);
    shell.terminal.close();
    expect(await shell.exit).toBe(129);
    expect(terminalDescriptors()).toBe(before);
    shell.terminal.write(new Uint8Array(10));
    shell.terminal.resize(SIZE);
    shell.terminal.kill('SIGTERM');
  });

  test('nothing is written to the file that gets the number of a closed descriptor', async () => {
    const other = `${await temporaryDirectory()}/other`;
    // The lowest free number, which the terminal gets, and then the other file.
    const descriptor = openSync('/dev/null', 'r');
    closeSync(descriptor);
    const shell = open('echo up; read');
    await shell.says('up');
    shell.terminal.write(Buffer.from('\r'));
    let opened = -1;
    await new Promise<void>((resolve) => {
      // Looks in each turn of the event loop, between the poll and the `close` events.
      const look = () => {
        if (isOpenDescriptor(descriptor)) return void setImmediate(look);
        resolve();
        opened = openSync(other, 'w');
        if (opened !== descriptor) return;
        shell.terminal.write(Buffer.from('keys'));
        shell.terminal.resize(SIZE);
      };
      look();
    });
    await shell.exit;
    expect(readFileSync(other, 'utf8')).toBe('');
    closeSync(opened);
  });

  test('a program that cannot be started exits', async () => {
    const terminal = terminals.open({ file: '/no/such/program', args: [], env, cwd: '/' }, SIZE);
    const exitCode = await new Promise<number>((resolve) => terminal.onExit(resolve));
    expect(exitCode).not.toBe(0);
    terminal.close();
  });
});

test('the program sees its size, its own session and none of the relay’s descriptors', async () => {
  const shell = open('stty size; ps -o sid= -p $$; ls /proc/$$/fd | tr "\\n" " "; read; stty size; tty');
  await shell.says('24 80');
  shell.terminal.resize({ cols: 100, rows: 30 });
  shell.terminal.write(Buffer.from('\r'));
  await shell.exit;
  const text = shell.output().toString();
  expect(text).toContain('30 100');
  expect(text).toContain(`${shell.terminal.pid}`);
  expect(text).toMatch(/\/dev\/pts\/\d+/);
});
