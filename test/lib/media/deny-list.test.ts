import { mkdir, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Host } from '../../../lib/host/index.ts';
import { createDenyList } from '../../../lib/media/deny-list.ts';
import { isUnder, spelledUnder } from '../../../lib/media/paths.ts';
import { createTestHost } from '../../support/host.ts';
import { temporaryDirectory } from '../../support/temp.ts';

/** A user's home with one agent home in it and one elsewhere. */
async function setup(ignoresCase?: boolean) {
  const root = await temporaryDirectory();
  const home = `${root}/home`;
  await mkdir(`${home}/.svc/profiles/work`, { recursive: true });
  await mkdir(`${root}/agent/profiles/work`, { recursive: true });
  const node = createTestHost({ agentHome: `${root}/agent`, env: { HOME: home } });
  const host: Host = ignoresCase === undefined ? node : { ...node, media: { ...node.media, ignoresCase } };
  const paths = {
    agentHomes: [`${home}/.svc`, `${root}/agent`],
    relayHome: `${home}/.svc-relay`,
    files: [`${root}/keys/tls.pem`, `${root}/state/relay.db`],
  };
  const put = async (path: string) => {
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, 'x');
  };
  const calls: string[] = [];
  /** Milliseconds by which the list's clock is ahead of the file system's. */
  const clock = { ahead: 0 };
  const isDenied = createDenyList(counting(host, calls), paths, () => Date.now() + clock.ahead);
  const denied = async (path: string) => isDenied(await host.media.resolve(path));
  /** Calls that read entries of the list since the last look. */
  const readings = () => calls.splice(0);
  return { root, home, agent: `${root}/agent`, put, denied, readings, clock };
}

/** A host that notes which directories are listed and which paths resolved. */
function counting(host: Host, calls: string[]): Host {
  const note =
    <T>(call: (path: string) => T) =>
    (path: string): T => {
      calls.push(path);
      return call(path);
    };
  const { files, media } = host;
  return { ...host, files: { ...files, list: note(files.list) }, media: { ...media, resolve: note(media.resolve) } };
}

const AGENT_ROWS = `.env auth.json auth.lock credentials config.yaml .anthropic_oauth.json google_token.json
  google_oauth_pending.json auth/google_oauth.json webhook_subscriptions.json cache/bws_cache.json svc-relay-qr-secret
  svc-relay-sessions.json pairing/a mcp-tokens/a/b relay-secure-link/key relay-secure-proxy/key svc-relay/state.db
  companion/settings.json .env.local config.yaml.bak config.yaml~ auth.json.1 .config.yaml.swp ..env.swp .env.swp #auth.json#
  .#.env auth/google_oauth.json.old credentials/below`.split(/\s+/);

describe('the deny list (contract 04 §2.1)', () => {
  it.each('/etc /proc /sys /dev /boot /var/log /var/lib /var/run /run'.split(' '))(
    '%s and everything below',
    async (path) => {
      const { denied } = await setup();
      expect(await denied(path)).toBe(true);
      expect(await denied(`${path}/a/b/c`)).toBe(true);
      expect(await denied(`/tmp/../${path}/a`)).toBe(true);
      expect(await denied(`${path}x/a`)).toBe(false);
    },
  );

  it('a system location that is the user’s home is servable, its secrets are not', async () => {
    const { root } = await setup();
    const at = (HOME: string) => {
      const host = createTestHost({ agentHome: `${root}/agent`, env: { HOME } });
      const paths = { agentHomes: [`${HOME}/.svc`], relayHome: `${HOME}/.svc-relay`, files: [] };
      return createDenyList(host, paths);
    };
    expect(await at('/root')('/root/film.mp4')).toBe(false);
    expect(await at('/root')('/root/.ssh/id_ed25519')).toBe(true);
    expect(await at('/root')('/root/.svc/.env')).toBe(true);
    expect(await at(`${root}/home`)('/root/film.mp4')).toBe(true);
  });

  it.each(
    `.ssh .aws .gnupg .kube .docker .config .azure .gcloud Library/Keychains .netrc .git-credentials .npmrc .pypirc .pgpass
    .netrc.bak`.split(/\s+/),
  )('~/%s', async (name) => {
    const { home, root, denied } = await setup();
    expect(await denied(`${home}/${name}`)).toBe(true);
    expect(await denied(`${home}/${name}/below`)).toBe(true);
    expect(await denied(`${home}/x/../${name}`)).toBe(true);
    expect(await denied(`${root}/elsewhere/${name}`)).toBe(false);
  });

  it.each(AGENT_ROWS)('<agent home>/%s, in both homes and every profile', async (name) => {
    const { home, agent, denied } = await setup();
    for (const base of [`${home}/.svc`, agent, `${agent}/profiles/work`, `${home}/.svc/profiles/none`]) {
      expect([base, await denied(`${base}/${name}`)]).toEqual([base, true]);
    }
  });

  it('other files of the agent are servable', async () => {
    const { agent, home, denied } = await setup();
    for (const name of `notes.txt logs/agent.log skills/a/config.yaml workspace/.env images/credentials.png environment
      auth.jsonl config.yaml2 my.env profiles/work/notes.txt cache/images/a.png auth/other.json`.split(/\s+/)) {
      expect([name, await denied(`${agent}/${name}`)]).toEqual([name, false]);
    }
    expect(await denied(`${home}/Pictures/a.png`)).toBe(false);
  });

  it("the relay's configuration, keys and state in any place", async () => {
    const { home, root, denied } = await setup();
    for (const path of [`${home}/.svc-relay/config.yaml`, `${root}/keys/tls.pem`, `${root}/state/relay.db-wal`]) {
      expect([path, await denied(path)]).toEqual([path, true]);
    }
    expect(await denied(`${root}/keys/cert.pem`)).toBe(false);
    expect(await denied(`${home}/.svc-relay/notes`)).toBe(false);
  });

  it.each(['EMFILE', 'ENFILE', 'EIO'])(
    'a directory that cannot be listed (%s) is no empty one, then or later',
    async (code) => {
      const { root, home, agent, put } = await setup();
      await put(`${root}/vault/id`);
      await symlink(`${root}/vault`, `${home}/.ssh`);
      const node = createTestHost({ agentHome: agent, env: { HOME: home } });
      let isFailing = true;
      const list = async (path: string) => {
        if (isFailing && path === home) throw Object.assign(new Error(code), { code });
        return node.files.list(path);
      };
      const paths = { agentHomes: [agent], relayHome: `${home}/.svc-relay`, files: [] };
      const host: Host = { ...node, files: { ...node.files, list } };
      const isDenied = createDenyList(host, paths, () => Date.now() + 60_000);
      await expect(isDenied(`${root}/vault/id`)).rejects.toMatchObject({ code });
      isFailing = false;
      expect(await isDenied(`${root}/vault/id`)).toBe(true);
    },
  );

  it('in a directory that may not be listed, every secret name is followed', async () => {
    const { root, home, agent, put } = await setup();
    await put(`${root}/vault/id`);
    await symlink(`${root}/vault`, `${home}/.ssh`);
    const node = createTestHost({ agentHome: agent, env: { HOME: home } });
    const list = async (path: string) => {
      if (path === home) throw Object.assign(new Error('EACCES'), { code: 'EACCES' });
      return node.files.list(path);
    };
    const paths = { agentHomes: [agent], relayHome: `${home}/.svc-relay`, files: [] };
    const isDenied = createDenyList({ ...node, files: { ...node.files, list } }, paths);
    expect(await isDenied(`${root}/vault/id`)).toBe(true);
    expect(await isDenied(`${root}/elsewhere`)).toBe(false);
  });

  it('the target of a secret that is a symbolic link is denied', async () => {
    const { root, home, agent, put, denied } = await setup();
    await put(`${root}/vault/ssh/id`);
    await put(`${root}/vault/env`);
    await put(`${root}/vault/home/auth.json`);
    await symlink(`${root}/vault/ssh`, `${home}/.ssh`);
    await symlink(`${root}/vault/env`, `${agent}/profiles/work/.env`);
    await symlink(`${root}/vault/home`, `${agent}/profiles/linked`);
    expect(await denied(`${root}/vault/ssh/id`)).toBe(true);
    expect(await denied(`${root}/vault/env`)).toBe(true);
    expect(await denied(`${root}/vault/home/auth.json`)).toBe(true);
    expect(await denied(`${root}/vault/home/notes.txt`)).toBe(false);
  });

  it('a symbolic link to a secret is denied', async () => {
    const { root, home, agent, put, denied } = await setup();
    await put(`${home}/.ssh/id`);
    await symlink(`${home}/.ssh/id`, `${root}/innocent.txt`);
    await symlink(agent, `${root}/alias`);
    expect(await denied(`${root}/innocent.txt`)).toBe(true);
    expect(await denied(`${root}/alias/.env`)).toBe(true);
  });

  it('case matters only on a case-sensitive file system', async () => {
    const one = await setup();
    await one.put(`${one.home}/.ssh/id`);
    await one.put(`${one.home}/.SSH/other`);
    expect(await one.denied(`${one.home}/.SSH/other`)).toBe(false);
    const other = await setup(true);
    for (const path of [
      `${other.home}/.SSH/id`,
      `${other.agent}/CONFIG.yaml`,
      `${other.agent}/.ENV.local`,
      '/ETC/passwd',
    ]) {
      expect([path, await other.denied(path)]).toEqual([path, true]);
    }
  });

  it('a file system that ignores case also folds letters outside of ASCII', async () => {
    const { home, agent, denied } = await setup(true);
    for (const path of [`${home}/.\u017f\u017fh/id`, `${home}/.\u212aube/config`, `${agent}/auth.j\u017fon.bak`]) {
      expect([path, await denied(path)]).toEqual([path, true]);
    }
    const { agent: other, denied: deniedHere } = await setup();
    expect(await deniedHere(`${other}/auth.j\u017fon`)).toBe(false);
  });

  it('a file with two spellings is denied under both', async () => {
    // Simulates a case-insensitive file system: both spellings are the same directory.
    const { root, agent, put } = await setup();
    await put(`${agent}/.env`);
    const node = createTestHost({ agentHome: agent, env: { HOME: `${root}/home` } });
    const lower = (path: string) => path.toLowerCase().replace(root.toLowerCase(), root);
    const host: Host = {
      ...node,
      media: { ...node.media, isSame: async (one, two) => lower(one) === lower(two) },
    };
    const paths = { agentHomes: [agent], relayHome: '/none', files: [] };
    const isDenied = createDenyList(host, paths);
    expect(await isDenied(`${agent}/.ENV`)).toBe(true);
    expect(await isDenied(`${agent}/Auth/Google_OAuth.json.BAK`)).toBe(true);
    expect(await isDenied(`${agent}/Notes.txt`)).toBe(false);
  });
});

describe('the entries of the list are resolved once (issue 11 §3)', () => {
  /** Makes the changes so far old enough to be told from later ones, and has the list take note of that. */
  async function settled({ root, denied, readings, clock }: Awaited<ReturnType<typeof setup>>): Promise<void> {
    await nextTick(root);
    clock.ahead = 3_000;
    await denied('/srv/film.mp4');
    readings();
    await denied('/srv/film.mp4');
    expect(readings()).toEqual([]);
    clock.ahead = 0;
  }

  /** Resolves once the file system gives a change another time than the changes so far. */
  async function nextTick(root: string): Promise<void> {
    const touch = async () => {
      await writeFile(`${root}/tick`, 'x');
      return (await stat(`${root}/tick`)).mtimeMs;
    };
    const first = await touch();
    await expect.poll(touch).toBeGreaterThan(first);
  }

  it('reads nothing again while nothing changes, and at once when a name does', async () => {
    const one = await setup();
    const { root, home, agent, put, denied, readings } = one;
    for (const name of ['ssh/id', 'env', 'oauth', 'bws', 'profile/auth.json', 'key', 'second/id']) {
      await put(`${root}/vault/${name}`);
    }
    await put(`${agent}/auth/notes`);
    await settled(one);
    const vault = (name: string) => denied(`${root}/vault/${name}`);
    const steps: [string, () => Promise<unknown>][] = [
      ['ssh/id', () => symlink(`${root}/vault/ssh`, `${home}/.ssh`)],
      ['env', () => symlink(`${root}/vault/env`, `${agent}/profiles/work/.env`)],
      ['oauth', () => symlink(`${root}/vault/oauth`, `${agent}/auth/google_oauth.json`)],
      ['profile/auth.json', () => symlink(`${root}/vault/profile`, `${agent}/profiles/linked`)],
      ['key', () => mkdir(`${root}/keys`).then(() => symlink(`${root}/vault/key`, `${root}/keys/tls.pem`))],
      ['bws', () => mkdir(`${agent}/cache`).then(() => symlink(`${root}/vault/bws`, `${agent}/cache/bws_cache.json`))],
    ];
    for (const [name, place] of steps) {
      expect([name, await vault(name)]).toEqual([name, false]);
      await place();
      expect([name, await vault(name)]).toEqual([name, true]);
      await settled({ ...one, readings: () => readings().filter((path) => !/(?:\.ssh|\.env|json|pem)$/.test(path)) });
      expect([name, await vault(name)]).toEqual([name, true]);
    }
    // A link beyond the first may change anywhere.
    await rename(`${root}/vault/ssh`, `${root}/vault/moved`);
    await symlink(`${root}/vault/second`, `${root}/vault/ssh`);
    expect([await vault('second/id'), await vault('moved/id')]).toEqual([true, false]);
    await rm(`${home}/.ssh`);
    expect(await vault('second/id')).toBe(false);
  });

  it('is read again while the last change is too young to tell another one from it', async () => {
    const one = await setup();
    const { root, home, denied, readings, clock } = one;
    await settled(one);
    await symlink(`${root}/vault`, `${home}/.ssh`);
    const isRead = async (ahead: number) => {
      clock.ahead = ahead;
      await denied('/srv/film.mp4');
      return readings().includes(home);
    };
    expect([await isRead(0), await isRead(0)]).toEqual([true, true]);
    expect([await isRead(3_000), await isRead(3_000)]).toEqual([true, false]);
  });
});

describe('paths by component', () => {
  it('a sibling with the same prefix is not below', () => {
    expect(isUnder('/tmp/a', '/tmp/a')).toBe(true);
    expect(isUnder('/tmp/ab', '/tmp/a')).toBe(false);
    expect(isUnder('/tmp', '/tmp/a')).toBe(false);
    expect(isUnder('/anything', '/')).toBe(true);
  });

  it('a path below a root begins with its components', () => {
    const name = fc.stringMatching(/^[a-c]{1,2}$/);
    fc.assert(
      fc.property(fc.array(name), fc.array(name), (root, rest) => {
        const [above, path] = [`/${root.join('/')}`, `/${[...root, ...rest].join('/')}`];
        expect(spelledUnder(path, above)).toBe(path);
        if (root.length > 0) expect(isUnder(`${above}x/${rest.join('/')}`, above)).toBe(false);
      }),
    );
  });
});
