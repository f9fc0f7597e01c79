import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { START } from '../../lib/mirror/frames.ts';
import { newHomeKey, signChallenge } from '../../lib/mirror/keys.ts';
import { fakeRelay, run } from '../support/cli.ts';
import { connect } from '../support/client.ts';
import { bundle } from '../support/edge-bundle.ts';
import { startMiniflare } from '../support/miniflare.ts';
import { post } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

interface Machine {
  env: Record<string, string>;
  publicKey: string;
}

describe('svc relay tenants (contract 12 §6)', () => {
  let scriptPath: string;
  let persist: string;
  let runtime: Awaited<ReturnType<typeof startMiniflare>>;
  let provider: Machine;
  let alice: Machine;
  let bob: Machine;
  const machine = async (name: string): Promise<Machine> => {
    const env = { SVC_HOME: join(persist, name) };
    const { stdout } = await run(['relay', 'operator-token', '--public-key'], { env });
    return { env, publicKey: stdout.trim() };
  };
  /** Each address of loopback is a name of its own. 127.0.0.1 is the deployment's relay. */
  const address = (last: number) => `http://127.0.0.${last}:${runtime.port}`;

  beforeAll(async () => {
    persist = await mkdtemp(join(tmpdir(), 'svc-relay-tenants-'));
    scriptPath = await bundle('cli/runtime/edge/worker.ts', 'tenant-commands');
    [provider, alice, bob] = [await machine('provider'), await machine('alice'), await machine('bob')];
    runtime = await startMiniflare({
      scriptPath,
      bindings: { RELAY_OPERATOR_PUBLIC_KEY: provider.publicKey },
      durableObjects: { RELAY: { className: 'RelayObject', useSQLite: true } },
      persist: join(persist, 'objects'),
      log: [],
      options: {
        host: '0.0.0.0',
        ratelimits: { ATTEMPTS: { simple: { limit: 100_000, period: 60 } } },
        kvNamespaces: ['TENANTS'],
      },
    });
  });
  afterAll(async () => {
    await runtime?.miniflare.dispose();
    await rm(persist, { recursive: true, force: true });
    await rm(scriptPath, { force: true });
  });

  const tenants = (words: string[], { env }: Machine) => run(['relay', 'tenants', ...words], { env });
  async function json(words: string[], who: Machine): Promise<Record<string, unknown>> {
    const { code, stdout, stderr } = await tenants([...words, '--json'], who);
    expect([code, stderr], stdout).toEqual([0, '']);
    return JSON.parse(stdout);
  }
  async function refused(words: string[], who: Machine, code = 1): Promise<string> {
    const ended = await tenants(words, who);
    expect([ended.code, ended.stdout], ended.stderr).toEqual([code, '']);
    const document = await tenants([...words, '--json'], who);
    expect([document.code, document.stderr]).toEqual([code, '']);
    expect(JSON.parse(document.stdout)).toMatchObject({ ok: false, next: expect.stringMatching(/\S/) });
    return ended.stderr;
  }
  const names = async () => {
    const { tenants: found } = (await json(['list', address(1)], provider)) as { tenants: { name: string }[] };
    return found.map(({ name }) => name);
  };

  test('a name is claimed, shown, changed by its operator alone, and released', async () => {
    const url = address(2);
    expect((await tenants(['list', address(1)], provider)).stdout).toContain('Nobody has claimed a name');
    const claim = ['claim', url, `--public-key=${alice.publicKey}`, 'RELAY_MIRROR_LEASE=600'];
    expect(await json(claim, provider)).toEqual({ ok: true, name: '127.0.0.2', claimed: true });
    expect((await tenants(claim, provider)).stdout).toContain('was claimed with this key before');
    const { stdout: listed } = await tenants(['list', address(1)], provider);
    expect(listed).toMatch(/^CLAIMED +NAME\n\d{4}-\d\d-\d\d +127\.0\.0\.2\n$/);

    const shown = await json(['show', url], alice);
    expect(shown).toMatchObject({ name: '127.0.0.2', settings: { RELAY_MIRROR_LEASE: '600' } });
    expect(await json(['show', url], provider)).toEqual(shown);
    expect(await refused(['show', url], bob)).toContain('refused: a token of the operator of this name is needed');

    // What a relay of theirs keeps is kept across a change, while its sockets end.
    const token = (await run(['pair', '--relay', url, '--token', '--name', 'phone'], { env: alice.env })).stdout.trim();
    const homeKey = await newHomeKey();
    const { stdout: operator } = await run(['relay', 'operator-token', '--relay', url, '--json'], { env: alice.env });
    const pinned = await fetch(`${url}/relay/mirror`, {
      ...post({ key: homeKey.publicKey }),
      headers: { authorization: `Bearer ${JSON.parse(operator).token}` },
    });
    expect(pinned.status).toBe(200);
    const connected = async () => {
      const phone = await connect(`${url.replace('http', 'ws')}/ws`);
      phone.send('system', 'auth', { session_token: token, device_id: 'd1', device_name: 'Phone' });
      await phone.next({ type: 'auth.ok' });
      const home = await connect(`${url.replace('http', 'ws')}/v1/home`);
      const { nonce } = await home.next({ type: 'challenge' });
      const sig = await signChallenge(homeKey.privateKey, String(nonce), new URL(url).host);
      home.raw(JSON.stringify({ type: 'hello', key: homeKey.publicKey, sig, epoch: 'home', applied: START }));
      await home.next({ type: 'hello' });
      return [phone, home];
    };
    const CLOSED = { code: 1001, reason: 'server shutting down' };
    const beforeChange = await connected();
    const set = ['set', url, 'RELAY_WEBAPI_URL=https://agent.example.com', 'RELAY_MIRROR_LEASE='];
    expect(await refused(set, provider)).toMatch(
      /only the operator of this name may change it[\s\S]*tenant's operator/,
    );
    expect(await json(set, alice)).toMatchObject({ settings: { RELAY_WEBAPI_URL: 'https://agent.example.com' } });
    for (const socket of beforeChange) expect(await socket.closed()).toEqual(CLOSED);
    expect(await json(['show', url], alice)).toMatchObject({
      settings: { RELAY_WEBAPI_URL: 'https://agent.example.com' },
      claimed_at: shown.claimed_at,
    });
    const sessions = () => fetch(`${url}/sessions`, { headers: { authorization: `Bearer ${token}` } });
    expect((await sessions()).status).toBe(200);
    expect((await run(['devices', '--relay', url], { env: alice.env })).stdout).toContain('phone');

    // Another key, from a file: a tenant moves to another machine.
    const file = join(await temporaryDirectory({ 'bob.pem': `${bob.publicKey.replaceAll('\\n', '\n')}\n` }), 'bob.pem');
    expect((await tenants(['set', url, '--public-key', file], alice)).stdout).toContain('BEGIN PUBLIC KEY');
    expect(await refused(['set', url, 'RELAY_MIRROR_LEASE=700'], alice)).toContain('refused:');
    expect(await json(['set', url, 'RELAY_MIRROR_LEASE=700'], bob)).toMatchObject({ ok: true });
    expect((await run(['devices', '--relay', url], { env: bob.env })).code).toBe(0);
    expect((await run(['devices', '--relay', url], { env: alice.env })).code).toBe(1);
    expect(await refused(claim, provider)).toMatch(/claimed with another key[\s\S]*svc relay tenants release/);

    expect(await refused(['release', url], bob, 2)).toContain('--yes');
    expect(await refused(['release', url, '--yes'], alice)).toContain('HTTP 401');
    expect(await names()).toContain('127.0.0.2');
    const beforeRelease = await connected();
    expect(await json(['release', url, '--yes'], bob)).toEqual({
      ok: true,
      name: '127.0.0.2',
      released: true,
      pending: false,
    });
    for (const socket of beforeRelease) expect(await socket.closed()).toEqual(CLOSED);
    expect(await names()).not.toContain('127.0.0.2');
    expect((await sessions()).status).toBe(404);
    expect(await refused(['show', url], bob)).toMatch(/nobody has claimed this name[\s\S]*tenants list/);
    // The name can be claimed again, by a relay that knows nothing of the former one.
    expect(await json(claim, provider)).toMatchObject({ claimed: true });
    expect((await sessions()).status).toBe(401);
    expect(await json(['release', url, '--yes'], provider)).toMatchObject({ released: true });
  });

  test('what is refused says what to do; wrong usage is exit code 2', async () => {
    const url = address(3);
    const key = `--public-key=${alice.publicKey}`;
    expect(await refused(['list', address(1)], alice)).toContain('RELAY_OPERATOR_PUBLIC_KEY');
    expect(await refused(['claim', url, key], alice)).toContain('RELAY_OPERATOR_PUBLIC_KEY');
    expect(await refused(['claim', url, key, 'API_SERVER_KEY=x'], provider)).toContain('settings may have');
    expect(await refused(['claim', url, '--public-key=-----BEGIN'], provider)).toContain('must be an Ed25519');
    expect(await refused(['claim', address(1), key], provider)).toContain('cannot be claimed');
    expect(await refused(['claim', url, '--public-key', 'missing.pem'], provider)).toContain('cannot be read');
    expect(await refused(['release', url, '--yes'], provider)).toContain('nobody has claimed this name');
    expect(await refused(['set', url, 'RELAY_MIRROR_LEASE=5'], alice)).toContain('nobody has claimed this name');
    for (const words of [
      ['list'],
      ['show'],
      ['claim', url],
      ['claim', 'alice'],
      ['claim', url, key, 'x'],
      ['set', url],
      ['show', url, 'A=b'],
      ['show', url, '--yes'],
      ['list', address(1), key],
    ]) {
      await refused(words, provider, 2);
    }
    expect(await names()).not.toContain('127.0.0.3');
    const help = (await tenants(['--help'], provider)).stdout;
    expect(help).toContain('tenants claim https://alice.example --public-key');
  });

  test('a list of more names than one answer holds', async () => {
    const pages = [
      { tenants: [{ name: 'a.test', claimed_at: null }], cursor: 'next one' },
      { tenants: [{ name: 'b.test', claimed_at: null }], cursor: null },
    ];
    const { port, seen } = await fakeRelay(({ path }) => ({
      body: { ok: true, ...pages[path.includes('?') ? 1 : 0] },
    }));
    const { tenants: found } = await json(['list', `http://127.0.0.1:${port}`], provider);
    expect(found).toEqual(pages.flatMap((page) => page.tenants));
    expect(seen.map(({ path }) => path)).toEqual(['/relay/tenants', '/relay/tenants?cursor=next%20one']);
  });
});
