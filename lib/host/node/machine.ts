import { readdir, readFile, realpath, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isMissing } from '../errors.ts';
import type { HostMachine } from '../machine.ts';

export function createMachine(): HostMachine {
  return { runtimeVersion: process.versions.node, space, isReadOnly, descriptors };
}

async function space(path: string): Promise<{ free: number; total: number }> {
  const { bavail, blocks, bsize } = await ofNearestExisting(path, (place) => statfs(place));
  return { free: bavail * bsize, total: blocks * bsize };
}

/** Result of `read` for a path, or for its nearest existing parent. */
async function ofNearestExisting<T>(path: string, read: (place: string) => Promise<T>): Promise<T> {
  for (let place = path; ; place = dirname(place)) {
    try {
      return await read(place);
    } catch (error) {
      if (!isMissing(error) || place === dirname(place)) throw error;
    }
  }
}

async function isReadOnly(path: string): Promise<boolean> {
  try {
    const [place, mounts] = await Promise.all([
      ofNearestExisting(path, (place) => realpath(place)),
      readFile('/proc/self/mountinfo', 'utf8'),
    ]);
    return isReadOnlyIn(mounts, place);
  } catch {
    return false;
  }
}

/**
 * True if `/proc/self/mountinfo` lists the file system of a path as read-only. `access(2)` misses a file system that went
 * read-only after an error: recent kernels keep ext4 mounted for writing, and refuse every write.
 */
export function isReadOnlyIn(mounts: string, path: string): boolean {
  let existing = '';
  let isReadOnly = false;
  for (const row of mounts.split('\n')) {
    const [, , , , name, own, ...rest] = row.split(' ');
    if (name === undefined || own === undefined) continue;
    const point = name.replace(/\\([0-7]{3})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 8)));
    // A later mount on the same point covers the earlier one.
    if (point.length < existing.length || !`${path}/`.startsWith(point === '/' ? point : `${point}/`)) continue;
    existing = point;
    isReadOnly = `${own},${rest.at(-1)}`.split(',').some((option) => option === 'ro' || option === 'emergency_ro');
  }
  return isReadOnly;
}

/** From `/proc`, which only Linux has. */
async function descriptors(pid: number): Promise<{ limit: number; open: number } | null> {
  try {
    const [limits, files] = await Promise.all([readFile(`/proc/${pid}/limits`, 'utf8'), readdir(`/proc/${pid}/fd`)]);
    const [, limit] = /^Max open files\s+(\d+|unlimited)/m.exec(limits) ?? [];
    if (limit === undefined) return null;
    return { limit: limit === 'unlimited' ? Number.POSITIVE_INFINITY : Number(limit), open: files.length };
  } catch {
    return null;
  }
}
