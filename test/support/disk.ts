import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rm, statfs, writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { onTestFinished, type TestContext } from 'vitest';

/** A small disk of its own, which only the programs that are started `within` it see. */
export interface Disk {
  /** Begins the command line of a program that sees the disk. */
  within: string[];
  /** Leaves no room beside what is on it. Of tmpfs only. */
  fill(): Promise<void>;
  /** Makes room again. Of tmpfs only. */
  free(): Promise<void>;
  /** Reports an error of the file system to the kernel, which makes it read-only under its programs. Of ext4 only. */
  fail(): Promise<void>;
}

/** MiB of which the doctor finds nothing to say. Only what is written takes room on this machine. */
const SIZE = 1024;
const SCRIPTS = {
  tmpfs: `mount -t tmpfs -o size=${SIZE}m,mode=700 tmpfs "$0" && findmnt -no SOURCE "$0" && exec cat`,
  ext4:
    `truncate -s ${SIZE}M "$1" && mkfs.ext4 -q -F -m 0 "$1" && mount -o loop,errors=remount-ro "$1" "$0" && ` +
    'findmnt -no SOURCE "$0" && exec cat',
};

/**
 * Mounts a disk on `path` in a mount namespace of its own, which ends with the test, or with this process however that
 * ends. Skips the test where that is not permitted.
 */
export async function mountDisk(context: TestContext, path: string, kind: keyof typeof SCRIPTS): Promise<Disk> {
  const image = `${path}.img`;
  await mkdir(path, { recursive: true });
  const args = ['-m', '--propagation', 'private', 'sh', '-c', SCRIPTS[kind], path, image];
  const holder = spawn('unshare', args, { stdio: ['pipe', 'pipe', 'pipe'] });
  const closed = once(holder, 'close').catch(() => {});
  onTestFinished(async () => {
    holder.stdin.end();
    await closed;
    await rm(image, { force: true });
  });
  let complaint = '';
  holder.stderr.on('data', (text) => {
    complaint += text;
  });
  const lines = createInterface(holder.stdout);
  const device = await Promise.race([once(lines, 'line').then(([line]) => String(line)), closed.then(() => undefined)]);
  if (device === undefined) {
    process.stderr.write(`SKIPPED: no ${kind} can be mounted here: ${complaint.trim()}\n`);
    context.skip('a real disk needs root and a mount namespace');
  }
  const within = ['nsenter', '-m', '-t', String(holder.pid), '--'];
  const resize = async (size: string) => {
    const [program, ...words] = [...within, 'mount', '-o', `remount,size=${size}`, path];
    await promisify(execFile)(program as string, words);
  };
  return {
    within,
    async fill() {
      // The mounts of another namespace, seen from here.
      const { blocks, bfree, bsize } = await statfs(`/proc/${holder.pid}/root${path}`);
      await resize(String((blocks - bfree) * bsize));
    },
    free: () => resize(`${SIZE}m`),
    async fail() {
      if (!/^\/dev\/loop\d+$/.test(String(device))) throw new Error(`${device} is not a disk of a test`);
      await writeFile(`/sys/fs/ext4/${basename(String(device))}/trigger_fs_error`, 'a test');
    },
  };
}
