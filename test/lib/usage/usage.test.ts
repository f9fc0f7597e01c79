import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { readConfig } from '../../../lib/config.ts';
import { createNodeUpstream } from '../../../lib/host/node/upstream.ts';
import { sha256 } from '../../../lib/kit/sha256.ts';
import { usagePrefix } from '../../../lib/usage/openai-codex.ts';
import type { ProviderUsage } from '../../../lib/usage/provider.ts';
import { createUsage } from '../../../lib/usage/usage.ts';
import { createTestClock } from '../../support/clock.ts';
import { type Exchange, startFakeApi } from '../../support/fake-api-server.ts';
import { createTestHost } from '../../support/host.ts';
import { createTestLog } from '../../support/log.ts';
import { temporaryDirectory } from '../../support/temp.ts';

const SECRET = 'tok-5ecret';
const publicId = (raw: string) => sha256(raw).slice(0, 12);
const claims = (accountId: string) =>
  `h.${Buffer.from(JSON.stringify({ 'https://api.openai.com/auth': { chatgpt_account_id: accountId } })).toString('base64url')}.s`;

/** Good responses of every provider; a case changes what it is about. */
const GOOD: Record<string, unknown> = {
  '/backend-api/wham/usage': {
    plan_type: 'pro_plus',
    rate_limit: {
      primary_window: { used_percent: 12.5, limit_window_seconds: 18000, reset_at: 1790000000 },
      secondary_window: { used_percent: 140, limit_window_seconds: 604800, reset_at: 'later' },
    },
    credits: { balance: '7.5' },
  },
  '/api/oauth/account': {
    organisation: { slug: 'a b' },
    subscription: {
      plan: 'Plus',
      monthly_credits: 20,
      credits_remaining: 5,
      rollover_credits: 1.5,
      current_period_end: '2026-12-01T00:00:00Z',
    },
    paid_service_access: {
      total_usable_credits: 9.5,
      subscription_credits_remaining: 5,
      purchased_credits_remaining: Number.MAX_VALUE,
    },
  },
  '/zen/go/v1/usage': {
    usage: {
      rolling: { percent: 1, resetsAt: '2026-12-01T00:00:00Z' },
      weekly: { percent: -3, resetsAt: 1790000000 },
      monthly: { percent: 'much' },
    },
  },
  '/v1/user': { userId: 'u-1', email: 'private@example.org' },
  '/v1/billing': {
    config: {
      subscriptionTier: 'SuperGrok Heavy',
      used: { val: '25' },
      monthlyLimit: { val: 100 },
      currentPeriod: { type: 'USAGE_PERIOD_TYPE_MONTHLY', end: '2026-12-01T00:00:00Z' },
      productUsage: [
        { product: 'GrokBuild', usagePercent: 10 },
        { product: 'NoFigure' },
        { product: 'Imagine', usagePercent: 200 },
      ],
      onDemandUsed: { val: 125 },
      onDemandCap: { val: 500 },
      prepaidBalance: { val: 99 },
    },
  },
};

const pool = (...entries: object[]) => ({ credential_pool: { 'openai-codex': entries } });
const entry = (id: string, rest: object = {}) => ({
  id,
  label: `Label ${id}`,
  access_token: `${SECRET}-${id}`,
  ...rest,
});

async function setup({ files = {}, env = {} }: { files?: Record<string, unknown>; env?: Record<string, string> } = {}) {
  const home = await temporaryDirectory();
  const write = async (name: string, content: unknown) => {
    await mkdir(dirname(join(home, name)), { recursive: true });
    await writeFile(join(home, name), typeof content === 'string' ? content : JSON.stringify(content));
  };
  for (const [name, content] of Object.entries(files)) await write(name, content);
  const api = await startFakeApi();
  const answers = new Map(Object.entries(GOOD));
  api.onAny((exchange) => {
    const answer = answers.get(exchange.path);
    if (typeof answer === 'function') return answer(exchange);
    exchange.answer(answer === undefined ? 404 : 200, answer ?? {});
  });
  const clock = createTestClock();
  const log = createTestLog();
  const { config } = readConfig({}, { home, agentHome: home });
  const usage = createUsage({
    host: createTestHost({ agentHome: home, env }),
    config,
    clock,
    log,
    upstream: createNodeUpstream(),
    bases: {
      codex: `${api.url}/backend-api/codex/`,
      nous: `${api.url}/`,
      opencodeGo: `${api.url}/zen/go/v1`,
      supergrok: api.url,
    },
  });
  const report = (profile = '', sessionId = '') => usage.report({ profile, sessionId });
  return {
    home,
    usage,
    api,
    answers,
    clock,
    log,
    write,
    report,
    /** The row of one provider. */
    async row(id: string, sessionId = '', profile = ''): Promise<ProviderUsage> {
      const row = (await report(profile, sessionId)).providers.find((provider) => provider.id === id);
      if (!row) throw new Error(`no ${id}`);
      return row;
    },
    /** Requests of one path. */
    asked: (path: string) => api.requests.filter((exchange) => exchange.path === path),
  };
}

const ALL = {
  'auth.json': {
    providers: {
      nous: { access_token: `${SECRET}-nous` },
      'xai-oauth': { tokens: { access_token: `${SECRET}-xai`, refresh_token: `${SECRET}-refresh` } },
    },
    ...pool(entry('one', { last_status: 'ok', last_status_at: 1789999999, account_id: 'acct-9' })),
  },
  '.env': `OPENCODE_GO_API_KEY=${SECRET}-go\n`,
};

describe('provider usage (04 §9)', () => {
  it('calls nobody without credentials, and shows every key', async () => {
    const { report, api } = await setup();
    const { providers, ...rest } = await report();
    expect(rest).toEqual({
      schema_version: 2,
      fetched_at: new Date(1_790_000_000_000).toISOString(),
      capabilities: ['credential_pools', 'structured_balances', 'opencode_go', 'supergrok'],
    });
    const empty = { windows: [], details: [], balances: [], credentials: [] };
    const unknown = { active_credential_id: null, active_credential_state: 'unknown', active_observed_at: null };
    const nothing = { source: null, fetched_at: null, plan: null, renews_at: null, action_url: null, message: null };
    expect(providers).toEqual(
      [
        ['openai-codex', 'Codex'],
        ['nous', 'Nous'],
        ['opencode-go', 'OpenCode Go'],
        ['supergrok', 'SuperGrok'],
      ].map(([id, name]) => ({ id, display_name: name, status: 'not_configured', ...nothing, ...empty, ...unknown })),
    );
    expect(api.requests).toEqual([]);
  });

  it('calls each provider in its own way', async () => {
    const { report, api, asked } = await setup({ files: ALL });
    await report();
    expect(api.requests.map(({ method }) => method)).toEqual(Array(5).fill('GET'));
    const [codex] = asked('/backend-api/wham/usage');
    expect(codex?.headers).toMatchObject({
      authorization: `Bearer ${SECRET}-one`,
      accept: 'application/json',
      'user-agent': 'codex-cli',
      'chatgpt-account-id': 'acct-9',
    });
    expect(asked('/api/oauth/account')[0]?.headers.authorization).toBe(`Bearer ${SECRET}-nous`);
    expect(asked('/zen/go/v1/usage')[0]?.headers).toMatchObject({
      authorization: `Bearer ${SECRET}-go`,
      'user-agent': 'curl/8.4.0',
    });
    expect(asked('/v1/user')[0]?.headers.authorization).toBe(`Bearer ${SECRET}-xai`);
    expect(asked('/v1/user')[0]?.headers).not.toHaveProperty('x-userid');
    const [billing] = asked('/v1/billing');
    expect(billing?.headers).toMatchObject({ authorization: `Bearer ${SECRET}-xai`, 'x-userid': 'u-1' });
    expect(billing?.query.get('format')).toBe('credits');
  });

  it('shows their responses, and no secret', async () => {
    const { report, log } = await setup({ files: ALL });
    const { providers } = await report('default', 'nobody');
    const reset = '2026-12-01T00:00:00Z';
    const shown = new Date(1_790_000_000_000).toISOString();
    const window = (id: string, label: string, used: number | null, reset_at: string | null = null) => ({
      id,
      label,
      used_percent: used,
      reset_at,
      detail: null,
    });
    const windows = [window('session', 'Session', 12.5, shown), window('weekly', 'Weekly', 100)];
    expect(providers[0]).toMatchObject({
      status: 'available',
      source: 'usage_api',
      fetched_at: shown,
      plan: 'Pro Plus',
      windows,
      details: ['0 available · 1 at limit · 1 total'],
      active_credential_id: publicId('one'),
      active_credential_state: 'single_credential',
    });
    expect(Object.keys(providers[0]?.credentials[0] ?? {}).join(' ')).toBe(
      'id label active status pool_status last_status_at reset_at plan windows details message',
    );
    expect(providers[0]?.credentials).toEqual([
      {
        id: publicId('one'),
        label: 'Label one',
        active: true,
        status: 'at_limit',
        pool_status: 'ok',
        last_status_at: '2026-09-21T14:13:19.000Z',
        reset_at: null,
        plan: 'Pro Plus',
        windows,
        details: ['Credits balance: 7.5'],
        message: null,
      },
    ]);
    expect(providers[1]).toMatchObject({
      status: 'available',
      source: 'portal-account',
      plan: 'Plus',
      renews_at: reset,
      action_url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+\/orgs\/a%20b\/billing\?topup=open$/),
      windows: [window('subscription', 'Subscription', 75, reset)],
      balances: [
        { id: 'total', label: 'Total usable', amount: 9.5, currency: 'USD' },
        { id: 'subscription', label: 'Subscription', amount: 5, currency: 'USD' },
        { id: 'top_up', label: 'Top-up', amount: Number.MAX_VALUE, currency: 'USD' },
        { id: 'rollover', label: 'Rollover', amount: 1.5, currency: 'USD' },
      ],
      details: [],
    });
    expect(providers[2]).toMatchObject({
      source: 'provider_api',
      windows: [window('rolling', 'Session · 5h', 1, reset), window('weekly', 'Weekly', 0, shown)],
    });
    expect(providers[3]).toMatchObject({
      plan: 'SuperGrok Heavy',
      windows: [
        window('period', 'Monthly', 25, reset),
        window('product_grokbuild', 'Grok Build', 10),
        window('product_imagine', 'Imagine', 100),
      ],
      details: ['On-demand: $1.25 used of $5.00', 'Prepaid balance: $0.99'],
    });
    for (const text of [JSON.stringify(providers), log.lines.join()]) {
      for (const secret of [SECRET, 'acct-9', 'u-1', 'private@']) expect(text).not.toContain(secret);
    }
  });

  it.each<[string, (exchange: Exchange) => void, string]>([
    ['a refusal', (exchange) => exchange.answer(401, { error: SECRET }), 'Provider returned HTTP 401'],
    ['a redirect', (exchange) => exchange.answer(302, '', { location: '/stolen' }), 'Provider returned HTTP 302'],
    ['no JSON', (exchange) => exchange.answer(200, '<html>'), 'Provider returned an unsupported usage payload'],
    ['a list', (exchange) => exchange.answer(200, []), 'Provider returned an unsupported usage payload'],
    ['another object', (exchange) => exchange.answer(200, { ok: 1 }), 'Provider returned an unsupported usage payload'],
    [
      'more than a mebibyte',
      (exchange) => exchange.answer(200, { usage: 'x'.repeat(1024 * 1024) }),
      'Provider returned an unsupported usage payload',
    ],
    ['no windows', (exchange) => exchange.answer(200, { usage: {} }), 'Provider returned no usage windows'],
    ['a broken connection', (exchange) => exchange.cut(), 'Could not load OpenCode Go usage'],
  ])('%s of one provider affects its own row only', async (_name, answer, message) => {
    const { report, answers, asked, log } = await setup({ files: ALL });
    answers.set('/zen/go/v1/usage', answer);
    const { providers } = await report();
    expect(providers.map(({ status }) => status)).toEqual(['available', 'available', 'unavailable', 'available']);
    expect(providers[2]).toMatchObject({ message, windows: [], fetched_at: expect.any(String) });
    expect(asked('/stolen')).toEqual([]);
    expect(log.lines.join()).not.toContain(SECRET);
  });

  it('gives up on a silent provider after 15 s, on Nous after 8 s, and on everything after 20 s', async () => {
    const { report, answers, clock, api } = await setup({ files: ALL });
    for (const path of ['/api/oauth/account', '/zen/go/v1/usage', '/v1/billing']) answers.set(path, () => {});
    // SuperGrok takes two calls of at most 15 s each.
    let answerUser = () => {};
    answers.set('/v1/user', (exchange: Exchange) => {
      answerUser = () => exchange.answer(200, { userId: 'u-1' });
    });
    const pending = report();
    await vi.waitFor(() => expect(api.requests).toHaveLength(4));
    const gone = (path: string) => api.requests.find((exchange) => exchange.path === path)?.abandoned;
    clock.advance(7_999);
    clock.advance(1);
    await vi.waitFor(() => expect(gone('/api/oauth/account')).toBe(true));
    expect(gone('/zen/go/v1/usage')).toBe(false);
    clock.advance(6_000);
    answerUser();
    await vi.waitFor(() => expect(gone('/v1/billing')).toBe(false));
    clock.advance(1_000);
    await vi.waitFor(() => expect(gone('/zen/go/v1/usage')).toBe(true));
    expect(gone('/v1/billing')).toBe(false);
    clock.advance(5_000);
    const { providers } = await pending;
    expect(providers.map(({ message }) => message)).toEqual([
      null,
      'Could not load Nous usage',
      'Could not load OpenCode Go usage',
      'Could not load SuperGrok usage',
    ]);
    expect(clock.pending).toBe(0);
  });

  it('shares one query among concurrent reports and for half a minute, but not a failure', async () => {
    const { report, answers, clock, asked } = await setup({ files: ALL });
    const codex = () => asked('/backend-api/wham/usage').length;
    await Promise.all([report(), report('default', 's1'), report('', 's2')]);
    clock.advance(29_999);
    await report();
    expect(codex()).toBe(1);
    clock.advance(1);
    answers.set('/v1/user', (exchange: Exchange) => exchange.answer(500, {}));
    await report();
    expect(codex()).toBe(2);
    await report();
    expect(codex()).toBe(3);
  });

  it.each(['nobody', 'a/b', '..', 'Über', 'no-config', 'x'.repeat(65)])('refuses the profile %j', async (profile) => {
    const { report } = await setup({ files: { 'profiles/no-config/auth.json': {} } });
    await expect(report(profile)).rejects.toMatchObject({ kind: 'invalid', message: 'invalid or unknown profile' });
  });

  it("uses a profile's own credentials, then the agent home's, then the environment", async () => {
    const { row, asked, api } = await setup({
      files: {
        'auth.json': { providers: { nous: { access_token: 'root-nous' } }, ...pool(entry('root')) },
        '.env': 'OPENCODE_GO_API_KEY=root-go',
        active_profile: 'work',
        'profiles/work/config.yaml': '',
        'profiles/work/auth.json': pool(entry('work')),
      },
      env: { OPENCODE_GO_API_KEY: 'env-go' },
    });
    expect((await row('openai-codex', '', ' WORK ')).credentials.map(({ label }) => label)).toEqual(['Label work']);
    expect(asked('/api/oauth/account')[0]?.headers.authorization).toBe('Bearer root-nous');
    expect(asked('/zen/go/v1/usage')[0]?.headers.authorization).toBe('Bearer env-go');
    // The marker makes it the default, too.
    await row('openai-codex');
    expect(api.requests.filter(({ headers }) => headers.authorization?.includes('root-go'))).toEqual([]);
  });

  it.each([
    ['missing', undefined],
    ['no JSON', '{'],
    ['a list', '[]'],
    ['of other types', { providers: [], credential_pool: { 'openai-codex': { a: 1 }, nous: ['x', null, 5] } }],
    ['too large', JSON.stringify({ ...pool(entry('one')), filler: 'x'.repeat(1024 * 1024) })],
  ])('ignores an auth.json that is %s', async (_name, content) => {
    const { report } = await setup({ files: content === undefined ? {} : { 'auth.json': content } });
    expect((await report()).providers.map(({ status }) => status)).toEqual(Array(4).fill('not_configured'));
  });
});

describe('Codex credentials', () => {
  it.each([
    ['https://chatgpt.com/backend-api/codex', 'https://chatgpt.com/backend-api/wham'],
    ['https://chatgpt.com/backend-api/codex///', 'https://chatgpt.com/backend-api/wham'],
    ['https://proxy.example/backend-api', 'https://proxy.example/backend-api/wham'],
    ['https://proxy.example/codex', 'https://proxy.example/api/codex'],
    ['https://proxy.example/', 'https://proxy.example/api/codex'],
  ])('the usage routes of %s are at %s', (base, prefix) => {
    expect(usagePrefix(base)).toBe(prefix);
  });

  it('takes the first eight of the pool by priority, each with its own token and account', async () => {
    const entries = Array.from({ length: 10 }, (_, at) => entry(`e${at}`, { priority: 10 - at }));
    entries[9] = { ...entry('e9', { priority: 1 }), access_token: claims('acct-jwt') };
    const { row, asked } = await setup({ files: { 'auth.json': pool(...entries) } });
    const { credentials, details, active_credential_state: state, windows, source } = await row('openai-codex');
    expect(credentials.map(({ label }) => label)).toEqual([9, 8, 7, 6, 5, 4, 3, 2].map((at) => `Label e${at}`));
    expect(details).toEqual(['0 available · 8 at limit · 8 total']);
    expect([state, windows, source]).toEqual(['unknown', [], 'credential_pool']);
    const accounts = asked('/backend-api/wham/usage').map(({ headers }) => headers['chatgpt-account-id']);
    expect(accounts.filter((account) => account !== undefined)).toEqual(['acct-jwt']);
  });

  it('derives a status from the pool, the windows or the response', async () => {
    const { row, answers } = await setup({
      files: {
        'auth.json': pool(
          entry('dead', { last_status: 'dead' }),
          entry('tired', { last_status: 'Exhausted', last_error_reset_at: 1790000000 }),
          entry('fine', { label: 'x'.repeat(100) }),
          entry('full'),
          entry('refused'),
          { id: 'no-token', label: 5 },
          entry('elsewhere', { base_url: 'http://192.0.2.1/codex' }),
        ),
      },
    });
    answers.set('/backend-api/wham/usage', (exchange: Exchange) => {
      const { authorization = '' } = exchange.headers;
      const used = authorization.endsWith('full') ? 100 : 5;
      if (authorization.endsWith('refused')) exchange.answer(403, {});
      else exchange.answer(200, { rate_limit: { primary_window: { used_percent: used } } });
    });
    const { credentials, details, status } = await row('openai-codex');
    expect(credentials.map(({ label, status, message }) => [label, status, message])).toEqual([
      ['Label dead', 'unavailable', null],
      ['Label tired', 'at_limit', null],
      ['x'.repeat(80), 'available', null],
      ['Label full', 'at_limit', null],
      ['Label refused', 'unavailable', 'Provider returned HTTP 403'],
      ['Credential 6', 'unavailable', 'Could not load Codex usage'],
      // A token is sent in the clear to this machine only.
      ['Label elsewhere', 'unavailable', 'Could not load Codex usage'],
    ]);
    expect(credentials[1]).toMatchObject({ pool_status: 'exhausted', reset_at: new Date(1.79e12).toISOString() });
    expect([status, details]).toEqual(['available', ['1 available · 2 at limit · 7 total']]);
  });

  it('falls back to the login without a pool', async () => {
    const tokens = { access_token: claims('a'), account_id: 'stored' };
    const { row, asked } = await setup({ files: { 'auth.json': { providers: { 'openai-codex': { tokens } } } } });
    expect((await row('openai-codex')).credentials).toMatchObject([{ label: 'Credential 1', active: true }]);
    expect(asked('/backend-api/wham/usage')[0]?.headers['chatgpt-account-id']).toBe('stored');
  });

  const NOW = 1_790_000_000;
  const note = (credential_id: string, observed_at: unknown, provider_id = 'openai-codex') => ({
    provider_id,
    credential_id,
    observed_at,
  });

  it('learns the credential of a session from the agent’s record', async () => {
    const day = 86_400;
    const { row, asked } = await setup({
      files: {
        'auth.json': pool(entry('one'), entry('two')),
        'svc-relay-active-credentials.json': {
          schema_version: 1,
          sessions: {
            raw: note('two', NOW - 60),
            public: note(publicId('one'), new Date((NOW - 7 * day) * 1000).toISOString()),
            old: note('two', NOW - 7 * day - 1),
            other: note('two', NOW, 'nous'),
            gone: note('three', NOW),
            'no-time': note('two', 'yesterday'),
          },
        },
      },
    });
    expect(await row('openai-codex', ' raw ')).toMatchObject({
      active_credential_id: publicId('two'),
      active_credential_state: 'known',
      active_observed_at: new Date((NOW - 60) * 1000).toISOString(),
      source: 'usage_api',
      plan: 'Pro Plus',
      credentials: [{ active: false }, { active: true }],
    });
    expect((await row('openai-codex', 'public')).active_credential_id).toBe(publicId('one'));
    for (const session of ['', 'old', 'other', 'gone', 'no-time', 'RAW', 'nobody', '__proto__', 'constructor']) {
      expect([session, await row('openai-codex', session)]).toMatchObject([
        session,
        { active_credential_id: null, active_credential_state: 'unknown', active_observed_at: null, windows: [] },
      ]);
    }
    expect(asked('/backend-api/wham/usage')).toHaveLength(2);
  });

  it('believes the process of a live session, for the profile that it belongs to (contract 07 §4.2)', async () => {
    const { home, usage } = await setup({
      files: {
        'auth.json': pool(entry('one'), entry('two')),
        'svc-relay-active-credentials.json': { schema_version: 1, sessions: { raw: note('two', NOW - 60) } },
      },
    });
    const activeWith = async (profileHome: string, sessionId = 'raw', credentialId = 'one') => {
      const live = { providerId: 'openai-codex', credentialId, profileHome };
      const { providers } = await usage.report({ profile: '', sessionId, live });
      return providers[0]?.active_credential_id;
    };
    expect(await activeWith(home)).toBe(publicId('one'));
    expect(await activeWith(`${home}/.`)).toBe(publicId('one'));
    expect(await activeWith(home, 'raw', 'three')).toBeNull();
    for (const elsewhere of ['/', `${home}/profiles/other`, ''])
      expect(await activeWith(elsewhere)).toBe(publicId('two'));
  });
});

describe('other providers', () => {
  it('Nous: the newest login of the pool, its own portal, and a depleted account', async () => {
    const { row, answers, api, write } = await setup();
    await write('auth.json', {
      credential_pool: {
        nous: [
          { access_token: 'old', auth_type: 'oauth', obtained_at: 5, portal_base_url: 'http://192.0.2.1' },
          { access_token: 'new', auth_type: 'oauth', obtained_at: 6, portal_base_url: `${api.url}/portal/` },
          { access_token: 'key', auth_type: 'api_key', obtained_at: 7 },
          { access_token: 'odd', auth_type: { toString: 1 }, obtained_at: 8 },
        ],
      },
    });
    answers.set('/portal/api/oauth/account', {
      paid_service_access: { total_usable_credits: 0, purchased_credits_remaining: 'none' },
      subscription: { monthly_credits: 5, credits_remaining: 6 },
    });
    expect(await row('nous')).toMatchObject({
      status: 'available',
      windows: [],
      balances: [{ id: 'total', amount: 0 }],
      action_url: `${api.url}/portal/billing?topup=open`,
      details: [expect.stringMatching(/^Status: /)],
    });
    expect(api.requests[0]?.headers.authorization).toBe('Bearer new');
  });

  it('OpenCode Go: another base URL', async () => {
    const { row, api, answers, write } = await setup();
    await write('.env', `OPENCODE_GO_API_KEY=k\nOPENCODE_GO_BASE_URL=${api.url}/own/\n`);
    answers.set('/own/usage', { usage: { monthly: { percent: 3 } } });
    expect((await row('opencode-go')).windows).toMatchObject([{ id: 'monthly', reset_at: null }]);
  });

  const xai = (tokens: unknown) => ({ 'auth.json': { providers: { 'xai-oauth': { tokens } } } });

  it.each<[string, unknown, Record<string, unknown>, object]>([
    ['no token', {}, {}, { status: 'unavailable', message: 'Could not resolve SuperGrok credentials' }],
    [
      'nobody',
      { access_token: 't' },
      { '/v1/user': { userId: ' ' } },
      { status: 'unavailable', message: 'Provider returned no account identity' },
    ],
    [
      'nothing used yet',
      { access_token: 't' },
      { '/v1/billing': { config: { billingPeriodEnd: 1790000000, onDemandEnabled: true } } },
      {
        status: 'available',
        windows: [{ id: 'period', label: 'Current period', used_percent: null, detail: 'No usage reported yet' }],
        details: ['On-demand enabled'],
      },
    ],
    [
      'a share without sense',
      { access_token: 't' },
      { '/v1/billing': { config: { used: { val: 5 }, monthlyLimit: { val: 0 }, productUsage: 'x' } } },
      { status: 'unavailable', message: 'Provider returned no usage windows' },
    ],
    [
      'more products than shown',
      { access_token: 't' },
      {
        '/v1/billing': {
          config: {
            creditUsagePercent: 1,
            productUsage: Array.from({ length: 20 }, (_, at) => ({ product: `P${at}`, usagePercent: at })),
          },
        },
      },
      { status: 'available', windows: expect.objectContaining({ length: 9 }) },
    ],
  ])('SuperGrok: %s', async (_name, tokens, changed, expected) => {
    const { row, answers, asked } = await setup({ files: xai(tokens) });
    for (const [path, answer] of Object.entries(changed)) answers.set(path, answer);
    expect(await row('supergrok')).toMatchObject(expected);
    if ('/v1/user' in changed) expect(asked('/v1/billing')).toEqual([]);
  });
});
