import { describe, expect, it } from 'vitest';
import { createNodeUpstream } from '../../lib/host/node/upstream.ts';
import { fetchUpstream } from '../../lib/web/upstream.ts';
import { type Exchange, whenAbandoned } from '../support/fake-api-server.ts';
import { PATH, setUp } from '../support/probes.ts';
import { post } from '../support/relay.ts';
import { writeFiles } from '../support/temp.ts';

const callOf = ({ method, path, query, headers, body }: Exchange) => ({
  call: `${method} ${path}${query.size ? `?${query}` : ''}`,
  authorization: headers.authorization,
  body,
});

const jwt = (claims: unknown) =>
  ['{"alg":"none"}', JSON.stringify(claims), 'sig'].map((part) => Buffer.from(part).toString('base64url')).join('.');

describe('probes of providers (contract 07 §3)', () => {
  it('LM Studio: reads one catalog, with `models` or `data`, `id` or `key`', async () => {
    const { api, ask } = await setUp({ '.env': 'LM_BASE_URL=<api>/v1/\n' });
    api.onAny((exchange) =>
      exchange.answer(200, {
        data: [
          null,
          { id: 'A', capabilities: { reasoning: { allowed_options: ['low', 'HIGH', 'turbo'] } } },
          { key: 'b', capabilities: { vision: true } },
          { id: 'c', capabilities: { reasoning: { allowed_options: 'low' } } },
          { id: 'd', capabilities: 'all' },
          { id: 7, key: ['e'] },
        ],
      }),
    );
    expect(await ask(...['a', 'B', 'c', 'd', 'e', 'none'].map((name) => `lmstudio/${name}`))).toEqual([
      'provider-catalog low,high',
      'provider-catalog ',
      '?',
      '?',
      '?',
      '?',
    ]);
    expect(api.requests.map(callOf)).toEqual([{ call: 'GET /api/v1/models', authorization: undefined, body: '' }]);
    expect(api.requests[0]?.headers['user-agent']).toBe('svc-relay/1.0.0');
  });

  it('Ollama: one call per model, without the cloud suffix', async () => {
    const { api, called, ask } = await setUp({ '.env': 'OLLAMA_API_KEY=ollama-secret\n' });
    api.onAny((exchange) => {
      const { name } = JSON.parse(exchange.body);
      exchange.answer(200, { capabilities: name === 'kimi-k2' ? ['completion', 'thinking'] : ['completion'] });
    });
    expect(await ask('ollama/kimi-k2:cloud', 'ollama-cloud/gemma3', 'ollama/:cloud')).toEqual([
      'provider-catalog none,low,medium,high,max',
      'provider-catalog ',
      '?',
    ]);
    expect(api.requests.map(callOf).sort((a, b) => (a.body < b.body ? -1 : 1))).toEqual(
      ['gemma3', 'kimi-k2'].map((name) => ({
        call: 'POST /api/show',
        authorization: 'Bearer ollama-secret',
        body: JSON.stringify({ name }),
      })),
    );
    expect(called).toEqual(['https://ollama.com/api/show', 'https://ollama.com/api/show']);
  });

  const catalog = {
    data: [
      { id: 'gpt-5', capabilities: { supports: { reasoning_effort: ['low', 'medium', 'high'] } } },
      { id: 'gpt-4o', capabilities: { supports: {} } },
    ],
  };

  it('Copilot: exchanges a GitHub token first and uses the endpoint it names', async () => {
    const { api, called, ask } = await setUp({ '.env': 'GH_TOKEN=gho_secret\n' });
    api.onAny((exchange) =>
      exchange.path === '/models'
        ? exchange.answer(200, catalog)
        : exchange.answer(200, { token: 'tid=1;exp=2', endpoints: { api: 'https://account.example/' } }),
    );
    expect(await ask('github/gpt-5', 'copilot/gpt-4o', 'copilot/o9')).toEqual([
      'github-catalog low,medium,high',
      'github-catalog ',
      '?',
    ]);
    expect(called).toEqual(['https://api.github.com/copilot_internal/v2/token', 'https://account.example/models']);
    expect(api.requests.map((request) => request.headers.authorization)).toEqual([
      'token gho_secret',
      'Bearer tid=1;exp=2',
    ]);
    expect(api.requests[1]?.headers).toMatchObject({
      'copilot-integration-id': 'vscode-chat',
      'editor-version': 'vscode/1.104.1',
    });
  });

  it('Copilot: accepts only an https endpoint from the exchange, and nothing without a token', async () => {
    const { api, called, ask } = await setUp({ '.env': 'GH_TOKEN=gho_secret\n' });
    let answer: unknown = { token: 'new', endpoints: { api: 'http://127.0.0.1:1/' } };
    api.onAny((exchange) => exchange.answer(200, exchange.path === '/models' ? catalog : answer));
    expect(await ask('copilot/gpt-5')).toEqual(['github-catalog low,medium,high']);
    expect(called[1]).toBe('https://api.githubcopilot.com/models');
    for (answer of [{}, [], { token: 7 }, { token: '' }, { token: 'a\nb' }]) {
      expect(await ask('copilot/other')).toEqual(['?']);
    }
    expect(called).toHaveLength(7);
  });

  it('Copilot: uses its own token as is; without any it makes no call', async () => {
    const { api, called, ask, target } = await setUp({
      'config.yaml': 'providers:\n  copilot:\n    base_url: <api>/base/\n    key: "tid=1;exp=2"\n',
    });
    api.onAny((exchange) => exchange.answer(200, catalog));
    expect(await ask('copilot/gpt-5')).toEqual(['github-catalog low,medium,high']);
    expect(api.requests.map(callOf)).toEqual([
      { call: 'GET /base/models', authorization: 'Bearer tid=1;exp=2', body: '' },
    ]);
    await writeFiles(target.agentHome, { 'config.yaml': 'model: {provider: copilot, default: gpt-5}\n' });
    expect(await ask('copilot/gpt-5', 'openai-codex/gpt-5')).toEqual(['?', '?']);
    expect(called).toHaveLength(1);
  });

  it('Codex: sends the account of its token; finds models by slug or id', async () => {
    const token = jwt({ 'https://api.openai.com/auth': { chatgpt_account_id: 'acc-1' } });
    const pool = (key: string) => JSON.stringify({ credential_pool: { 'openai-codex': [{ access_token: key }] } });
    const { api, called, ask, target } = await setUp({ 'auth.json': pool(token) });
    api.onAny((exchange) =>
      exchange.answer(200, {
        models: [
          { slug: 'gpt-5-codex', supported_reasoning_levels: [{ effort: 'low' }, 'xhigh', { effort: 7 }, null] },
          { id: 'gpt-mini' },
        ],
      }),
    );
    expect(await ask('openai-codex/openai/GPT-5-Codex', 'openai-codex/gpt-mini', 'openai-codex/gpt-9')).toEqual([
      'provider-catalog low,xhigh',
      'provider-catalog ',
      '?',
    ]);
    expect(called).toEqual(['https://chatgpt.com/backend-api/codex/models?client_version=1.0.0']);
    expect(api.requests[0]?.headers).toMatchObject({ authorization: `Bearer ${token}`, 'chatgpt-account-id': 'acc-1' });
    for (const other of ['opaque', jwt({}), jwt({ 'https://api.openai.com/auth': { chatgpt_account_id: 'a\nb' } })]) {
      await writeFiles(target.agentHome, { 'auth.json': pool(other) });
      expect((await ask('openai-codex/gpt-mini'))[0]).toBe('provider-catalog ');
      expect(api.requests.at(-1)?.headers).not.toHaveProperty('chatgpt-account-id');
    }
  });

  it('a named profile uses its own secrets, then the root’s `auth.json`', async () => {
    const { api, target } = await setUp({
      '.env': 'LM_BASE_URL=<api>/v1\nLM_API_KEY=of-the-root\n',
      'auth.json': '{"credential_pool":{"lmstudio":[{"key":"pool-of-the-root"}]}}',
      'profiles/work/config.yaml': 'model: {provider: lmstudio, base_url: "<api>/v1"}\n',
    });
    api.onAny((exchange) => exchange.answer(200, { models: [] }));
    const models = [{ provider: 'lmstudio', model: 'a' }];
    await target.operator(PATH, post({ profile: 'work', models }));
    await target.operator(PATH, post({ models }));
    expect(api.requests.map((request) => request.headers.authorization)).toEqual([
      'Bearer pool-of-the-root',
      'Bearer of-the-root',
    ]);
  });
});

describe.each([
  ['node', createNodeUpstream()],
  ['fetch', fetchUpstream()],
])('misbehaving providers (contract 07 §3, upstream of %s)', (_name, upstream) => {
  it('anything but a valid answer leaves the static row and logs no secret', async () => {
    const env = 'LM_BASE_URL=<api>/hidden-path/v1\nLM_API_KEY=lm-secret\n';
    const { api, ask, target } = await setUp({ '.env': env }, { upstream });
    const good = { models: [{ key: 'a', capabilities: {} }] };
    const answers: ((exchange: Exchange) => void)[] = [
      (exchange) => exchange.answer(500, good),
      (exchange) => exchange.answer(401, { error: 'lm-secret is wrong' }),
      (exchange) => exchange.answer(204, ''),
      (exchange) => exchange.answer(301, good, { location: `${api.url}/elsewhere` }),
      (exchange) => exchange.answer(307, good, { location: `${api.url}/elsewhere` }),
      (exchange) => exchange.answer(200, '{"models":'),
      (exchange) => exchange.answer(200, ''),
      (exchange) => exchange.answer(200, 'null'),
      (exchange) => exchange.answer(200, { models: 'lm-secret' }),
      (exchange) =>
        exchange.answer(200, JSON.stringify(good).slice(0, 9), { 'content-length': '1000', connection: 'close' }),
      (exchange) => exchange.cut(),
    ];
    for (const answer of answers) {
      api.onAny(answer);
      expect(await ask('lmstudio/a', 'zai/glm-5.2')).toEqual(['?', 'provider-adapter none,high,max']);
    }
    expect(api.requests).toHaveLength(answers.length);
    expect(api.requests.every(({ path }) => path === '/hidden-path/api/v1/models')).toBe(true);
    api.onAny((exchange) => exchange.answer(200, good));
    expect(await ask('lmstudio/a')).toEqual(['provider-catalog ']);
    const log = target.log.join('\n');
    expect(log).toMatch(/answered 500/);
    expect(log).toMatch(/not JSON/);
    expect(log).not.toMatch(/lm-secret|hidden-path|elsewhere|127\.0\.0\.1:\d+\/h/);
  });

  it('reads a body up to 4 MiB and closes the connection beyond it', async () => {
    const { api, ask } = await setUp({ '.env': 'LM_BASE_URL=<api>/v1\n' }, { upstream });
    const filled = (size: number) => {
      const text = '{"models":[{"key":"a"}],"filler":""}';
      return text.replace('""', `"${'x'.repeat(size - text.length)}"`);
    };
    api.onAny((exchange) => exchange.answer(200, filled(4 * 1024 * 1024 + 1)));
    expect(await ask('lmstudio/a')).toEqual(['?']);
    api.onAny((exchange) => {
      exchange.open();
      void exchange.write('x'.repeat(8 * 1024 * 1024));
    });
    expect(await ask('lmstudio/a')).toEqual(['?']);
    await whenAbandoned(await api.request(1));
    api.onAny((exchange) => exchange.answer(200, filled(4 * 1024 * 1024)));
    expect(await ask('lmstudio/a')).toEqual(['provider-catalog ']);
  });
});
