import { mkdir, symlink } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { startBuiltTarget } from '../support/built-relay.ts';
import { createTestClock } from '../support/clock.ts';
import { startFakeApi } from '../support/fake-api-server.ts';
import { exchange, request } from '../support/raw-socket.ts';
import { bearer, describeMatrix, itOnNode, pair, post, type Target } from '../support/relay.ts';
import { writeFiles } from '../support/temp.ts';

const PATH = '/relay/model-capabilities';
const ALL = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max', 'ultra'];
const models = [{ provider: 'zai', model: 'glm-5.2' }];

/** A relay whose default profile exists, which on a host takes a file. */
async function withProfile(target: Target, files: Record<string, string> = {}): Promise<Target> {
  if (target.runtime === 'node') await writeFiles(target.agentHome, { 'config.yaml': '', ...files });
  return target;
}

describeMatrix('POST /relay/model-capabilities (contract 07 §3)', (start, runtime) => {
  it('checks a request in the order of the contract', async () => {
    const target = await withProfile(await start());
    const wrong = { schema_version: 2, profile: 7, refresh: 'yes', models: [] };
    const many = Array.from({ length: 65 }, () => models[0]);
    const cases: [unknown, Record<string, unknown>][] = [
      ['{', { error: 'invalid_json' }],
      ['', { error: 'invalid_json' }],
      ['{"models":[{"provider":"p","model":"m","n":1e400}]}', { error: 'invalid_json' }],
      ['[]', { error: 'invalid_request' }],
      ['null', { error: 'invalid_request' }],
      [wrong, { error: 'unsupported_schema_version' }],
      [{ schema_version: true, models }, { error: 'unsupported_schema_version' }],
      [{ schema_version: null, models }, { error: 'unsupported_schema_version' }],
      [{ schema_version: 1.5, models }, { error: 'unsupported_schema_version' }],
      [{ ...wrong, schema_version: 1 }, { error: 'invalid_profile' }],
      [{ profile: ` ${'p'.repeat(129)} `, models }, { error: 'invalid_profile' }],
      [{ ...wrong, schema_version: 1, profile: null }, { error: 'invalid_refresh' }],
      [{ refresh: null, models }, { error: 'invalid_refresh' }],
      [
        { profile: 'nobody', models: [] },
        { error: 'invalid_models', max_models: 64 },
      ],
      [{}, { error: 'invalid_models', max_models: 64 }],
      [{ models: { length: 1 } }, { error: 'invalid_models', max_models: 64 }],
      [{ models: many }, { error: 'invalid_models', max_models: 64 }],
      ...[
        'zai/glm-5.2',
        null,
        { provider: 'p' },
        { provider: 1, model: 'm' },
        { provider: ' ', model: 'm' },
        { provider: 'p', model: '' },
        { provider: 'p'.repeat(129), model: 'm' },
        { provider: 'p', model: 'm'.repeat(513) },
      ].map((pair): [unknown, Record<string, unknown>] => [
        { profile: 'nobody', models: [models[0], pair] },
        { error: 'invalid_model_pair' },
      ]),
    ];
    for (const [body, expected] of cases) {
      const text = typeof body === 'string' ? body : JSON.stringify(body);
      const response = await target.operator(PATH, { method: 'POST', body: text });
      expect([text.slice(0, 80), response.status]).toEqual([text.slice(0, 80), 400]);
      expect(await response.json()).toEqual({ ok: false, schema_version: 1, ...expected });
    }
    const method = await target.operator(PATH);
    expect([method.status, method.headers.get('allow')]).toEqual([405, 'POST']);
  });

  it('needs the operator or the chat grant: 401, then 403, before the body is read', async () => {
    const target = await withProfile(await start());
    const ask = (headers: Record<string, string>, body = '{') => target.fetch(PATH, { method: 'POST', body, headers });
    const stranger = { 'x-forwarded-for': '192.0.2.9' };
    const nobody = await ask(stranger);
    expect([nobody.status, nobody.headers.get('www-authenticate')]).toEqual([401, 'Bearer']);
    expect(nobody.headers.get('cache-control')).toBe('no-store');
    expect((await ask(bearer('nonsense'))).status).toBe(401);
    expect((await ask({ ...stranger, authorization: 'Basic eA==' })).status).toBe(401);

    const { token } = await pair(target);
    const answer = await ask({ ...stranger, ...bearer(token) }, JSON.stringify({ models }));
    expect(answer.status).toBe(200);
    expect(answer.headers.get('cache-control')).toBe('no-store');
    expect((await ask(bearer(token))).status).toBe(400);

    const short = await pair(target, { policy: { grants: { chat: 1 } } });
    await expect.poll(async () => (await ask(bearer(short.token))).status).toBe(403);
  });

  it('answers with one row per pair, in order and as named', async () => {
    const target = await withProfile(await start());
    const pairs = [
      [' ZAI ', ' z-ai/GLM-5.2 ', ['none', 'high', 'max'], true, 'provider-adapter'],
      ['upstage', 'solar-mini', [], true, 'provider-adapter'],
      ['openrouter', 'some/model', ALL, false, 'canonical-fallback'],
      ['copilot', 'gpt-5', ALL, false, 'canonical-fallback'],
      [' ZAI ', ' z-ai/GLM-5.2 ', ['none', 'high', 'max'], true, 'provider-adapter'],
    ] as const;
    const response = await target.operator(
      PATH,
      post({
        schema_version: 1,
        profile: ' ',
        more: 1,
        models: pairs.map(([provider, model]) => ({ provider, model })),
      }),
    );
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({
      schema_version: 1,
      contract_version: '1.0',
      capabilities: pairs.map(([provider, model, efforts, exact, source]) => ({
        provider: provider.trim(),
        model: model.trim(),
        reasoning: efforts.length > 0,
        reasoning_efforts: efforts,
        reasoning_efforts_exact: exact,
        source,
      })),
    });
    const full = Array.from({ length: 64 }, (_, at) => ({ provider: 'p', model: `m${at}` }));
    const rows = (await (await target.operator(PATH, post({ models: full }))).json()).capabilities;
    expect(rows.map(({ model }: { model: string }) => model)).toEqual(full.map(({ model }) => model));
  });

  it('probes a provider with the settings of the default profile, and caches its answer until a refresh', async () => {
    const api = await startFakeApi();
    api.onAny((exchange) => exchange.answer(200, { models: [{ key: 'Qwen/Qwen3', capabilities: CAPABLE }] }));
    const env = { LM_BASE_URL: `${api.url}/v1`, LM_API_KEY: 'lm-secret' };
    const lines = Object.entries(env).map(([name, value]) => `${name}=${value}\n`);
    // On Node, time stands still: a call may take 1.25 s, and a busy machine may stall for longer.
    const target = await withProfile(await start(runtime === 'edge' ? { env } : { clock: createTestClock() }), {
      '.env': lines.join(''),
    });
    const ask = async (more = {}) => {
      const request = { models: [{ provider: 'LM-Studio', model: 'qwen/qwen3' }], ...more };
      const text = await (await target.operator(PATH, post(request))).text();
      expect(text).not.toMatch(/lm-secret|127\.0\.0\.1/);
      return JSON.parse(text).capabilities;
    };
    const row = {
      provider: 'LM-Studio',
      model: 'qwen/qwen3',
      reasoning: true,
      reasoning_efforts: ['none', 'medium'],
      reasoning_efforts_exact: true,
      source: 'provider-catalog',
    };
    expect(await ask()).toEqual([row]);
    expect(await ask()).toEqual([row]);
    expect(api.requests).toHaveLength(1);
    const { method, path, headers } = api.requests[0] ?? {};
    expect([method, path, headers?.authorization]).toEqual(['GET', '/api/v1/models', 'Bearer lm-secret']);
    expect(await ask({ refresh: true })).toEqual([row]);
    expect(api.requests).toHaveLength(2);
    expect(target.log.join('\n')).not.toMatch(/lm-secret|\/api\/v1/);
  });

  const CAPABLE = { reasoning: { allowed_options: ['off', 'on'], default: 'on' } };

  it('selects profiles by name on a host, and only the default without one', async () => {
    const target = await start();
    const ask = async (profile: string) => {
      const response = await target.operator(PATH, post({ profile, models }));
      return [response.status, await response.json()];
    };
    const missing = (profile: string) => [
      404,
      { ok: false, error: 'profile_not_found', schema_version: 1, profile: profile.trim() },
    ];
    if (runtime === 'edge') {
      expect((await ask('default'))[0]).toBe(200);
      expect(await ask('work')).toEqual(missing('work'));
      return;
    }
    expect(await ask('default')).toEqual(missing('default'));
    await writeFiles(target.agentHome, {
      'config.yaml': '',
      'profiles/work/config.yaml': '',
      'profiles/two words/config.yaml': '',
      'profiles/empty/SOUL.md': '',
      'profiles/file': '',
      'profiles/.hidden/config.yaml': '',
      'profiles/deep/er/config.yaml': '',
      'elsewhere/config.yaml': '',
    });
    await symlink(`${target.agentHome}/elsewhere`, `${target.agentHome}/profiles/out`);
    await symlink(`${target.agentHome}/profiles/deep/er`, `${target.agentHome}/profiles/deeper`);
    await symlink(`${target.agentHome}/profiles/work`, `${target.agentHome}/profiles/alias`);
    await mkdir(`${target.agentHome}/profiles/directory/config.yaml`, { recursive: true });
    for (const name of ['default', 'work', ' work ', 'two words', 'alias'])
      expect([name, (await ask(name))[0]]).toEqual([name, 200]);
    for (const name of [
      'nobody',
      'empty',
      'file',
      '.hidden',
      '..',
      '.',
      'deep/er',
      'deeper',
      'out',
      '../elsewhere',
      'a\\b',
      'nul\u0000',
      'directory',
      '/etc',
    ]) {
      expect(await ask(name)).toEqual(missing(name));
    }
  });

  it('announces its capability', async () => {
    const target = await start();
    const { capabilities } = await (await target.operator('/relay/info')).json();
    expect(capabilities).toContain('model_reasoning_capabilities_v1');
  });
});

itOnNode('contract 07 §3: does not read more than 2 MiB', async () => {
  const target = await startBuiltTarget();
  try {
    const head = request('POST', PATH, { host: '127.0.0.1', 'content-length': String(2 * 1024 * 1024 + 1) });
    expect((await exchange(target.port, head, 'POST')).status).toBe(413);
  } finally {
    await target.stop();
  }
});

itOnNode('contract 07 §1.1: active_profile names the default at each use', async () => {
  const target = await startBuiltTarget();
  try {
    await writeFiles(target.agentHome, { 'profiles/work/config.yaml': '', active_profile: 'work\n' });
    const status = async () => (await target.operator(PATH, post({ models }))).status;
    expect(await status()).toBe(200);
    await writeFiles(target.agentHome, { active_profile: '../work' });
    expect(await status()).toBe(404);
  } finally {
    await target.stop();
  }
});
