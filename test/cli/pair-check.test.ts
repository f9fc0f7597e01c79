import type { AddressInfo } from 'node:net';
import { createServer } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { checkTls } from '../../cli/pair/check-routes.ts';
import { failed, judgeRoutes, ok, skipped } from '../../cli/pair/check-step.ts';
import { createIdentities } from '../../lib/host/node/identity.ts';
import { type BuiltTarget, startBuiltTarget } from '../support/built-relay.ts';
import { agentHome, fakeRelay, run, type Setting } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';

let relay: BuiltTarget;
beforeAll(async () => {
  relay = await startBuiltTarget();
  listenOn('0.0.0.0');
});
afterAll(() => relay.stop());

/** Sets the address on which the relay says that it listens. */
function listenOn(host: string): void {
  relay.relay.listener = { ...relay.relay.listener, host };
}

interface Report {
  ok: boolean;
  failed: string | null;
  next: string | null;
  steps: { id: string; status: string; summary: string }[];
}

/** Runs the check; the relay listens on 127.0.0.1, which stands for the LAN address. */
async function check(words: string[] = [], setting: Setting = {}) {
  const env = { SVC_HOME: agentHome(), RELAY_PORT: String(relay.port), API_SERVER_KEY: 'k', ...setting.env };
  const { code, stdout } = await run(['pair', '--check', '--json', ...words], {
    lanAddress: '127.0.0.1',
    ...setting,
    env,
  });
  return { code, report: JSON.parse(stdout) as Report };
}

async function apiAnswering(status: number): Promise<string> {
  const api = await fakeRelay(({ headers }) => ({ status: headers.authorization === 'Bearer k' ? status : 500 }));
  return String(api.port);
}

const statusOf = ({ steps }: Report, id: string) => steps.find((step) => step.id === id)?.status;
/** A trial leaves neither a session nor a code. */
const leftovers = () => [relay.relay.sessions.count(), relay.relay.codes.waiting().codes.length];

describe('svc pair --check (contract 09 §2)', () => {
  it('takes every step of a phone, and leaves nothing behind', async () => {
    const { code, report } = await check(['--port', await apiAnswering(200)]);
    expect(report.steps.filter(({ status }) => status === 'failed')).toEqual([]);
    expect([code, report.ok, report.failed]).toEqual([0, true, null]);
    for (const id of ['relay', 'listener', 'lan-address', 'pairing-code', 'auth', 'round-trip', 'cleanup', 'api-key']) {
      expect([id, statusOf(report, id)]).toEqual([id, 'ok']);
    }
    expect(leftovers()).toEqual([0, 0]);
  });

  it('names the first step that fails, with a command to type, and still cleans up', async () => {
    const { code, report } = await check(['--port', await apiAnswering(401)], { lanAddress: '127.0.0.9' });
    expect([code, report.ok, report.failed]).toEqual([1, false, 'lan-address']);
    expect(report).toHaveProperty('error', expect.stringMatching(/^lan-address: ./));
    expect(report.next).toContain('svc relay start --host 0.0.0.0');
    expect(statusOf(report, 'round-trip')).toBe('ok');
    // On 127.0.0.9 there is no API server either.
    expect(statusOf(report, 'api-key')).toBe('warning');
    expect(leftovers()).toEqual([0, 0]);
  });

  it('a refused key of the API server fails, one that does not answer is a warning', async () => {
    const refused = await check(['--port', await apiAnswering(401)]);
    expect([refused.code, refused.report.failed]).toEqual([1, 'api-key']);
    const silent = await check(['--port', String(await closedPort())]);
    expect([silent.code, statusOf(silent.report, 'api-key')]).toEqual([0, 'warning']);
  });

  it('a relay on loopback is reachable by no phone, without another route', async () => {
    // The relay knows; this command may see another RELAY_HOST.
    listenOn('127.0.0.1');
    onTestFinished(() => listenOn('0.0.0.0'));
    const { code, report } = await check();
    expect([code, report.failed]).toEqual([1, 'lan-address']);
  });

  it('without a relay, says so in words', async () => {
    const env = { SVC_HOME: agentHome(), RELAY_PORT: String(await closedPort()) };
    const { code, stdout } = await run(['pair', '--check'], { env });
    expect(code).toBe(1);
    expect(stdout).toMatch(
      /\[FAILED\] relay: nothing answers on 127\.0\.0\.1:\d+ \(no relay holds \S+\)\n\nA phone could not pair now: relay fails\.\nStart it with 'svc up'.*\n$/,
    );
  });

  it.each([
    [0, 'ok'],
    [-10 * 366 - 2, 'failed'],
    [2, 'failed'],
    [-3650 + 5, 'warning'],
  ])('a certificate made %i days from now: %s', async (days, status) => {
    const now = Date.now();
    const pem = await createIdentities().generate('127.0.0.1', now + days * 86_400_000);
    const server = createServer(pem, (socket) => socket.end());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    expect((await checkTls('127.0.0.1', (server.address() as AddressInfo).port, true, now)).status).toBe(status);
  });

  it('one route that works is enough', () => {
    const bad = failed('tailnet', 'x', 'y');
    expect(judgeRoutes([bad, ok('lan-address', 'x')])[0]?.status).toBe('warning');
    expect(judgeRoutes([bad, skipped('lan-address', 'x')])[0]?.status).toBe('failed');
  });
});
