import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createUsers } from '../../../../lib/host/node/users.ts';
import type { ProbeResult } from '../../../../lib/host/probe.ts';
import {
  type OperatorFacts,
  operatorCheck,
  readOperator,
  toolsCheck,
} from '../../../../lib/operator/doctor/operator.ts';

const FACTS: OperatorFacts = {
  requireKey: false,
  uids: [],
  hasKey: true,
  hasDesktopToken: false,
  own: 1000,
  listeners: [1000],
};

const answer = (status: number | null, error?: string): ProbeResult => ({
  ok: status === 200,
  exists: status !== null,
  status,
  method: 'GET',
  url: 'http://127.0.0.1:8767/relay/info',
  json: error === undefined ? undefined : { ok: false, error },
});

const NGINX = { pid: 12, program: 'nginx', ports: [80] };
/** The answer of a relay that says who operates it. */
const says = (keyRequired: boolean, forwarders: unknown[] = []): ProbeResult => ({
  ...answer(200),
  json: { operator: { key_required: keyRequired, forwarders } },
});

describe('relay-operator: which rule holds here (contract 01 §1.3 rule 6)', () => {
  it.each<[string, Partial<OperatorFacts>, ProbeResult, string, RegExp, RegExp?]>([
    ['the own user', {}, answer(200), 'ok', /^only user 1000 may operate the relay; any other needs the operator key$/],
    ['further users', { uids: [5, 6] }, answer(200), 'ok', /^only user 1000, 5, 6 may/],
    ['a relay of another user', { own: 0, listeners: [1000] }, answer(200), 'ok', /^only user 1000 may/],
    ['a relay that is not running', { listeners: [] }, answer(null), 'ok', /^only user 1000 may/],
    [
      'a system that does not tell',
      { listeners: 'untold' },
      answer(200),
      'warn',
      /does not tell .* any user of it can operate the relay/,
      /RELAY_REQUIRE_OPERATOR_KEY=1/,
    ],
    ['the key required there', { listeners: 'untold', requireKey: true }, answer(200), 'ok', /every caller needs/],
    ['the key required, and readable', { requireKey: true }, answer(200), 'ok', /every caller needs the operator key/],
    [
      'the key required by a variable that the relay has not read',
      { requireKey: true, hasKey: false },
      answer(200),
      'warn',
      /does not ask for it/,
      /Restart/,
    ],
    [
      'another user, who cannot read the key',
      { own: 1001, hasKey: false },
      answer(403, 'without X-Svc-Operator-Key only the user that runs the relay may call this'),
      'warn',
      /refuses this command: without X-Svc-Operator-Key only the user/,
      /Run this as user 1000, or name this user in RELAY_OPERATOR_UIDS/,
    ],
    [
      'a refusal where nothing is told',
      { listeners: 'untold', hasKey: false },
      answer(403),
      'warn',
      /HTTP 403/,
      /Run this as the user that runs the relay/,
    ],
    [
      'both addresses',
      {
        portListeners: [
          { address: '127.0.0.1', uid: 1000, pid: 7, program: 'node svc.js' },
          { address: '::1', uid: 1000 },
        ],
      },
      answer(200),
      'ok',
      /needs the operator key; it listens on 127\.0\.0\.1 \(node svc\.js, user 1000\) and \[::1\] \(user 1000\)$/,
    ],
    [
      'an API server of another user',
      { servers: [{ name: 'the API server', listeners: [{ address: '::1', uid: 65534, program: 'nc' }] }] },
      answer(200),
      'warn',
      /^the API server is served by \[::1\] \(nc, user 65534\), so the relay sends it no credential$/,
      /RELAY_OPERATOR_UIDS=65534 /,
    ],
    [
      'an API server of a user that is trusted',
      { uids: [7], servers: [{ name: 'the API server', listeners: [{ address: '127.0.0.1', uid: 7 }] }] },
      answer(200),
      'ok',
      /^only user/,
    ],
    [
      'a proxy that runs as the user of the relay',
      { proxies: [{ pid: 12, program: 'nginx', ports: [80, 443] }] },
      answer(200),
      'warn',
      /^nginx \(process 12, listens on 80, 443\) calls the relay as the relay's own user/,
      /RELAY_REQUIRE_OPERATOR_KEY=1/,
    ],
    [
      'such a proxy where the relay decides',
      { requireKey: undefined, proxies: [{ pid: 12, program: 'nginx', ports: [80] }] },
      answer(200),
      'warn',
      /^nginx \(process 12, listens on 80\) calls the relay/,
      /RELAY_REQUIRE_OPERATOR_KEY=1/,
    ],
    [
      'such a proxy where the key is required',
      { requireKey: true, proxies: [{ pid: 12, program: 'nginx', ports: [80] }] },
      answer(200),
      'ok',
      /every caller needs/,
    ],
    [
      'one that the relay has seen, and that holds no connection now',
      {},
      says(false, [NGINX]),
      'warn',
      /^nginx \(process 12, listens on 80\) calls the relay/,
      /RELAY_REQUIRE_OPERATOR_KEY=1/,
    ],
    ['a server behind the relay that the relay has seen', { known: [12] }, says(false, [NGINX]), 'ok', /^only user/],
    ['nonsense in place of programs', {}, says(false, [null, {}, { ...NGINX, ports: '80' }]), 'ok', /^only user/],
    [
      'a relay that asks for the key by itself',
      { requireKey: undefined },
      says(true, [NGINX]),
      'ok',
      /^every caller needs the operator key: a URL .* leads to a proxy on this machine$/,
    ],
    ['a relay that asks for the key as it is told', { requireKey: true }, says(true), 'ok', /the operator key$/],
    [
      'the key required by a variable, and a relay that says that it does not ask',
      { requireKey: true },
      says(false),
      'warn',
      /does not ask for it/,
      /Restart/,
    ],
  ])('%s', (_name, facts, info, status, summary, next) => {
    const check = operatorCheck({ ...FACTS, ...facts }, info);
    expect(check).toMatchObject({ id: 'relay-operator', status, summary: expect.stringMatching(summary) });
    if (next) expect(check.next).toMatch(next);
    else expect(check.next).toBeUndefined();
  });
});

describe('relay-host-tools: what tools of this machine send', () => {
  const sessions = answer(401, 'tools on this host send X-Svc-Operator: 1 instead');
  const desktop = answer(401, 'tools on this host send the token in DESKTOP_RELAY_TOKEN');
  const all = { info: answer(200), sessions, desktop };

  it('looks for both in the refusals of the relay', () => {
    expect(toolsCheck(FACTS, all).status).toBe('ok');
    expect(toolsCheck(FACTS, { ...all, sessions: answer(401) }).status).toBe('warn');
    expect(toolsCheck(FACTS, { ...all, desktop: answer(401) }).status).toBe('warn');
  });

  it('names the operator key where the relay requires it', () => {
    expect(toolsCheck(FACTS, all).summary).not.toContain('operator key');
    expect(toolsCheck({ ...FACTS, requireKey: true }, all).summary).toContain('X-Svc-Operator: 1 and the operator key');
    expect(toolsCheck(FACTS, { ...all, info: says(true) }).summary).toContain('1 and the operator key');
  });

  it('looks for DESKTOP_RELAY_TOKEN in the environment', () => {
    expect(toolsCheck(FACTS, all).summary).toContain('DESKTOP_RELAY_TOKEN, which is not set here');
    expect(toolsCheck({ ...FACTS, hasDesktopToken: true }, all).summary).toContain('which is set here');
  });

  it('knows nothing while the relay does not answer, or refuses', () => {
    const none = { info: answer(null), sessions: answer(null), desktop: answer(null) };
    expect(toolsCheck(FACTS, none)).toMatchObject({
      status: 'warn',
      isUnknown: true,
      summary: expect.stringContaining('not known'),
    });
  });
});

describe('relay-operator: who listens where (contract 01 §9.1a)', () => {
  const SETTINGS = { requireKey: false, uids: [], hasKey: true, hasDesktopToken: false };

  it('finds a proxy that holds a connection to the relay, and no server behind it', async () => {
    const [relay, api, proxy] = await Promise.all([listening(), listening(), forwarder()]);
    const users = createUsers();
    const read = (except: number | null) =>
      readOperator({ users }, relay, SETTINGS, {
        urls: [
          ['the API server', `http://localhost:${api}`],
          ['the dashboard', 'https://elsewhere.test'],
        ],
        process: async () => except,
      });
    proxy.forwardTo(relay);
    await expect
      .poll(async () => (await read(null)).proxies)
      .toEqual([{ pid: proxy.pid, program: 'node', ports: [proxy.port] }]);
    const facts = await read(proxy.pid);
    const own = { address: '127.0.0.1', uid: users.own, pid: process.pid, program: expect.any(String) };
    expect(facts).toMatchObject({
      portListeners: [own],
      proxies: [],
      servers: [{ name: 'the API server', listeners: [own] }],
    });
  });
});

async function listening(): Promise<number> {
  const server = createServer(() => {}).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

/** A process that listens on a port of its own, and keeps a connection to the one it is told. */
async function forwarder() {
  const child = spawn(process.execPath, ['-e', FORWARDER], { stdio: ['pipe', 'pipe', 'inherit'] });
  const closed = once(child, 'close');
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await closed;
  });
  const [port] = await once(child.stdout, 'data');
  return {
    pid: child.pid as number,
    port: Number(String(port)),
    forwardTo: (to: number) => child.stdin.write(`${to}`),
  };
}

const FORWARDER = `
  const { connect, createServer } = require('node:net');
  const server = createServer().listen(0, '127.0.0.1', () => console.log(server.address().port));
  process.stdin.on('data', (port) => connect(Number(port), '127.0.0.1'));
`;
