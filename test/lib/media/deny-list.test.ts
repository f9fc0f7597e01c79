import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Host } from '../../../lib/host/index.ts';
import { createNodeHost } from '../../../lib/host/node/index.ts';
import { isDenied } from '../../../lib/media/deny-list.ts';
import { isUnder, spelledUnder } from '../../../lib/media/paths.ts';
import { temporaryDirectory } from '../../support/temp.ts';

/** A user's home with one agent home in it and one elsewhere. */
async function setup(ignoresCase?: boolean) {
  const root = await temporaryDirectory();
  const home = `${root}/home`;
  await mkdir(`${home}/.svc/profiles/work`, { recursive: true });
  await mkdir(`${root}/agent/profiles/work`, { recursive: true });
  const node = createNodeHost({ agentHome: `${root}/agent`, env: { HOME: home } });
  const host: Host = ignoresCase === undefined ? node : { ...node, media: { ...node.media, ignoresCase } };
  const places = {
    agentHomes: [`${home}/.svc`, `${root}/agent`],
    relayHome: `${home}/.svc-relay`,
    files: [`${root}/keys/tls.pem`, `${root}/state/relay.db`],
  };
  const put = async (path: string) => {
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, 'x');
  };
  const denied = async (path: string) => isDenied(await host.media.resolve(path), host, places);
  return { root, home, agent: `${root}/agent`, put, denied };
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
      const host = createNodeHost({ agentHome: `${root}/agent`, env: { HOME } });
      const places = { agentHomes: [`${HOME}/.svc`], relayHome: `${HOME}/.svc-relay`, files: [] };
      return (path: string) => isDenied(path, host, places);
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

  it('a file with two spellings is denied under both', async () => {
    // Simulates a case-insensitive file system: both spellings are the same directory.
    const { root, agent, put } = await setup();
    await put(`${agent}/.env`);
    const node = createNodeHost({ agentHome: agent, env: { HOME: `${root}/home` } });
    const lower = (path: string) => path.toLowerCase().replace(root.toLowerCase(), root);
    const host: Host = {
      ...node,
      media: { ...node.media, isSame: async (one, two) => lower(one) === lower(two) },
    };
    const places = { agentHomes: [agent], relayHome: '/none', files: [] };
    expect(await isDenied(`${agent}/.ENV`, host, places)).toBe(true);
    expect(await isDenied(`${agent}/Auth/Google_OAuth.json.BAK`, host, places)).toBe(true);
    expect(await isDenied(`${agent}/Notes.txt`, host, places)).toBe(false);
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
