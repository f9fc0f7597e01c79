import { writeFile } from 'node:fs/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EFFORTS, type Effort } from '../../../lib/models/efforts.ts';
import { createTestHost } from '../../support/host.ts';
import { temporaryDirectory } from '../../support/temp.ts';
import { createTestModels, lmCatalog, settle } from './support.ts';

const LM = { LM_BASE_URL: 'http://lm.test/v1' };
const OLLAMA = { OLLAMA_BASE_URL: 'http://ollama.test/v1' };
const guess = { efforts: EFFORTS, exact: false, source: 'canonical-fallback' };

describe('model capabilities: bounds (contract 07 §3)', () => {
  it('makes 4 calls at once over all requests, and queries 16 models of one', async () => {
    const test = createTestModels({ env: OLLAMA });
    const models = (name: string) => Array.from({ length: 20 }, (_, at) => `ollama/${name}${at}`);
    const answers = [test.ask(models('a')), test.ask(models('b'))];
    for (let round = 0; round < 8; round++) {
      await settle();
      expect(test.openCalls()).toHaveLength(4);
      for (const call of test.openCalls()) call.answer({ capabilities: ['thinking'] });
    }
    const rows = await Promise.all(answers);
    expect(test.highest()).toBe(4);
    expect(test.calls).toHaveLength(32);
    for (const row of rows) {
      expect(row.map(({ exact }) => exact)).toEqual(Array.from({ length: 20 }, (_, at) => at < 16));
    }
    expect(test.clock.pending).toBe(0);
  });

  it('a call has 1.25 s, and its failure fails no request', async () => {
    const test = createTestModels({ env: LM });
    const answer = test.ask(['lmstudio/a']);
    await settle();
    await test.clock.advanceAsync(1249);
    expect(test.openCalls()).toHaveLength(1);
    await test.clock.advanceAsync(1);
    expect(test.openCalls()).toHaveLength(0);
    expect(await answer).toEqual([{ provider: 'lmstudio', model: 'a', ...guess }]);
    expect(test.clock.pending).toBe(0);
  });

  it('a request has 2.5 s, and responds with what it knows by then', async () => {
    const test = createTestModels({ env: { ...OLLAMA, ...LM } });
    const models = Array.from({ length: 16 }, (_, at) => `ollama/m${at}`);
    const answer = test.ask([...models, 'zai/glm-5.2', 'lmstudio/a']);
    await settle();
    test.openCalls()[0]?.answer({ capabilities: [] });
    await test.clock.advanceAsync(2500);
    const rows = await answer;
    expect(rows[0]).toMatchObject({ model: 'm0', efforts: [], exact: true, source: 'provider-catalog' });
    expect(rows[1]).toMatchObject({ model: 'm1', ...guess });
    expect(rows[16]).toMatchObject({ model: 'glm-5.2', source: 'provider-adapter' });
    expect(rows).toHaveLength(18);
    // Nobody waits for the rest, so it is not queried.
    await settle();
    expect(test.openCalls()).toHaveLength(0);
    expect(test.calls.length).toBeLessThan(17);
    expect(test.clock.pending).toBe(0);
  });

  it('stopping completes a request with what it knows', async () => {
    const test = createTestModels({ env: LM });
    const answer = test.ask(['lmstudio/a']);
    await settle();
    test.models.stop();
    expect(await answer).toMatchObject([guess]);
    expect(await test.ask(['lmstudio/a'])).toMatchObject([guess]);
    expect(test.calls).toHaveLength(1);
    expect([test.openCalls().length, test.clock.pending]).toEqual([0, 0]);
  });

  it('identical probes share one call, even across requests', async () => {
    const test = createTestModels({ env: { ...LM, ...OLLAMA } });
    const first = test.ask(['lmstudio/a', 'lm-studio/b', 'lmstudio/a', 'ollama/k2:cloud', 'ollama-cloud/k2']);
    const second = test.ask(['lmstudio/b', 'lmstudio/none']);
    await settle();
    expect(test.calls).toHaveLength(2);
    test.calls[0]?.answer(lmCatalog({ A: ['low'], b: ['on', 'off'] }));
    test.calls[1]?.answer({ capabilities: ['thinking'] });
    expect((await first).map(({ provider, model, efforts }) => [provider, model, efforts])).toEqual([
      ['lmstudio', 'a', ['low']],
      ['lm-studio', 'b', ['none', 'medium']],
      ['lmstudio', 'a', ['low']],
      ['ollama', 'k2:cloud', ['none', 'low', 'medium', 'high', 'max']],
      ['ollama-cloud', 'k2', ['none', 'low', 'medium', 'high', 'max']],
    ]);
    expect((await second).map(({ exact }) => exact)).toEqual([true, false]);
  });

  it('a shared probe outlives the request that started it', async () => {
    const test = createTestModels({ env: { ...LM, ...OLLAMA } });
    // Four other calls hold the semaphore, so that the first request runs out of time and the second does not.
    const others = test.ask(['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'].map((name) => `ollama/${name}`));
    const first = test.ask(['lmstudio/a']);
    await settle();
    await test.clock.advanceAsync(2000);
    const second = test.ask(['lmstudio/a']);
    await test.clock.advanceAsync(500);
    await others;
    expect(await first).toMatchObject([guess]);
    const [call, ...more] = test.openCalls();
    expect([call?.url, more.length]).toEqual(['http://lm.test/api/v1/models', 0]);
    call?.answer(lmCatalog({ a: ['high'] }));
    expect(await second).toMatchObject([{ efforts: ['high'] }]);
  });
});

describe('model capabilities: cache (contract 07 §3)', () => {
  it('caches a result for 300 s, but no failure and no unlisted model', async () => {
    const test = createTestModels({ env: LM });
    const ask = async (body: unknown, status?: number) => {
      const answer = test.ask(['lmstudio/a', 'lmstudio/b']);
      await settle();
      test.openCalls()[0]?.answer(body, status);
      return (await answer).map(({ efforts }) => efforts);
    };
    expect(await ask('no', 500)).toEqual([EFFORTS, EFFORTS]);
    expect(await ask(lmCatalog({ a: ['low'] }))).toEqual([['low'], EFFORTS]);
    expect(await ask(lmCatalog({ a: ['high'], b: ['high'] }))).toEqual([['low'], ['high']]);
    expect(await ask('never asked')).toEqual([['low'], ['high']]);
    expect(test.calls).toHaveLength(3);
    await test.clock.advanceAsync(300_000);
    expect(await ask(lmCatalog({ a: ['max'], b: ['max'] }))).toEqual([['max'], ['max']]);
  });

  it('refresh queries again, joins no older call, and does not cache its result', async () => {
    const test = createTestModels({ env: LM });
    const old = test.ask(['lmstudio/a']);
    await settle();
    const fresh = test.ask(['lmstudio/a'], { refresh: true });
    await settle();
    expect(test.openCalls()).toHaveLength(2);
    const [first, second] = test.openCalls();
    second?.answer(lmCatalog({ a: ['high'] }));
    expect(await fresh).toMatchObject([{ efforts: ['high'] }]);
    first?.answer(lmCatalog({ a: ['low'] }));
    // Its own caller still gets it.
    expect(await old).toMatchObject([{ efforts: ['low'] }]);
    expect(await test.ask(['lmstudio/a'])).toMatchObject([{ efforts: ['high'] }]);
    expect(test.calls).toHaveLength(2);
  });

  it('after a refresh no older result is cached, in any order of events', async () => {
    type Step = { kind: 'ask' | 'refresh' | 'answer' | 'fail'; which: number };
    const step: fc.Arbitrary<Step> = fc.record({
      kind: fc.constantFrom<Step['kind'][]>('ask', 'ask', 'refresh', 'answer', 'answer', 'fail'),
      which: fc.nat(5),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 24 }), async (steps) => {
        const test = createTestModels({ env: LM });
        const waiting: Promise<unknown>[] = [];
        /** Number of calls made before the last refresh: only later ones may be cached. */
        let fence = 0;
        for (const next of steps) {
          if (next.kind === 'ask' || next.kind === 'refresh') {
            if (next.kind === 'refresh') fence = test.calls.length;
            waiting.push(test.ask(['lmstudio/a'], { refresh: next.kind === 'refresh' }));
          } else {
            const open = test.openCalls();
            const call = open[next.which % Math.max(1, open.length)];
            if (next.kind === 'fail') call?.fail();
            else if (call) call.answer(lmCatalog({ a: numbered(test.calls.indexOf(call)) }));
          }
          await settle();
          expect(test.openCalls().length).toBeLessThanOrEqual(4);
        }
        // Every open call gets its own number, newest first.
        for (let open = test.openCalls(); open.length > 0; open = test.openCalls()) {
          const call = open.at(-1);
          if (call) call.answer(lmCatalog({ a: numbered(test.calls.indexOf(call)) }));
          await settle();
        }
        await Promise.all(waiting);
        const made = test.calls.length;
        const last = test.ask(['lmstudio/a']);
        await settle();
        for (const call of test.openCalls()) call.fail();
        const [row] = await last;
        // Either it was cached, or it had to be queried.
        if (test.calls.length === made) expect(numberOf(row?.efforts ?? [])).toBeGreaterThanOrEqual(fence);
        expect(test.clock.pending).toBe(0);
      }),
      { numRuns: 200 },
    );
  });

  /** A number up to 127 as a set of efforts; `ultra` marks it as one. */
  const numbered = (number: number): Effort[] => EFFORTS.filter((one, bit) => one === 'ultra' || (number >> bit) & 1);
  const numberOf = (efforts: readonly Effort[]): number => {
    expect(efforts).toContain('ultra');
    return EFFORTS.reduce((sum, one, bit) => (one !== 'ultra' && efforts.includes(one) ? sum + (1 << bit) : sum), 0);
  };
});

describe('model capabilities: profiles', () => {
  async function agentHome(files: Record<string, string>) {
    const home = await temporaryDirectory({ 'config.yaml': '', ...files });
    const host = createTestHost({ agentHome: home, env: {} });
    return { home, host, test: createTestModels({ host, agentConfig: `${home}/config.yaml` }) };
  }

  it('an open quote in `.env` does not swallow the lines after it (07 §1.2)', async () => {
    const { test } = await agentHome({ '.env': 'NOTE="to do\nLM_BASE_URL=http://lm.test/v1\nEND="\n' });
    const answer = test.ask(['lmstudio/a']);
    await expect.poll(() => test.calls.length).toBe(1);
    expect(test.calls[0]?.url).toBe('http://lm.test/api/v1/models');
    test.calls[0]?.answer(lmCatalog({ a: ['low'] }));
    expect((await answer)[0]?.efforts).toEqual(['low']);
  });

  it('profiles and accounts share no rows, even for the same query', async () => {
    const env = 'LM_BASE_URL=http://lm.test/v1\n';
    const { home, test } = await agentHome({
      '.env': env,
      'profiles/work/config.yaml': '',
      'profiles/work/.env': env,
    });
    const answers: Promise<unknown>[] = [];
    const ask = async (profile: string, calls: number) => {
      const answer = test.ask(['lmstudio/a'], { profile });
      answers.push(answer);
      await expect.poll(() => test.calls.length).toBe(calls);
      test.openCalls()[0]?.answer(lmCatalog({ a: [EFFORTS[calls]] }));
      return (await answer)[0]?.efforts;
    };
    expect(await ask('default', 1)).toEqual([EFFORTS[1]]);
    expect(await ask('work', 2)).toEqual([EFFORTS[2]]);
    expect(await ask('default', 2)).toEqual([EFFORTS[1]]);
    await writeFile(`${home}/.env`, `${env}LM_API_KEY=another\n`);
    expect(await ask('default', 3)).toEqual([EFFORTS[3]]);
    await writeFile(`${home}/.env`, 'LM_BASE_URL=http://elsewhere.test/v1\n');
    expect(await ask('default', 4)).toEqual([EFFORTS[4]]);
    await writeFile(`${home}/.env`, env);
    expect(await ask('default', 4)).toEqual([EFFORTS[1]]);
    await test.models.resolve({ profile: 'work', refresh: true, models: [{ provider: 'zai', model: 'x' }] });
    expect(await ask('default', 4)).toEqual([EFFORTS[1]]);
    expect(await ask('work', 5)).toEqual([EFFORTS[5]]);
  });

  it('without files within 1 s: the static rules, and no probe', async () => {
    const { home, host } = await agentHome({ '.env': 'LM_BASE_URL=http://lm.test/v1\n' });
    const files = { ...host.files, read: () => new Promise<never>(() => {}) };
    const test = createTestModels({ host: { ...host, files }, agentConfig: `${home}/config.yaml` });
    let rows: unknown;
    void test.ask(['lmstudio/a', 'zai/glm-5.2']).then((answer) => {
      rows = answer;
    });
    await test.clock.advanceAsync(999);
    expect(rows).toBeUndefined();
    await test.clock.advanceAsync(1);
    expect(rows).toMatchObject([guess, { source: 'provider-adapter' }]);
    expect([test.calls.length, test.clock.pending]).toEqual([0, 0]);
  });

  it('files that cannot be read are no error', async () => {
    const { home, host } = await agentHome({ '.env': 'LM_BASE_URL=http://lm.test/v1\n' });
    const busy = () => Promise.reject(Object.assign(new Error('too many open files'), { code: 'EMFILE' }));
    const test = createTestModels({
      host: { ...host, files: { ...host.files, read: busy } },
      agentConfig: `${home}/config.yaml`,
    });
    expect(await test.ask(['lmstudio/a'])).toMatchObject([guess]);
    expect(test.log.lines.join()).toMatch(/EMFILE/);
  });

  it('models.dev: a model without reasoning, refined only where nothing better is known', async () => {
    const list = {
      'github-copilot': { models: { 'gpt-4o': { reasoning: false }, o3: { reasoning: true } } },
      zai: { models: { 'glm-5.2': { reasoning: false }, 'glm-4': { reasoning: false } } },
      lmstudio: { models: { a: { reasoning: false }, b: { reasoning: false } } },
      broken: { models: [null, 7] },
      worse: 7,
    };
    const { home, test } = await agentHome({
      '.env': 'LM_BASE_URL=http://lm.test/v1\n',
      'models_dev_cache.json': JSON.stringify(list),
    });
    const pairs = ['github/gpt-4o', 'copilot/o3', 'zai/glm-5.2', 'zai/glm-4', 'lmstudio/a', 'lmstudio/b', 'broken/0'];
    const answer = test.ask(pairs);
    await expect.poll(() => test.calls.length).toBe(1);
    test.calls[0]?.answer(lmCatalog({ a: ['low'] }));
    const rows = await answer;
    expect(rows.map(({ source }) => source)).toEqual([
      'models.dev',
      'canonical-fallback',
      'provider-adapter',
      'models.dev',
      'provider-catalog',
      'models.dev',
      'canonical-fallback',
    ]);
    expect(rows[0]).toMatchObject({ efforts: [], exact: true });
    // Read again when the file has changed.
    await writeFile(`${home}/models_dev_cache.json`, '{"copilot":{"models":{"gpt-4o":{"reasoning":false}}}, damaged');
    expect((await test.ask(['github/gpt-4o']))[0]?.source).toBe('canonical-fallback');
  });

  it('broken and oversized files count as empty', async () => {
    const { test } = await agentHome({
      'config.yaml': '{ not: [yaml',
      'auth.json': `{"credential_pool":{"openai-codex":[{"key":"k"}]},"filler":"${'x'.repeat(1024 * 1024)}"}`,
      '.env': 'GH_TOKEN\nnothing here',
    });
    const rows = await test.ask(['openai-codex/a', 'copilot/b']);
    expect(rows.map(({ source }) => source)).toEqual(['canonical-fallback', 'canonical-fallback']);
    expect(test.calls).toHaveLength(0);
  });
});
