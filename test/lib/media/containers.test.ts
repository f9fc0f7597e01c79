import { mkdir, symlink } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../../lib/config.ts';
import { containerMounts, translate } from '../../../lib/media/containers.ts';
import { createTestHost } from '../../support/host.ts';
import { temporaryDirectory } from '../../support/temp.ts';

async function setup(env: Record<string, string> = {}) {
  const root = await temporaryDirectory();
  const host = createTestHost({ agentHome: `${root}/agent`, env: { HOME: root } });
  const { config } = readConfig({ TERMINAL_ENV: 'Docker', ...env }, { home: root, agentHome: `${root}/agent` });
  for (const name of ['cache/images', 'images', 'sandboxes/docker/default/workspace']) {
    await mkdir(`${root}/agent/${name}`, { recursive: true });
  }
  const mounts = () => containerMounts(host, config);
  return { root, host, mounts, map: async (path: string) => translate(path, await mounts(), host) };
}

describe('paths of an agent in a container (contract 04 §4)', () => {
  it('maps volumes, existing caches, workspace and home', async () => {
    const volumes = JSON.stringify(['/data:/mnt/data:ro', '~/films:/films', 'relative:/x', 7, 'C:/win:/win', '/no']);
    const { root, mounts } = await setup({ TERMINAL_DOCKER_VOLUMES: volumes });
    expect(await mounts()).toEqual([
      { host: '/data', container: '/mnt/data' },
      { host: `${root}/films`, container: '/films' },
      { host: `${root}/agent/cache/images`, container: '/root/.svc/cache/images' },
      { host: `${root}/agent/images`, container: '/root/.svc/images' },
      { host: `${root}/agent/sandboxes/docker/default/workspace`, container: '/workspace' },
      { host: `${root}/agent/sandboxes/docker/default/home`, container: '/root' },
    ]);
  });

  it('maps nothing without docker, no volumes from malformed JSON, and no workspace that is not persistent', async () => {
    expect(await (await setup({ TERMINAL_ENV: 'local' })).mounts()).toEqual([]);
    const { mounts } = await setup({ TERMINAL_DOCKER_VOLUMES: '[', TERMINAL_CONTAINER_PERSISTENT: 'false' });
    expect((await mounts()).map(({ container }) => container)).toEqual([
      '/root/.svc/cache/images',
      '/root/.svc/images',
    ]);
  });

  it('maps the current directory or the configured sandbox as the workspace', async () => {
    const cwd = await setup({ TERMINAL_DOCKER_MOUNT_CWD_TO_WORKSPACE: 'true', TERMINAL_CWD: '/project' });
    expect(await cwd.mounts()).toContainEqual({ host: '/project', container: '/workspace' });
    const own = await setup({ TERMINAL_DOCKER_MOUNT_CWD_TO_WORKSPACE: '1' });
    expect(await own.mounts()).toContainEqual({ host: process.cwd(), container: '/workspace' });
    const sandbox = await setup({ TERMINAL_SANDBOX_DIR: '/boxes' });
    expect(await sandbox.mounts()).toContainEqual({ host: '/boxes/docker/default/home', container: '/root' });
    const mounted = await setup({ TERMINAL_DOCKER_VOLUMES: '["/w:/workspace"]' });
    expect((await mounted.mounts()).filter(({ container }) => container === '/workspace')).toEqual([
      { host: '/w', container: '/workspace' },
    ]);
  });

  it('uses the longest mount, and rejects a rest of the path that is odd or leaves it', async () => {
    const { root, map } = await setup({ TERMINAL_DOCKER_VOLUMES: '["/data:/mnt","/deep:/mnt/deep/er"]' });
    const sandbox = `${root}/agent/sandboxes/docker/default`;
    await symlink('/etc', `${sandbox}/workspace/link`);
    for (const [path, expected] of [
      ['/mnt/a b.png', '/data/a b.png'],
      ['/mnt/deep/er/x', '/deep/x'],
      ['/mnt/deep/x', '/data/deep/x'],
      ['/workspace/a.png', `${sandbox}/workspace/a.png`],
      ['/root/a.png', `${sandbox}/home/a.png`],
      ['/root/.svc/images/a.png', `${root}/agent/images/a.png`],
      ['/root/.svc/.env', '/root/.svc/.env'],
      ['/root/.svc', '/root/.svc'],
      ['/mnt', '/mnt'],
      ['/mntx/a', '/mntx/a'],
      ['/mnt/../etc/passwd', '/mnt/../etc/passwd'],
      ['/mnt/a\nb', '/mnt/a\nb'],
      [`/mnt/${'x'.repeat(256)}`, `/mnt/${'x'.repeat(256)}`],
      ['/workspace/link/passwd', '/workspace/link/passwd'],
      ['/other', '/other'],
    ] as const) {
      expect([path, await map(path)]).toEqual([path, expected]);
    }
  });
});
