import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { type BuiltOptions, startBuiltTarget } from './built-relay.ts';
import { mediaDevice } from './media.ts';
import { temporaryDirectory } from './temp.ts';

/** A relay with its own temporary directory, and a directory outside every root. */
export async function setup(env: Record<string, string> = {}, more: BuiltOptions = {}) {
  const relay = await startBuiltTarget({
    env,
    hostEnv: (home) => ({ PATH: process.env.PATH ?? '', HOME: home, TMPDIR: join(home, 'tmp') }),
    ...more,
  });
  onTestFinished(() => relay.stop());
  const [tmp, workspace] = [join(relay.agentHome, 'tmp'), join(relay.agentHome, 'workspace')];
  await Promise.all([mkdir(tmp), mkdir(workspace)]);
  const outside = await temporaryDirectory({ 'a.txt': 'outside' });
  const device = await mediaDevice(relay);
  const byPath = (path: string, more = '') => device.get(`/media/by-path?path=${encodeURIComponent(path)}${more}`);
  return { relay, device, tmp, workspace, outside, byPath };
}
