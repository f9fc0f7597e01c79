import { execFile } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { chmod, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it, type TestContext } from 'vitest';
import type { IdentityFacts } from '../../../lib/host/identity.ts';
import type { Host } from '../../../lib/host/index.ts';
import { createIdentities } from '../../../lib/host/node/identity.ts';
import { canonicalAddress } from '../../../lib/kit/addresses.ts';
import { type Identity, openIdentity } from '../../../lib/secure-link/identity.ts';
import { parseHost } from '../../../lib/secure-link/settings.ts';
import { fakeHost, fakeLog } from '../pairing/fixtures.ts';

const NOW = Date.UTC(2026, 10, 22);
const DAY = 86_400_000;
const identities = createIdentities();
const ADDRESS = '10.0.0.1';

async function identityHost({ addresses = [ADDRESS], lan = ADDRESS }: { addresses?: string[]; lan?: string } = {}) {
  const host = await fakeHost({ lan });
  return { ...host, network: { ...host.network, addresses: () => ['127.0.0.1', ...addresses] } };
}

const open = async (host: Host, bindHost = ADDRESS, files?: { cert: string; key: string }, now = NOW) =>
  openIdentity({ bindHost, ...(files && { files }) }, host, now, fakeLog().log);

/** Puts PEM texts into the agent home and returns their paths. */
async function place(host: Host, pem: { cert?: string; key?: string }, directory = 'relay-secure-link', mode = 0o600) {
  const path = join(host.agentHome, directory);
  await mkdir(path, { recursive: true });
  const files = { cert: join(path, 'cert.pem'), key: join(path, 'key.pem') };
  for (const name of ['cert', 'key'] as const) {
    const text = pem[name];
    if (text !== undefined) await writeFile(files[name], text);
    if (text !== undefined) await chmod(files[name], mode);
  }
  return files;
}

const modeOf = async (path: string) => (await stat(path)).mode & 0o777;
const factsOf = (pem: { cert: string; key: string }) => identities.read(pem) as IdentityFacts;

describe('generated identities (contract 08 §2.2)', () => {
  it('are P-256 certificates with exactly the properties of the contract', async () => {
    const pem = await identities.generate('10.0.0.1', NOW);
    const leaf = new X509Certificate(pem.cert);
    expect(leaf.publicKey.asymmetricKeyDetails).toEqual({ namedCurve: 'prime256v1' });
    expect(leaf.subject).toBe('CN=svc Secure Link');
    expect(leaf.issuer).toBe('CN=svc Secure Link');
    expect(leaf.verify(leaf.publicKey)).toBe(true);
    expect(leaf.serialNumber).toMatch(/^[4-7][0-9A-F]{31}$/);
    expect(Date.parse(leaf.validFrom)).toBe(NOW - 3_600_000);
    expect(Date.parse(leaf.validTo)).toBe(NOW + 3650 * DAY);
    expect(leaf.subjectAltName).toBe('IP Address:10.0.0.1');
    expect(leaf.ca).toBe(true);
    expect(leaf.keyUsage).toEqual(['1.3.6.1.5.5.7.3.1']);
    expect(factsOf(pem)).toMatchObject({ keyMatches: true, keyIsStrong: true });
    expect(factsOf(pem).certDer).toBe(leaf.raw.toString('base64'));
    // Twice in a QR code (contract 08 §2.2).
    expect(factsOf(pem).certDer.length).toBeLessThan(600);
  });

  it('pass a strict verifier', async (context: TestContext) => {
    const host = await fakeHost();
    const cert = join(host.agentHome, 'c.pem');
    await writeFile(cert, (await identities.generate('relay.example', Date.now())).cert);
    const { stdout } = await promisify(execFile)('openssl', [
      'verify',
      '-x509_strict',
      '-purpose',
      'sslserver',
      '-verify_hostname',
      'relay.example',
      '-CAfile',
      cert,
      cert,
    ]).catch((error) => (error.code === 'ENOENT' ? context.skip('there is no openssl here') : Promise.reject(error)));
    expect(stdout).toContain('OK');
  });

  it('have the pin of their public key', async () => {
    const pem = await identities.generate('::1', NOW);
    expect(factsOf(pem).pin).toMatch(/^sha256\/[A-Za-z0-9+/]{43}=$/);
    expect(factsOf(pem).names).toBe('IP Address:0:0:0:0:0:0:0:1');
  });
});

describe('names (contract 08 §2.4)', () => {
  it('match by value, never by part', async () => {
    const address = factsOf(await identities.generate('10.0.0.1', NOW));
    expect(address.isFor('10.0.0.1')).toBe(true);
    for (const other of ['10.0.0.10', '0.0.0.1', '110.0.0.1', '10.0.0.1.example', '::ffff:10.0.0.1', '', '.', 'svc']) {
      expect(address.isFor(other)).toBe(false);
    }
    const name = factsOf(await identities.generate('relay.example', NOW));
    expect(name.isFor('relay.example')).toBe(true);
    for (const other of ['elay.example', 'a.relay.example', '.example', '.relay.example', 'relay.example.com', '*']) {
      expect(name.isFor(other)).toBe(false);
    }
    expect(factsOf(await identities.generate('2001:db8::1', NOW)).isFor('2001:DB8:0::1')).toBe(true);
  });

  it('match themselves and no other host', async () => {
    const host = fc
      .oneof(fc.ipV4(), fc.ipV6(), fc.domain())
      .map(parseHost)
      .filter((parsed) => parsed !== null);
    const near = fc.tuple(host, fc.constantFrom('', '0', '.', 'a', ' ', '\u0000'), fc.boolean());
    await fc.assert(
      fc.asyncProperty(host, host, near, async (own, other, [_, extra, before]) => {
        const facts = factsOf(await identities.generate(own, NOW));
        expect(facts.isFor(own)).toBe(true);
        expect(facts.isFor(other)).toBe(own === other);
        const text = before ? extra + own : own + extra;
        if (text !== own && canonicalAddress(text) !== own) expect(facts.isFor(text)).toBe(false);
      }),
      { numRuns: 60 },
    );
  });
});

describe('loading (contract 08 §2.4)', () => {
  it('makes an identity when there is none, private, and keeps it', async () => {
    const host = await identityHost();
    const first = (await open(host)) as Identity;
    const directory = join(host.agentHome, 'relay-secure-link');
    expect(first.host).toBe(ADDRESS);
    expect(first.facts.isFor(ADDRESS)).toBe(true);
    expect((await readdir(directory)).sort()).toEqual(['cert.pem', 'key.pem']);
    expect([
      await modeOf(directory),
      await modeOf(`${directory}/cert.pem`),
      await modeOf(`${directory}/key.pem`),
    ]).toEqual([0o700, 0o600, 0o600]);
    expect(((await open(host)) as Identity).facts.pin).toBe(first.facts.pin);
  });

  it('tightens a directory and key that were open to others', async () => {
    const host = await identityHost();
    const files = await place(host, await identities.generate(ADDRESS, NOW), undefined, 0o644);
    await chmod(join(files.key, '..'), 0o755);
    expect(await open(host)).toMatchObject({ host: ADDRESS });
    expect(await modeOf(join(files.key, '..'))).toBe(0o700);
    expect(await modeOf(files.key)).toBe(0o600);
  });

  it('uses the identity of an earlier version in place, unless the new directory has any part of one', async () => {
    const host = await identityHost();
    const pem = await identities.generate(ADDRESS, NOW);
    await place(host, pem, 'relay-secure-proxy');
    const identity = (await open(host)) as Identity;
    expect(identity.facts.pin).toBe(factsOf(pem).pin);
    expect(await stat(join(host.agentHome, 'relay-secure-link')).catch(() => null)).toBeNull();
    await place(host, { cert: pem.cert });
    expect(await open(host)).toContain('without its private key');
  });

  it('generates where an earlier version left only one file', async () => {
    const host = await identityHost();
    await place(host, { key: 'left' }, 'relay-secure-proxy');
    expect(await open(host)).toMatchObject({ host: ADDRESS });
    expect(await readFile(join(host.agentHome, 'relay-secure-proxy/key.pem'), 'utf8')).toBe('left');
  });

  const cases: [string, string, (pem: { cert: string; key: string }) => Promise<{ cert?: string; key?: string }>][] = [
    ['a certificate alone', 'without its private key', async ({ cert }) => ({ cert })],
    ['a key alone', 'without its certificate', async ({ key }) => ({ key })],
    ['another address', 'not for 10.0.0.1', () => identities.generate('10.0.0.10', NOW)],
    ['an expired certificate', 'expired', () => identities.generate(ADDRESS, NOW - 3651 * DAY)],
    ['a certificate of the future', 'not valid yet', () => identities.generate(ADDRESS, NOW + DAY)],
    [
      'a mismatched pair',
      'does not belong',
      async ({ cert }) => ({ cert, key: (await identities.generate(ADDRESS, NOW)).key }),
    ],
    ['a certificate that is none', 'not a PEM certificate', async ({ key }) => ({ cert: 'nothing', key })],
    ['a key that is none', 'not a PEM key', async ({ cert }) => ({ cert, key: 'nothing' })],
    [
      'an encrypted key',
      'encrypted',
      async ({ cert, key }) => ({ cert, key: key.replaceAll('PRIVATE KEY', 'ENCRYPTED PRIVATE KEY') }),
    ],
    ['empty files', 'not a PEM certificate', async () => ({ cert: '', key: '' })],
  ];
  it.each(cases)('leaves %s as it is', async (_name, reason, make) => {
    const host = await identityHost();
    const given = await make(await identities.generate(ADDRESS, NOW));
    const files = await place(host, given);
    expect(await open(host)).toContain(reason);
    const left = async (path: string) => readFile(path, 'utf8').catch(() => undefined);
    expect([await left(files.cert), await left(files.key)]).toEqual([given.cert, given.key]);
  });

  it('refuses a weak RSA key and takes a strong one', async (context: TestContext) => {
    for (const [bits, accepted] of [
      [1024, false],
      [2048, true],
    ] as const) {
      const host = await identityHost();
      const files = await place(host, { cert: '', key: '' });
      const args = `req -x509 -newkey rsa:${bits} -nodes -days 2 -subj /CN=x -addext subjectAltName=IP:${ADDRESS}`;
      await promisify(execFile)('openssl', [...args.split(' '), '-keyout', files.key, '-out', files.cert]).catch(
        (error) => context.skip(`no certificate can be made here with openssl: ${error}`),
      );
      const opened = await open(host, ADDRESS, undefined, Date.now());
      if (accepted) expect(opened).toMatchObject({ host: ADDRESS });
      else expect(opened).toContain('2048 bits');
    }
  });

  it("refuses an operator's key that others can read, and a link to one outside the agent home", async () => {
    const host = await identityHost();
    const elsewhere = await fakeHost();
    const files = await place(elsewhere, await identities.generate(ADDRESS, NOW), 'etc');
    expect(await open(host, ADDRESS, files)).toMatchObject({ host: ADDRESS });
    await chmod(files.key, 0o640);
    expect(await open(host, ADDRESS, files)).toContain('0600');
    expect(await modeOf(files.key)).toBe(0o640);
    const link = { cert: files.cert, key: join(host.agentHome, 'link.pem') };
    await symlink(files.key, link.key);
    expect(await open(host, ADDRESS, link)).toContain('0600');
  });
});

describe('the advertised host (contract 08 §2.3)', () => {
  it('is the address of the route for a wildcard, and stays while an interface has it', async () => {
    const network = { addresses: ['10.0.0.1', '10.0.0.2'] };
    const host = await identityHost({ ...network, lan: '10.0.0.1' });
    const first = (await open(host, '0.0.0.0')) as Identity;
    expect(first.host).toBe('10.0.0.1');
    const moved = { ...host, network: { ...host.network, lanAddress: async () => '10.0.0.2' } };
    expect(((await open(moved, '::')) as Identity).facts.pin).toBe(first.facts.pin);
    const gone = { ...moved, network: { ...moved.network, addresses: () => ['10.0.0.2'] } };
    expect(await open(gone, '0.0.0.0')).toContain('not for 10.0.0.2');
  });

  it('is loopback without any network', async () => {
    const host = await identityHost({ addresses: [] });
    const alone = { ...host, network: { ...host.network, lanAddress: async () => null } };
    expect(await open(alone, '0.0.0.0')).toMatchObject({ host: '127.0.0.1' });
  });
});
