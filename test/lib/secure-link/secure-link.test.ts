import { once } from 'node:events';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createNodeUpstream } from '../../../lib/host/node/upstream.ts';
import { type Clock, systemClock } from '../../../lib/kit/clock.ts';
import { createSecureLink } from '../../../lib/secure-link/secure-link.ts';
import { createTestClock } from '../../support/clock.ts';
import { configOf, fakeHost, fakeLog } from '../pairing/fixtures.ts';

const DAY = 86_400_000;

async function secureLink(env: Record<string, string> = {}, clock: Clock = systemClock) {
  const host = await fakeHost();
  const { log, lines } = fakeLog();
  const enabled = { RELAY_SECURE_LINK_ENABLED: '1', RELAY_SECURE_LINK_HOST: '127.0.0.1', ...env };
  const link = createSecureLink({
    config: configOf(enabled, host),
    host,
    upstream: createNodeUpstream(),
    clock,
    log,
  });
  const changes: string[] = [];
  link.onChange(() => changes.push(`${link.status} ${link.advertised?.url}`));
  return { host, link, lines, changes };
}

describe('Secure Link (contract 08 §9)', () => {
  it('touches nothing while disabled', async () => {
    const { host, link, lines } = await secureLink({ RELAY_SECURE_LINK_ENABLED: '0' });
    expect(await link.prepare()).toBeNull();
    expect([link.status, link.advertised, lines, await readdir(host.agentHome)]).toEqual(['disabled', null, [], []]);
  });

  it('is advertised once it listens, until it fails', async () => {
    const { link, changes } = await secureLink({ RELAY_SECURE_LINK_PORT: '9555' });
    expect(link.status).toBe('unavailable');
    const plan = await link.prepare();
    expect(plan).toMatchObject({ bindHost: '127.0.0.1', port: 9555, authority: '127.0.0.1:9555' });
    expect([link.status, link.advertised]).toEqual(['unavailable', null]);
    link.listening(9555);
    expect(link.status).toBe('available');
    expect(link.advertised).toEqual({
      url: 'https://127.0.0.1:9555',
      authority: '127.0.0.1:9555',
      pin: expect.stringMatching(/^sha256\/.{44}$/),
      certDer: expect.stringMatching(/^[A-Za-z0-9+/]+=*$/),
    });
    link.failed('the socket is gone');
    expect(changes).toEqual(['available https://127.0.0.1:9555', 'unavailable undefined']);
  });

  it('becomes unavailable with the end of its certificate, after a warning (§2.4)', async () => {
    const clock = createTestClock();
    const { link, lines, changes } = await secureLink({}, clock);
    await link.prepare();
    link.listening(9555);
    const warnings = () => lines.filter((line) => line.includes('the certificate of Secure Link ends on'));
    clock.advance(3619 * DAY);
    expect([link.status, warnings()]).toEqual(['available', []]);
    clock.advance(2 * DAY);
    expect(warnings()).toHaveLength(1);
    clock.advance(29 * DAY);
    expect(link).toMatchObject({ status: 'unavailable', advertised: null });
    expect(link.problem).toMatch(/^the certificate has expired; remove or replace/);
    expect(changes).toEqual(['available https://127.0.0.1:9555', 'unavailable undefined']);
    expect(warnings()).toHaveLength(1);
  });

  it('keeps what health says of it until that changes', async () => {
    const { link } = await secureLink();
    const off = link.health;
    expect(off).toEqual({ proxy: null, members: expect.stringContaining('"status":"unavailable"') });
    expect(link.health).toBe(off);
    await link.prepare();
    link.listening(9555);
    const on = link.health;
    expect(JSON.parse(on.proxy as string).proxy.pin_sha256).toBe(link.advertised?.pin);
    expect(JSON.parse(`{${on.members}}`)).toMatchObject({ enabled: true, status: 'available' });
    expect(link.health).toBe(on);
    link.stop();
    expect(link.health).toEqual(off);
  });

  it('says what is wrong, once, and leaves the rest alone', async () => {
    const { host, link, lines } = await secureLink({ RELAY_SECURE_LINK_PORT: 'many' });
    expect(await link.prepare()).toBeNull();
    expect(link.status).toBe('unavailable');
    expect(lines.filter((line) => line.includes('RELAY_SECURE_LINK_PORT'))).toHaveLength(1);
    expect(await readdir(host.agentHome)).toEqual([]);
  });

  it('is unavailable where its directory is a file', async () => {
    const { host, link, lines } = await secureLink();
    await writeFile(`${host.agentHome}/relay-secure-link`, '');
    expect(await link.prepare()).toBeNull();
    expect(lines.join('\n')).toContain('Secure Link is unavailable');
  });

  it('keeps its identity over restarts', async () => {
    const { host, link } = await secureLink();
    await mkdir(host.agentHome, { recursive: true });
    const first = await link.prepare();
    const env = { RELAY_SECURE_LINK_ENABLED: '1', RELAY_SECURE_LINK_HOST: '127.0.0.1' };
    const again = createSecureLink({
      config: configOf(env, host),
      host,
      upstream: createNodeUpstream(),
      clock: systemClock,
      log: fakeLog().log,
    });
    expect((await again.prepare())?.cert).toBe(first?.cert);
  });

  it('turns localhost into the loopback address that answers', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const { link, host } = await secureLink({
      RELAY_WEBAPI_URL: `http://localhost:${port}`,
      RELAY_SECURE_LINK_DASHBOARD_URL: 'http://localhost:9119/',
    });
    host.network.resolve = async () => ['::1', '127.0.0.1', '203.0.113.9'];
    host.network.canConnect = async (address) => address === '::1';
    const plan = await link.prepare();
    expect([plan?.api.href, plan?.dashboard.href]).toEqual([`http://[::1]:${port}/`, 'http://[::1]:9119/']);
    host.network.resolve = async () => ['203.0.113.9'];
    expect((await link.prepare())?.api.hostname).toBe('127.0.0.1');
  });
});
