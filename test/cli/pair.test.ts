import { existsSync, readdirSync, readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { encode } from 'uqr';
import { describe, expect, test } from 'vitest';
import { maskKey } from '../../cli/pair/print.ts';
import { signPayload } from '../../lib/pairing/signature.ts';
import { agentHome, fakeRelay, type Reply, run, type Seen } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { TIMED } from '../support/limits.ts';
import { readPng } from '../support/png.ts';

const KEY = 'sk-live-0123456789-xyz';
const health = { status: 'ok', version: '1.0.0' };
const tailnet = { address: '100.64.0.7', name: 'box.tail1.ts.net', servedPorts: [], funnelPorts: [] };

const linkTo = (payload: string) => `svc-relay://pair?payload=${Buffer.from(payload).toString('base64url')}`;

/** Mints roughly as the real relay does. */
function minted({ body = {} }: Seen): Reply {
  const { host, port, tls, api_key = '', endpoints, dashboard_url } = body;
  const api = host === undefined ? {} : { host, port, key: api_key, tls };
  const relay = { url: 'ws://192.168.1.20:8767', code: 'ABC123' };
  const payload = JSON.stringify({ svc: 3, ...api, relay, endpoints, dashboard_url, sig: 'c2ln' });
  return { body: { ok: true, code: 'ABC123', qr_payload: payload, pairing_url: linkTo(payload) } };
}

async function relayAnswering(answer: (seen: Seen) => Reply | 'hang' = minted, more: Record<string, string> = {}) {
  const relay = await fakeRelay((seen) => (seen.path === '/health' ? { body: health } : answer(seen)));
  const env = { SVC_HOME: agentHome(), RELAY_PORT: String(relay.port), API_SERVER_KEY: KEY, ...more };
  const sent = () => relay.seen.find(({ method }) => method === 'POST')?.body;
  const sentEndpoints = () => (sent()?.endpoints ?? []) as { role: string }[];
  return { ...relay, env, sent, sentEndpoints };
}

const payloadOf = (stdout: string): Record<string, unknown> => {
  const [, encoded = ''] = /svc-relay:\/\/pair\?payload=([\w-]+)/.exec(stdout) ?? [];
  return JSON.parse(Buffer.from(encoded, 'base64url').toString());
};

describe('options: an invalid value is named, exit 2, no network (01 §9.4)', () => {
  test.each([
    ['--ttl', 'soon'],
    ['--ttl', '0d'],
    ['--ttl', '101y'],
    ['--grants', 'terminal'],
    ['--grants', 'terminal=soon'],
    ['--only', 'chat,nope'],
    ['--only', ','],
    ['--without', 'terminal=1d'],
    ['--without', 'everything'],
    ['--grants', 'termnal=1d'],
    ['--host', 'http://x'],
    ['--host', 'a b'],
    ['--port', '0'],
    ['--port', '65536'],
    ['--port', '80x'],
    ['--dashboard-url', 'dash'],
    ['--dashboard-url', 'ftp://x'],
    ['--mode', 'wifi'],
    ['--mode', 'public'],
    ['--public-url', 'wss://x'],
    ['--public-url', 'https://x/?token=1'],
    ['--public-url', 'https:relay.example.com'],
    ['--public-url', 'https:///relay.example.com'],
    ['--register-code', 'ABC12'],
    ['--register-code', 'ABC12!'],
    ['--transport-hint', 'http'],
    ['--transport-hint', 'unknown'],
  ])('%s %s', async (flag, value) => {
    const relay = await relayAnswering();
    const { code, stdout, stderr } = await run(['pair', flag, value], relay);
    expect([code, stdout, relay.seen.length]).toEqual([2, '', 0]);
    expect(stderr).toMatch(new RegExp(`^error: ${flag}`));
  });

  test.each([
    ['--grants', 'termnal=1d', 'terminal'],
    ['--only', 'chat,fils', 'files'],
    ['--without', 'brigde', 'bridge'],
  ])('%s %s names the likely grant', async (flag, value, likely) => {
    const { stderr } = await run(['pair', flag, value]);
    expect(stderr).toContain(`is no grant; did you mean ${likely}?`);
  });

  test.each([
    [['--png', '--no-qr']],
    [['--json', '--token']],
    [['--json', '--no-qr']],
    [['--register-code', 'ABC123', '--no-relay']],
    [['--only', 'chat', '--without', 'terminal']],
    [['--only', 'chat', '--no-relay']],
    [['--without', 'chat', '--no-relay']],
    [['--only', 'chat', '--grants', 'terminal=1d']],
    [['--without', 'terminal', '--grants', 'chat=1d,terminal=1d']],
  ])('%j exclude each other', async (flags) => {
    const relay = await relayAnswering();
    expect((await run(['pair', ...flags], relay)).code).toBe(2);
    expect(relay.seen).toEqual([]);
  });
});

describe('with a running relay', () => {
  test('the request without options', async () => {
    const relay = await relayAnswering();
    const { code, stdout, stderr } = await run(['pair'], relay);
    expect([code, stderr]).toEqual([0, '']);
    expect(relay.seen.map(({ method, path }) => `${method} ${path}`)).toEqual([
      'GET /health',
      'POST /pairing/mint',
      'GET /relay/info',
    ]);
    expect(relay.sent()).toEqual({
      host: '192.168.1.20',
      port: 8642,
      tls: false,
      api_key: KEY,
      transport_hint: 'ws',
      endpoints: [
        {
          role: 'lan',
          priority: 0,
          api: { host: '192.168.1.20', port: 8642, tls: false },
          relay: { url: `ws://192.168.1.20:${relay.port}`, transport_hint: 'ws' },
        },
      ],
    });
    expect(stdout).toMatch(/URL +ws:\/\/192\.168\.1\.20:8767/);
    expect(stdout).toMatch(/Code +ABC123 \(expires in 10 min, one-shot\)/);
    expect(stdout).toMatch(/Lifetime +30 days/);
    expect(stdout).toMatch(/Server +http:\/\/192\.168\.1\.20:8642/);
    expect(stdout).toMatch(/Auth +API key required/);
    expect(stdout).toContain('hold credentials');
    expect(payloadOf(stdout)).toMatchObject({ relay: { code: 'ABC123' } });
  });

  test('every option that affects the request', async () => {
    const relay = await relayAnswering();
    const words =
      'pair --ttl 7d --grants terminal=1d,bridge=never --host api.example --port 9000 --dashboard-url http://d.example/ ' +
      '--transport-hint wss --public-url https://r.example --prefer LAN';
    const { stdout } = await run(words.split(' '), { ...relay, tailnet });
    expect(relay.sent()).toMatchObject({
      host: 'api.example',
      port: 9000,
      tls: false,
      ttl_seconds: 604_800,
      grants: { terminal: 86_400, bridge: 0 },
      transport_hint: 'wss',
      dashboard_url: 'http://d.example',
      endpoints: [
        { role: 'lan', priority: 0, api: { host: 'api.example', port: 9000 } },
        { role: 'tailscale', priority: 1 },
        { role: 'public', priority: 2 },
      ],
    });
    expect(stdout).toMatch(/Lifetime +7 days/);
    expect(stdout).toMatch(/Grants +terminal 1 day, bridge never expires/);
    expect(stdout).toMatch(/Dashboard +http:\/\/d\.example/);
  });

  const ALL_BUT_CHAT_AND_FILES = [
    'voice:config',
    'voice:stt',
    'voice:tts',
    'voice:realtime',
    'terminal',
    'tui',
    'desktop',
    'bridge',
    'profiles',
    'phone',
    'devices',
  ];

  test.each<[words: string, without: string[], shown: RegExp]>([
    ['--only chat,Files', ALL_BUT_CHAT_AND_FILES, /Grants +only chat, files\n/],
    ['--only chat,files --grants chat=1d', ALL_BUT_CHAT_AND_FILES, /Grants +only chat, files; chat 1 day\n/],
    ['--without terminal,bridge', ['terminal', 'bridge'], /Grants +defaults of the relay; without terminal, bridge\n/],
    ['--without bridge --grants chat=1d', ['bridge'], /Grants +chat 1 day; without bridge\n/],
  ])('%s makes a narrow session (09 §1)', async (words, without, shown) => {
    for (const command of ['pair', 'pair --register-code ABC123']) {
      const relay = await relayAnswering((seen) =>
        seen.path === '/pairing/mint' ? minted(seen) : { body: { ok: true } },
      );
      const { code, stdout, stderr } = await run([...command.split(' '), ...words.split(' ')], relay);
      expect(code).toBe(0);
      expect(relay.sent()?.without).toEqual(without);
      expect(stdout).toMatch(shown);
      if (command === 'pair') expect(stderr).toMatch(/^warning: .*the key of the API server/);
    }
  });

  test.each(['--only chat', '--without chat'])('%s without a relay pairs with nothing', async (words) => {
    const env = { SVC_HOME: agentHome(), RELAY_PORT: String(await closedPort()), API_SERVER_KEY: KEY };
    const { code, stdout, stderr } = await run(['pair', ...words.split(' ')], { env });
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^error: no relay answers on .*\nStart it with 'svc up'.*svc relay start.*\n$/);
  });

  test.each<[words: string, without: string[] | undefined]>([
    ['', ['bridge', 'desktop']],
    ['--without chat', ['chat', 'bridge', 'desktop']],
    ['--grants bridge=1d', ['desktop']],
    ['--grants bridge=1d,desktop=1d', undefined],
    ['--only chat,files', ALL_BUT_CHAT_AND_FILES],
  ])(
    '--web %s shows the address of the app, for a session without bridge and desktop (09 §5)',
    async (words, without) => {
      const relay = await relayAnswering();
      const { code, stdout, stderr } = await run(['pair', '--web', ...words.split(' ').filter(Boolean)], relay);
      expect([code, stderr]).toEqual([0, '']);
      expect(relay.sent()?.without).toEqual(without);
      expect(relay.sent()?.api_key).toBe(undefined);
      expect(stdout).toMatch(/^ {2}http:\/\/[\d.]+:\d+\/app\/#code=ABC123$/m);
      expect(stdout).not.toContain('svc-relay://');
      expect(stdout).not.toContain(KEY);
    },
  );

  test('--web prefers an address with a certificate that a browser can check (09 §5)', async () => {
    const relay = await relayAnswering();
    const words = ['pair', '--web', '--json', '--public-url', 'https://relay.example.com/base/'];
    const { stdout } = await run(words, relay);
    expect(JSON.parse(stdout).page_url).toBe('https://relay.example.com/base/app/#code=ABC123');
    const local = await run(['pair', '--web', '--json'], { ...relay, env: { ...relay.env, RELAY_HOST: '127.0.0.1' } });
    expect(JSON.parse(local.stdout).page_url).toBe(`http://localhost:${relay.port}/app/#code=ABC123`);
    expect(local.stderr).toBe('');
  });

  test('--prefer with an unknown role warns and changes nothing', async () => {
    const relay = await relayAnswering();
    const { code, stderr } = await run(['pair', '--prefer', 'pigeon'], { ...relay, tailnet });
    expect(code).toBe(0);
    expect(stderr).toMatch(/^warning: --prefer: /);
    expect(relay.sentEndpoints().map(({ role }) => role)).toEqual(['tailscale', 'lan']);
  });

  test.each([
    ['127.0.0.1', 'auto', true],
    ['localhost', 'lan', true],
    ['127.0.0.1', 'tailscale', false],
    ['0.0.0.0', 'auto', false],
  ])('RELAY_HOST %s, --mode %s: says that the local network does not reach it: %s', async (host, mode, warns) => {
    const relay = await relayAnswering(minted, { RELAY_HOST: host });
    const { code, stderr } = await run(['pair', '--mode', mode], { ...relay, tailnet });
    expect(code).toBe(0);
    expect(stderr).toBe(
      warns ? `warning: RELAY_HOST is ${host}: a phone cannot reach that relay over the local network\n` : '',
    );
  });

  test('a mode that this machine cannot offer: exit 1, nothing minted', async () => {
    const relay = await relayAnswering();
    expect((await run(['pair', '--mode', 'tailscale'], relay)).code).toBe(1);
    expect((await run(['pair', '--mode', 'lan'], { ...relay, lanAddress: null })).code).toBe(1);
    expect(relay.sent()).toBeUndefined();
  });

  test('without a key of its own, the command leaves the key to the relay', async () => {
    const relay = await relayAnswering(minted, { API_SERVER_KEY: '' });
    await run(['pair'], { ...relay, agentDown: true });
    expect(relay.sent()).not.toHaveProperty('api_key');
  });

  test('a disabled API server is not sent, unless a flag names it', async () => {
    const relay = await relayAnswering(minted, { API_SERVER_ENABLED: '0' });
    const { code, stdout } = await run(['pair'], relay);
    expect(code).toBe(0);
    expect(stdout).toContain('disabled');
    for (const member of ['host', 'port', 'tls', 'api_key']) expect(relay.sent()).not.toHaveProperty(member);
    expect(relay.sentEndpoints()[0]).not.toHaveProperty('api');

    const named = await relayAnswering(minted, { API_SERVER_ENABLED: '0' });
    await run(['pair', '--host', 'api.example'], named);
    expect(named.sent()).toMatchObject({ host: 'api.example', port: 8642 });
  });

  test.each([
    ['refused', { status: 403, body: { ok: false, error: 'loopback only' } }, 'loopback only (HTTP 403)'],
    ['no JSON', { body: '<html>' }, 'does not answer like a relay'],
    ['no payload', { body: { ok: true } }, 'does not answer like a relay'],
    ['payload of another type', { body: { qr_payload: '[1]', pairing_url: 'x' } }, 'does not answer like a relay'],
  ])('mint %s: exit 1, no relay block, no other payload', async (_, reply, message) => {
    const relay = await relayAnswering(() => reply);
    const { code, stdout, stderr } = await run(['pair'], relay);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^error: /);
    expect(stderr).toContain(message);
    expect(stderr).not.toContain(KEY);
  });
});

describe('without a relay', () => {
  test.each([['pair --api-only'], ['pair --no-relay']])('%s: the API server only, marker 1, signed', async (words) => {
    const home = agentHome();
    const env = { SVC_HOME: home, RELAY_PORT: String(await closedPort()), API_SERVER_KEY: KEY };
    const { code, stdout, stderr } = await run([...words.split(' '), '--dashboard-url', 'https://d.example'], { env });
    expect([code, stderr]).toEqual([0, '']);
    const payload = payloadOf(stdout);
    expect(payload).toMatchObject({
      svc: 1,
      host: '192.168.1.20',
      port: 8642,
      key: KEY,
      tls: false,
      dashboard_url: 'https://d.example',
    });
    expect(payload).not.toHaveProperty('relay');
    expect(Object.keys(payload).at(-1)).toBe('sig');
    expect(payload.sig).toBe(signPayload(payload as never, readFileSync(join(home, 'svc-relay-qr-secret'))));
    expect(stdout).not.toContain('one-shot');
  });

  test('11 §1: without --api-only no code is made: exit 1 with what was tried', async () => {
    const home = agentHome();
    const port = await closedPort();
    const env = { SVC_HOME: home, RELAY_PORT: String(port), API_SERVER_KEY: KEY };
    for (const words of [['pair'], ['pair', '--web'], ['pair', '--token'], ['pair', '--register-code', 'ABC123']]) {
      const { code, stdout, stderr } = await run(words, { env });
      expect([code, stdout], words.join(' ')).toEqual([1, '']);
      expect(stderr).toContain(`no relay answers on 127.0.0.1:${port}`);
      expect(stderr).toContain(`no relay holds ${home}/svc-relay/state.db`);
      expect(stderr).toContain("Start it with 'svc up'");
    }
  });

  test('11 §1: a relay whose only address is a wildcard: exit 1, no code', async () => {
    const payload = JSON.stringify({ svc: 3, relay: { url: 'ws://0.0.0.0:8767', code: 'ABC123' } });
    const relay = await relayAnswering(() => ({ body: { qr_payload: payload, pairing_url: linkTo(payload) } }));
    const { code, stdout, stderr } = await run(['pair'], { ...relay, lanAddress: null });
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain('no address that a device could reach');
  });

  test('11 §1: a code of a relay on loopback says so first, and in problems', async () => {
    const payload = JSON.stringify({ svc: 3, relay: { url: 'ws://127.0.0.1:8767', code: 'ABC123' } });
    const listener = { host: '127.0.0.1', port: 8767 };
    const relay = await relayAnswering(() => ({
      body: { qr_payload: payload, pairing_url: linkTo(payload), listener },
    }));
    const { code, stdout } = await run(['pair'], { ...relay, lanAddress: null });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^Only programs on this machine can use this code: .*ws:\/\/127\.0\.0\.1:8767/);
    expect(stdout.match(/on this machine can use/g)).toHaveLength(1);
    const json = JSON.parse((await run(['pair', '--json'], { ...relay, lanAddress: null })).stdout);
    expect(json.problems[0].text).toContain('only programs on this machine');
  });

  test('--no-relay calls no relay', async () => {
    const relay = await relayAnswering();
    expect((await run(['pair', '--no-relay'], relay)).code).toBe(0);
    expect(relay.seen).toEqual([]);
  });

  test('another server on the port is not taken for a relay', async () => {
    const other = await fakeRelay(() => ({ body: { hello: 'world' } }));
    const env = { SVC_HOME: agentHome(), RELAY_PORT: String(other.port) };
    const { code, stderr } = await run(['pair'], { env });
    expect(code).toBe(1);
    expect(stderr).toContain('is not a relay');
    expect(other.seen.map(({ path }) => path)).toEqual(['/health']);
  });

  test('a probe that hangs ends after a second', TIMED, async () => {
    const other = await fakeRelay(() => 'hang');
    const started = performance.now();
    await run(['pair'], { env: { SVC_HOME: agentHome(), RELAY_PORT: String(other.port) } });
    expect(performance.now() - started).toBeLessThan(2500);
  });

  test('nothing to pair with: exit 1', async () => {
    const env = { SVC_HOME: agentHome(), RELAY_PORT: String(await closedPort()), API_SERVER_ENABLED: 'off' };
    expect(await run(['pair', '--api-only'], { env })).toMatchObject({ code: 1, stdout: '' });
  });
});

describe('the API key in the output', () => {
  test.each([
    ['abcdefghi', 'abcd...ghi'],
    ['abcdefgh', '********'],
    ['a', '********'],
  ])('%s', (key, shown) => expect(maskKey(key)).toBe(shown));

  test('masked, and in full only with --show-key', async () => {
    const relay = await relayAnswering();
    const masked = await run(['pair'], relay);
    expect(masked.stdout).toContain('sk-l...xyz');
    expect(masked.stdout + masked.stderr).not.toContain(KEY);
    expect((await run(['pair', '--show-key'], relay)).stdout).toContain(KEY);
  });
});

describe('what is said about the API server', () => {
  test.each<[string, Reply, string, string | null]>([
    ['open', { body: { data: [] } }, 'open access: the API server has no key', null],
    ['locked', { status: 401 }, 'API key required, and none was found', 'requires a key'],
  ])('without a key, one that is %s', async (_, reply, shown, problem) => {
    const api = await fakeRelay(() => reply);
    const relay = await relayAnswering(minted, { API_SERVER_KEY: '' });
    const words = ['pair', '--port', String(api.port)];
    const { stdout, stderr } = await run(words, { ...relay, lanAddress: '127.0.0.1', agentDown: false });
    expect(stdout).toContain(shown);
    expect(api.seen.map(({ headers }) => headers.authorization)).toEqual([undefined]);
    if (problem === null) expect(stderr).toBe('');
    else expect(stderr).toContain(problem);
  });

  test('one that does not answer is never called open, and is said last', async () => {
    const relay = await relayAnswering(minted, { API_SERVER_KEY: '' });
    const { code, stdout, stderr } = await run(['pair'], { ...relay, agentDown: true });
    expect(code).toBe(0);
    expect(stdout).not.toContain('open access');
    expect(stdout).toMatch(/Auth +not known/);
    expect(stderr).toMatch(
      /^warning: the API server on http:\/\/192\.168\.1\.20:8642 does not answer.*\nStart the agent/,
    );
  });
});

describe('--json', () => {
  test('one document with the code, the link and the problems', async () => {
    const relay = await relayAnswering((seen) => {
      const reply = minted(seen);
      return { body: { ...(reply.body as object), expires_at: 1_790_000_600 } };
    });
    const { code, stdout, stderr } = await run(['pair', '--json'], { ...relay, tty: true, agentDown: true });
    expect([code, stderr]).toEqual([0, '']);
    const answer = JSON.parse(stdout);
    expect(answer).toMatchObject({
      ok: true,
      code: 'ABC123',
      expires_at: 1_790_000_600,
      api_state: 'silent',
      png: null,
    });
    // 11: the whole key is in the link that was asked for, and nowhere else without --show-key.
    expect(answer).toMatchObject({ contains_api_key: true });
    expect(answer).not.toHaveProperty('qr_payload');
    expect(stdout).not.toContain(KEY);
    const shown = JSON.parse((await run(['pair', '--json', '--show-key'], relay)).stdout);
    expect(shown.pairing_url).toBe(linkTo(shown.qr_payload));
    expect(answer.pairing_url).toBe(shown.pairing_url);
    expect(answer.routes).toEqual([{ role: 'lan', url: `ws://192.168.1.20:${relay.port}` }]);
    expect(answer.problems[0].text).toContain('does not answer');
  });
});

describe('pictures', () => {
  const pngs = (home: string) => readdirSync(home).filter((name) => name.endsWith('.png'));

  test.each([
    ['terminal', true, [], true, 0],
    ['terminal, --png', true, ['--png'], false, 1],
    ['terminal, --no-qr', true, ['--no-qr'], false, 0],
    ['pipe', false, [], false, 0],
    ['pipe, --png', false, ['--png'], false, 1],
  ] as const)('%s', async (_, tty, flags, drawn, files) => {
    const relay = await relayAnswering();
    const { stdout } = await run(['pair', ...flags], { ...relay, tty, columns: 100, rows: 60 });
    expect(stdout.includes('█')).toBe(drawn);
    expect(pngs(relay.env.SVC_HOME)).toHaveLength(files);
    for (const name of pngs(relay.env.SVC_HOME)) {
      const path = join(relay.env.SVC_HOME, name);
      expect(stdout).toContain(path);
      expect(statSync(path).mode & 0o777).toBe(0o600);
      const { side, pixels } = readPng(readFileSync(path));
      const payload = Buffer.from(/payload=([\w-]+)/.exec(stdout)?.[1] ?? '', 'base64url').toString();
      const expected = encode(payload, { ecc: 'L', boostEcc: false, border: 4 }).data;
      expect(side).toBe(expected.length * 8);
      expect(expected.every((row, y) => row.every((dark, x) => pixels[y * 8]?.[x * 8] === dark))).toBe(true);
    }
  });

  test.each([
    [80, 24],
    [40, 60],
    [undefined, undefined],
  ])('a terminal of %s x %s gets a file instead of half a code', async (columns, rows) => {
    const relay = await relayAnswering();
    const { stdout } = await run(['pair'], { ...relay, tty: true, columns, rows });
    expect(stdout).not.toContain('█');
    expect(stdout.replace(/\n/g, ' ')).toMatch(/Enlarge the window to \d+ columns and \d+ rows to see it here/);
    expect(stdout.replace(/\n/g, ' ')).toMatch(
      /svc-pair-[\w-]{16}\.png Delete the file after use\. The next 'svc pair' after \d\d:\d\d removes it/,
    );
    expect(pngs(relay.env.SVC_HOME)).toHaveLength(1);
  });

  test('the code fits into as many rows as it says, with everything below it', async () => {
    const relay = await relayAnswering();
    const size = { tty: true, columns: 20, rows: 5 };
    const { stdout } = await run(['pair'], { ...relay, ...size });
    const [, columns, rows] = /window to (\d+) columns and (\d+) rows/.exec(
      stdout.replace(/\n/g, ' '),
    ) as RegExpExecArray;
    const fits = await run(['pair'], { ...relay, tty: true, columns: Number(columns), rows: Number(rows) });
    expect(fits.stdout.trimEnd()).toMatch(/[█▀▄][^\n]{3,5}$/);
    for (const smaller of [{ columns: Number(columns) - 1 }, { rows: Number(rows) - 1 }]) {
      const size = { tty: true, columns: Number(columns), rows: Number(rows), ...smaller };
      expect((await run(['pair'], { ...relay, ...size })).stdout).not.toContain('█');
    }
  });

  test('above version 25 the code is a file on any terminal', async () => {
    const relay = await relayAnswering(() => {
      const payload = JSON.stringify({ svc: 3, relay: { url: 'ws://x', code: 'ABC123' }, filler: 'x'.repeat(1300) });
      return { body: { ok: true, qr_payload: payload, pairing_url: linkTo(payload) } };
    });
    const { stdout } = await run(['pair'], { ...relay, tty: true, columns: 500, rows: 500 });
    expect(stdout).not.toContain('█');
    expect(stdout).toContain('too large to scan off a terminal');
    expect(pngs(relay.env.SVC_HOME)).toHaveLength(1);
  });

  test('files of codes that are over are removed by the next call', async () => {
    const relay = await relayAnswering();
    const home = relay.env.SVC_HOME;
    const old = join(home, `svc-pair-${'a'.repeat(16)}.png`);
    const fresh = join(home, `svc-pair-${'b'.repeat(16)}.png`);
    for (const path of [old, fresh, join(home, 'other.png')]) writeFileSync(path, '');
    const elevenMinutesAgo = Date.now() / 1000 - 660;
    for (const path of [old, join(home, 'other.png')]) utimesSync(path, elevenMinutesAgo, elevenMinutesAgo);
    await run(['pair'], relay);
    expect(pngs(home).sort()).toEqual(['other.png', `svc-pair-${'b'.repeat(16)}.png`]);
  });

  test('08 §6.2: a payload above version 25 is a picture on a terminal too, and a link without one above version 40', async () => {
    const padded = (bytes: number) => (seen: Seen) => {
      const payload = JSON.stringify({
        ...JSON.parse((minted(seen).body as { qr_payload: string }).qr_payload),
        pad: 'x'.repeat(bytes),
      });
      return { body: { ok: true, code: 'ABC123', qr_payload: payload, pairing_url: linkTo(payload) } };
    };
    for (const [bytes, files] of [
      [2_200, 1],
      [3_000, 0],
    ] as const) {
      const relay = await relayAnswering((seen) =>
        seen.path === '/pairing/mint' ? padded(bytes)(seen) : { body: {} },
      );
      const { stdout } = await run(['pair'], { ...relay, tty: true });
      expect(stdout).not.toContain('█');
      expect(pngs(relay.env.SVC_HOME)).toHaveLength(files);
      for (const name of pngs(relay.env.SVC_HOME)) {
        expect(stdout).toContain(join(relay.env.SVC_HOME, name));
        const { side } = readPng(readFileSync(join(relay.env.SVC_HOME, name)));
        const { qr_payload } = padded(bytes)({ body: relay.sent() } as Seen).body;
        expect(side).toBe(encode(qr_payload, { ecc: 'L', boostEcc: false, border: 4 }).data.length * 8);
      }
      expect(payloadOf(stdout)).toHaveProperty('pad');
    }
  });

  test('colour on a terminal, none with NO_COLOR or in a pipe', async () => {
    const relay = await relayAnswering();
    const size = { tty: true, columns: 100, rows: 60 };
    expect((await run(['pair'], { ...relay, ...size })).stdout).toContain('\u001b[97m\u001b[40m█');
    expect((await run(['pair'], relay)).stdout).not.toContain('\u001b[');
    const plain = { ...relay.env, NO_COLOR: '1' };
    expect((await run(['pair'], { env: plain, ...size })).stdout).not.toContain('\u001b[');
  });

  test('too much for a QR code: a warning and the link', async () => {
    const relay = await relayAnswering(() => {
      const payload = JSON.stringify({ svc: 3, relay: { url: 'ws://x', code: 'ABC123' }, filler: 'x'.repeat(3000) });
      return { body: { ok: true, qr_payload: payload, pairing_url: linkTo(payload) } };
    });
    const { code, stdout, stderr } = await run(['pair'], { ...relay, tty: true });
    expect(code).toBe(0);
    expect(stderr).toContain('too much for a QR code');
    expect(stdout).toContain('svc-relay://pair?payload=');
  });
});

describe('--register-code', () => {
  const ok = ({ body }: Seen): Reply => ({ body: { ok: true, code: body?.code } });

  test('registers the code with its policy and prints the next steps', async () => {
    const relay = await relayAnswering(ok);
    const words = 'pair --register-code abc123 --ttl 1d --grants bridge=1h --transport-hint wss';
    const { code, stdout, stderr } = await run(words.split(' '), relay);
    expect([code, stderr]).toEqual([0, '']);
    expect(relay.seen.map(({ path }) => path)).toEqual(['/health', '/pairing/register']);
    expect(relay.sent()).toEqual({
      code: 'ABC123',
      ttl_seconds: 86_400,
      grants: { bridge: 3600 },
      transport_hint: 'wss',
    });
    for (const text of ['ABC123', `127.0.0.1:${relay.port}`, 'wss', '1 day', 'bridge 1 hour', '1.', '2.', '3.']) {
      expect(stdout).toContain(text);
    }
  });

  test('--json prints one document (11 §1)', async () => {
    const relay = await relayAnswering(() => ({ body: { ok: true, code: 'ABC123' } }));
    const { code, stdout, stderr } = await run(['pair', '--register-code', 'abc123', '--json'], relay);
    expect([code, stderr]).toEqual([0, '']);
    expect(JSON.parse(stdout)).toEqual({
      ok: true,
      code: 'ABC123',
      relay_url: null,
      port: relay.port,
      transport: 'ws',
    });
  });

  test('a numeric code keeps its leading zeros', async () => {
    const relay = await relayAnswering(ok);
    await run(['pair', '--register-code', '000123'], relay);
    expect(relay.sent()).toEqual({ code: '000123', transport_hint: 'ws' });
  });

  test('relay down or refusing: exit 1', async () => {
    const down = { SVC_HOME: agentHome(), RELAY_PORT: String(await closedPort()) };
    expect(await run(['pair', '--register-code', 'ABC123'], { env: down })).toMatchObject({ code: 1, stdout: '' });
    const relay = await relayAnswering(() => ({ status: 429, body: { ok: false, error: 'too many codes' } }));
    const refused = await run(['pair', '--register-code', 'ABC123'], relay);
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(refused.stderr).toContain('too many codes (HTTP 429)');
    expect(existsSync(join(relay.env.SVC_HOME, 'svc-relay-qr-secret'))).toBe(false);
  });
});
