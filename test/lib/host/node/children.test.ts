import { chmod } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import type { Child, Exit } from '../../../../lib/host/index.ts';
import { createChildren } from '../../../../lib/host/node/children.ts';
import { TIMEOUT } from '../../../support/limits.ts';
import { isRunning, untilGone } from '../../../support/running.ts';
import { temporaryDirectory } from '../../../support/temp.ts';

const children = createChildren();
const PATH = process.env.PATH ?? '';
const command = (program: string, ...args: string[]) => ({
  file: process.execPath,
  args: ['-e', program, ...args],
  env: { PATH },
  cwd: '/',
});

/** Starts a program; `ended` resolves with all of its output. */
async function start(program: string, ...args: string[]) {
  const child = await children.spawn(command(program, ...args));
  const output = { stdout: '', stderr: '' };
  let bytes = 0;
  child.onStdout((chunk) => {
    bytes += chunk.length;
    if (output.stdout.length < 10_000) output.stdout += Buffer.from(chunk);
  });
  child.onStderr((chunk) => {
    output.stderr += Buffer.from(chunk);
  });
  const ended = new Promise<Exit>((resolve) => child.onExit(resolve));
  return { child, output, ended, received: () => bytes };
}

const firstLine = (output: { stdout: string }) => vi.waitUntil(() => output.stdout.split('\n')[0]);
const write = (child: Child, text: string, lost = () => {}) => child.write(Buffer.from(text), lost);

it('finds executable programs by name and by path', async () => {
  const directory = await temporaryDirectory({ 'bin/yes-it-is': '#!/bin/sh\n', 'bin/no': '', 'bin/folder/x': '' });
  const bin = join(directory, 'bin');
  await chmod(join(bin, 'yes-it-is'), 0o755);
  const { find } = createChildren({ PATH: `:relative:/nowhere:${bin}` });
  expect(await find('yes-it-is')).toBe(join(bin, 'yes-it-is'));
  expect(await find(join(bin, 'yes-it-is'))).toBe(join(bin, 'yes-it-is'));
  for (const name of ['no', 'folder', 'missing', '', 'bin/yes-it-is', join(bin, 'no'), bin]) {
    expect(await find(name), name).toBeNull();
  }
  expect(await createChildren({}).find('sh')).toBeNull();
});

it('runs a command to its end and never throws', async () => {
  expect(await children.run(command('console.log(process.argv[1])', '$HOME `id`; "'), TIMEOUT)).toEqual({
    code: 0,
    stdout: '$HOME `id`; "\n',
    stderr: '',
  });
  const failed = await children.run(command('console.error("no"); process.exit(7)'), TIMEOUT);
  expect(failed).toEqual({ code: 7, stdout: '', stderr: 'no\n' });
  const absent = await children.run({ ...command(''), file: '/nowhere/at-all' }, TIMEOUT);
  expect(absent).toEqual({ code: null, stdout: '', stderr: '' });
  expect((await children.run({ ...command(''), args: ['nul\0'] }, TIMEOUT)).code).toBeNull();
  expect((await children.run(command('setInterval(() => {}, 1000)'), 100)).code).toBeNull();
  expect((await children.run(command('process.stdin.resume()'), TIMEOUT)).code).toBe(0);
});

it('rejects with a code when a program cannot be started', async () => {
  await expect(children.spawn({ ...command(''), file: '/nowhere/at-all' })).rejects.toMatchObject({ code: 'ENOENT' });
  await expect(children.spawn({ ...command(''), cwd: '/nowhere' })).rejects.toMatchObject({ code: 'ENOENT' });
  await expect(children.spawn({ ...command(''), file: '/etc/passwd' })).rejects.toMatchObject({ code: 'EACCES' });
  await expect(children.spawn({ ...command(''), args: ['nul\0'] })).rejects.toThrow();
});

it('passes bytes both ways and reports code and signal', async () => {
  const { child, output, ended } = await start(
    `process.stdin.pipe(process.stdout); process.stdin.on('end', () => { console.error('over'); process.exitCode = 5 })`,
  );
  write(child, 'one ');
  write(child, 'two');
  child.closeStdin();
  expect(await ended).toEqual({ code: 5, signal: null });
  expect(output).toEqual({ stdout: 'one two', stderr: 'over\n' });
  expect(child.unwritten()).toBe(0);

  const killed = await start(`process.kill(process.pid, 'SIGUSR1'); process.kill(process.pid, 'SIGABRT')`);
  expect(await killed.ended).toEqual({ code: null, signal: 'SIGABRT' });
});

it('delivers all output before the exit, even if it was paused when the process exited', async () => {
  const { child, received, ended } = await start(`process.stdout.write('x'.repeat(60000), () => process.exit(0))`);
  child.pause();
  let over = false;
  void ended.then(() => {
    over = true;
  });
  await untilGone(child.pid);
  expect(received()).toBe(0);
  expect(over).toBe(false);
  child.resume();
  expect(await ended).toEqual({ code: 0, signal: null });
  expect(received()).toBe(60_000);
});

it('a paused child blocks in its write', async () => {
  const { child, output, received, ended } = await start(
    `const { writeSync } = require('fs'); const data = Buffer.alloc(65536, 120);
     for (let n = 0; n < 512; n++) { process.stderr.write('.'); let at = 0;
       while (at < data.length) try { at += writeSync(1, data, at) } catch (e) { if (e.code !== 'EAGAIN') throw e } }`,
  );
  child.pause();
  // The buffers of kernel and stream hold less than a tenth of it.
  await vi.waitFor(() => expect(output.stderr.length).toBeGreaterThan(1));
  expect(received()).toBeLessThan(4 * 1024 * 1024);
  expect(output.stderr.length).toBeLessThan(50);
  child.resume();
  await ended;
  expect(received()).toBe(512 * 65_536);
});

it('counts the memory of many short writes that wait for stdin', async () => {
  const { child, output } = await start(`process.stdin.pause(); console.log('up'); setInterval(() => {}, 1000)`);
  await firstLine(output);
  write(child, 'x'.repeat(1024 * 1024));
  const before = child.unwritten();
  for (let n = 0; n < 1000; n++) write(child, 'x');
  expect(child.unwritten() - before).toBeGreaterThan(100_000);
  child.kill('SIGKILL');
});

it('counts bytes waiting for stdin, and reports lost ones', async () => {
  const { child, output, ended } = await start(
    `process.stdin.pause(); console.log('up'); process.on('SIGHUP', () => process.exit()); setInterval(() => {}, 1000)`,
  );
  await firstLine(output);
  const lost = vi.fn();
  child.write(Buffer.alloc(8 * 1024 * 1024), lost);
  expect(child.unwritten()).toBeGreaterThan(7 * 1024 * 1024);
  expect(lost).not.toHaveBeenCalled();
  child.kill('SIGHUP');
  await ended;
  await vi.waitFor(() => expect(lost).toHaveBeenCalledTimes(1));
  write(child, 'too late', lost);
  await vi.waitFor(() => expect(lost).toHaveBeenCalledTimes(2));
  child.closeStdin();
  child.kill('SIGKILL');
});

it('tolerates a child that closes its input', async () => {
  const { child, output, ended } = await start(
    `require('fs').closeSync(0); process.on('SIGTERM', () => process.exit(9)); console.log('up'); setInterval(() => {}, 1000)`,
  );
  await firstLine(output);
  const lost = vi.fn();
  write(child, 'anybody?', lost);
  await vi.waitFor(() => expect(lost).toHaveBeenCalledTimes(1));
  child.kill('SIGTERM');
  expect(await ended).toEqual({ code: 9, signal: null });
});

it('signals the whole process group', async () => {
  const { child, output, ended } = await start(
    `const { spawn } = require('child_process');
     const c = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'inherit' });
     console.log(c.pid); setInterval(() => {}, 1000)`,
  );
  const grandchild = Number(await firstLine(output));
  expect(await isRunning(grandchild)).toBe(true);
  child.kill('SIGTERM');
  expect(await ended).toEqual({ code: null, signal: 'SIGTERM' });
  await untilGone(grandchild);
});

it('ends the rest of a child’s group, even if it ignores SIGTERM and holds the pipes', async () => {
  const { output, ended } = await start(
    `const { spawn } = require('child_process');
     const stubborn = "process.on('SIGTERM', () => {}); console.log(process.pid); setInterval(() => {}, 1000)";
     spawn(process.execPath, ['-e', stubborn], { stdio: 'inherit' });
     process.stdin.once('data', () => process.exit(4)); `,
  ).then(async (started) => {
    await firstLine(started.output);
    write(started.child, 'go');
    return started;
  });
  expect(await ended).toEqual({ code: 4, signal: null });
  await untilGone(Number(await firstLine(output)));
});

it('reports the exit although a daemon in its own session holds the pipes', async () => {
  const { output, ended } = await start(
    `const { spawn } = require('child_process');
     const daemon = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'inherit', detached: true });
     console.log(daemon.pid); process.exitCode = 6; daemon.unref()`,
  );
  expect(await ended).toEqual({ code: 6, signal: null });
  process.kill(Number(await firstLine(output)), 'SIGKILL');
});
