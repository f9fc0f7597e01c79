import { readdir, readFile, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errnoOf } from '../errors.ts';
import type { HostMachine } from '../machine.ts';

export function createMachine(): HostMachine {
  return { runtimeVersion: process.versions.node, space, descriptors };
}

async function space(path: string): Promise<{ free: number; total: number }> {
  for (let place = path; ; place = dirname(place)) {
    try {
      const { bavail, blocks, bsize } = await statfs(place);
      return { free: bavail * bsize, total: blocks * bsize };
    } catch (error) {
      if (!['ENOENT', 'ENOTDIR'].includes(errnoOf(error)) || place === dirname(place)) throw error;
    }
  }
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
