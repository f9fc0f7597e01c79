import { describe, expect, it } from 'vitest';
import type { Upstream, UpstreamRequest } from '../../../lib/host/upstream.ts';
import { utf8ToBytes } from '../../../lib/kit/bytes.ts';
import { createLog } from '../../../lib/log.ts';
import { createVoiceCredentials } from '../../../lib/voice/credentials.ts';
import type { OauthStore } from '../../../lib/voice/oauth-store.ts';
import { checkSelection, createVoiceOptions, type OptionsMode } from '../../../lib/voice/options.ts';
import { findProvider, type StreamingProvider } from '../../../lib/voice/registry.ts';
import { createTestClock } from '../../support/clock.ts';

const SECRET = 'sk-very-secret-value';

type Answer = unknown | { status: number; body?: unknown } | 'hang' | 'fail';
type Answers = (url: URL, request: UpstreamRequest) => Answer;

interface Options {
  env?: Record<string, string>;
  cacheSeconds?: number;
  oauth?: OauthStore;
  answers?: Answers;
}

function setUp({ env = { XAI_API_KEY: SECRET, ELEVENLABS_API_KEY: SECRET }, answers, oauth, ...rest }: Options = {}) {
  const clock = createTestClock();
  const calls: UpstreamRequest[] = [];
  const lines: string[] = [];
  const upstream: Upstream = async (request) => {
    calls.push(request);
    const answer = answers?.(new URL(request.url), request) ?? { status: 404 };
    if (answer === 'fail') throw new Error(`cannot reach it with ${SECRET}`);
    if (answer === 'hang') {
      return new Promise((_, reject) => request.signal.addEventListener('abort', () => reject(request.signal.reason)));
    }
    const { status, body } = isReply(answer) ? answer : { status: 200, body: answer };
    const bytes =
      body instanceof Uint8Array ? body : utf8ToBytes(typeof body === 'string' ? body : JSON.stringify(body ?? null));
    return {
      status,
      headers: {},
      body: (async function* () {
        yield bytes;
      })(),
    };
  };
  const options = createVoiceOptions({
    credentials: createVoiceCredentials({ env, oauth }),
    upstream,
    clock,
    log: createLog('DEBUG', (line) => lines.push(line)),
    cacheSeconds: rest.cacheSeconds ?? 600,
  });
  const of = (id: string, mode: OptionsMode = 'voice_output') => options.of(mode, provider(id));
  return { clock, calls, lines, options, of };
}

const isReply = (answer: unknown): answer is { status: number; body?: unknown } =>
  typeof answer === 'object' && answer !== null && 'status' in answer;

function provider(id: string): StreamingProvider {
  const found = findProvider(id);
  if (!found) throw new Error(id);
  return found;
}

const paths = (calls: UpstreamRequest[]) => calls.map(({ url }) => new URL(url).pathname);

const XAI: Answers = ({ pathname }) =>
  pathname.endsWith('/tts/voices')
    ? {
        voices: [
          { voice_id: 'eve', name: 'Eve', description: 'energetic, upbeat.' },
          { id: 'nova' },
          'ara',
          { voice: 'sal', name: 'Sal - warm' },
          {},
          7,
        ],
      }
    : { custom_voices: [{ voice_id: 'c1', name: 'Mine' }, { voice_id: 'c2' }] };

const ELEVENLABS: Answers = ({ pathname }) =>
  pathname === '/v1/voices'
    ? {
        voices: [
          { voice_id: 'v1', name: 'Ann' },
          { voice_id: 'JBFqnCBsd6RMkjVDRZzb', name: 'George' },
        ],
      }
    : [
        { model_id: 'eleven_flash_v2_5', name: 'Flash', languages: [{ language_id: 'en', name: 'English' }] },
        {
          model_id: 'new',
          name: 'New',
          can_do_text_to_speech: true,
          languages: [{ language_id: 'de', name: 'German' }],
        },
        { model_id: 'sts', name: 'Speech', can_do_text_to_speech: false, languages: [{ language_id: 'fr' }] },
      ];

describe('options without discovery (contract 05 §11)', () => {
  it('the stub has its static lists', async () => {
    const { of, calls } = setUp();
    expect(await of('stub')).toEqual({
      provider: {
        ...provider('stub').info,
        model_labels: {},
        voice_labels: {},
        language_labels: {},
        voice_metadata: {},
        voice_groups: [],
        recommended_voices: [],
        model_voice_compatibility: {},
        requires_manual_id: false,
      },
      dynamic: {
        attempted: false,
        status: 'static',
        source: 'provider_info',
        voice_count: 0,
        custom_voice_count: 0,
        model_count: 0,
        auth_source: null,
        cache: 'miss',
        cache_ttl_seconds: 600,
      },
    });
    expect(calls).toEqual([]);
  });

  it('OpenAI: groups, recommendations and which model has which voice', async () => {
    const { of } = setUp({ env: { OPENAI_API_KEY: SECRET } });
    const { provider: tts, dynamic } = await of('openai_tts');
    expect(dynamic).toMatchObject({ status: 'static', attempted: false, source: 'openai_docs' });
    expect(tts.voice_groups).toMatchObject([{ id: 'openai_builtin', values: tts.voices }]);
    expect(tts.recommended_voices).toEqual(['marin', 'cedar', 'coral']);
    expect(tts.model_voice_compatibility['gpt-4o-mini-tts']).toHaveLength(13);
    const old = 'alloy ash coral echo fable onyx nova sage shimmer'.split(' ');
    expect(tts.model_voice_compatibility['tts-1']).toEqual(old);
    expect(tts.model_voice_compatibility['tts-1-hd']).toEqual(old);
    expect(tts.voice_metadata.marin).toEqual({
      source: 'openai_docs',
      custom: false,
      recommended: true,
      experimental: false,
      requires_manual_id: false,
      label: 'Marin',
    });
    const { provider: realtime } = await of('openai_realtime', 'realtime_voice');
    expect(realtime.voice_groups).toMatchObject([{ id: 'openai_realtime_builtin' }]);
    expect(Object.values(realtime.model_voice_compatibility).map(({ length }) => length)).toEqual([10, 10, 10]);
  });

  it('xAI and ElevenLabs without a key', async () => {
    const { of, calls } = setUp({ env: {} });
    const { provider: xai, dynamic } = await of('xai_tts');
    expect(dynamic).toMatchObject({ status: 'auth_missing', attempted: false, source: 'xai_api', auth_source: null });
    expect(xai.voice_groups).toMatchObject([
      { id: 'xai_builtin', source: 'xai_docs', recommended: ['eve', 'ara', 'sal'] },
    ]);
    expect(xai.voice_groups[0]?.values).toHaveLength(26);
    expect(xai.voices.slice(0, 7)).toEqual(['eve', 'ara', 'rex', 'sal', 'leo', 'carina', 'zagan']);
    expect(xai.voices).toHaveLength(26);
    expect(xai.voice_labels).toMatchObject({ zenith: 'Zenith', rex: 'Rex', eve: 'Eve' });
    expect(xai.voice_metadata.rex).toMatchObject({ label: 'Rex' });
    expect(Object.keys(xai.model_voice_compatibility)).toEqual([
      'xai-tts',
      'grok-voice-latest',
      'grok-voice-think-fast-1.0',
    ]);
    expect((await of('xai_realtime', 'realtime_voice')).dynamic.status).toBe('auth_missing');
    const elevenlabs = await of('elevenlabs_tts');
    expect(elevenlabs.dynamic).toMatchObject({ status: 'auth_missing', source: 'elevenlabs_api' });
    expect(elevenlabs.provider.voices).toEqual(['JBFqnCBsd6RMkjVDRZzb']);
    expect(calls).toEqual([]);
  });
});

describe('discovery (contract 05 §11)', () => {
  it('xAI: built-in voices and those of the account', async () => {
    const { of, calls } = setUp({ answers: XAI });
    const { provider: xai, dynamic } = await of('xai_tts');
    expect(dynamic).toEqual({
      attempted: true,
      status: 'ok',
      source: 'xai_api',
      voice_count: 6,
      custom_voice_count: 2,
      model_count: 0,
      auth_source: 'XAI_API_KEY',
      cache: 'miss',
      cache_ttl_seconds: 600,
    });
    expect(xai.voices).toEqual(['eve', 'ara', 'rex', 'sal', 'leo', 'nova', 'c1', 'c2']);
    expect(xai.voice_groups).toMatchObject([
      { id: 'xai_builtin', values: ['eve', 'nova', 'ara', 'sal'] },
      { id: 'xai_custom', values: ['c1', 'c2'], custom: true },
    ]);
    expect(xai.voice_labels).toEqual({
      eve: 'Eve - energetic, upbeat',
      nova: 'Nova',
      // No text of its own, so none is added.
      ara: 'Ara',
      sal: 'Sal - warm',
      c1: 'Mine (custom)',
      c2: 'C2 (custom)',
    });
    expect(xai.voice_metadata.c1).toMatchObject({ custom: true, recommended: false, label: 'Mine (custom)' });
    expect(xai.model_voice_compatibility['xai-tts']).toContain('c2');
    expect(paths(calls)).toEqual(['/v1/tts/voices', '/v1/custom-voices']);
    expect(calls.map(({ headers }) => headers.authorization)).toEqual([`Bearer ${SECRET}`, `Bearer ${SECRET}`]);
  });

  it('xAI: the base URL of a realtime provider is its HTTP one, and that of a token its own', async () => {
    const env = {
      XAI_API_KEY: SECRET,
      XAI_BASE_URL: 'wss://env.example/v1/realtime',
      XAI_REALTIME_URL: 'wss://other/',
    };
    const one = setUp({ env, answers: XAI });
    await one.of('xai_realtime', 'realtime_voice');
    expect(one.calls[0]?.url).toBe('https://env.example/v1/tts/voices');
    const oauth: OauthStore = {
      paths: async () => [],
      isConfigured: async () => true,
      find: async () => ({ secret: 'oauth-token', baseUrl: 'https://own.example', path: '/store' }),
    };
    const two = setUp({ env, answers: XAI, oauth });
    expect((await two.of('xai_tts')).dynamic.auth_source).toBe('oauth');
    expect(two.calls[0]).toMatchObject({
      url: 'https://own.example/v1/tts/voices',
      headers: { authorization: 'Bearer oauth-token' },
    });
  });

  it('xAI: pages of the account’s voices, up to 20, and none twice', async () => {
    const page = (token: string | null) => ({ data: [{ id: `after ${token}` }], pagination_token: `${token ?? ''}+1` });
    const endless = setUp({
      answers: (url) => (url.pathname.endsWith('/custom-voices') ? page(url.searchParams.get('pagination_token')) : []),
    });
    expect((await endless.of('xai_tts')).dynamic).toMatchObject({ status: 'ok', custom_voice_count: 20 });
    expect(endless.calls).toHaveLength(21);
    expect(endless.calls.at(-1)?.url).toContain('?limit=100&pagination_token=%2B1%2B1');
    const same = setUp({
      answers: (url) =>
        url.pathname.endsWith('/custom-voices') ? { items: [{ id: 'c' }], pagination_token: 'x' } : [],
    });
    await same.of('xai_tts');
    expect(same.calls).toHaveLength(3);
  });

  it('xAI: an account without voices of its own is not an error, a failure of the others is told', async () => {
    const voices = (url: URL) => url.pathname.endsWith('/tts/voices');
    for (const status of [403, 404]) {
      const { dynamic, provider: xai } = await setUp({
        answers: (url, it) => (voices(url) ? XAI(url, it) : { status }),
      }).of('xai_tts');
      expect(dynamic).toMatchObject({ status: 'ok', custom_voice_count: 0 });
      expect(dynamic.message).toBeUndefined();
      expect(xai.voice_groups).toHaveLength(1);
    }
    const partial = await setUp({ answers: (url, it) => (voices(url) ? { status: 500 } : XAI(url, it)) }).of('xai_tts');
    expect(partial.dynamic).toMatchObject({
      status: 'ok',
      message: 'voices: the provider answered 500',
      cache_ttl_seconds: 30,
    });
    expect(partial.provider.voice_groups).toMatchObject([{ source: 'xai_docs' }, { id: 'xai_custom' }]);
    const nothing = await setUp({ answers: () => [] }).of('xai_tts');
    expect(nothing.dynamic).toMatchObject({ status: 'error', attempted: true, message: 'no voices were listed' });
    expect(nothing.provider.voices).toHaveLength(26);
  });

  it('ElevenLabs: voices of the account, models that speak, their languages', async () => {
    const { of, calls } = setUp({ answers: ELEVENLABS });
    const { provider: elevenlabs, dynamic } = await of('elevenlabs_tts');
    expect(dynamic).toMatchObject({ status: 'ok', voice_count: 2, model_count: 2, auth_source: 'ELEVENLABS_API_KEY' });
    expect(elevenlabs.models).toEqual(['eleven_flash_v2_5', 'eleven_multilingual_v2', 'eleven_v3', 'new']);
    expect(elevenlabs.model_labels).toEqual({ eleven_flash_v2_5: 'Flash', new: 'New' });
    expect(elevenlabs.voices).toEqual(['JBFqnCBsd6RMkjVDRZzb', 'v1']);
    expect(elevenlabs.languages).toEqual(['en', 'de']);
    expect(elevenlabs.language_labels).toEqual({ en: 'English', de: 'German' });
    expect(elevenlabs.voice_groups).toMatchObject([{ id: 'elevenlabs_account', custom: true }]);
    expect(calls.map(({ headers }) => headers['xi-api-key'])).toEqual([SECRET, SECRET]);
    expect(paths(calls).sort()).toEqual(['/v1/models', '/v1/voices']);
  });

  it('ElevenLabs: one failure is still ok, two are an error', async () => {
    const half = await setUp({
      answers: (url, it) => (url.pathname === '/v1/models' ? { status: 401 } : ELEVENLABS(url, it)),
    }).of('elevenlabs_tts');
    expect(half.dynamic).toMatchObject({ status: 'ok', message: 'models: the provider answered 401', voice_count: 2 });
    const none = await setUp({ answers: () => ({ status: 401 }) }).of('elevenlabs_tts');
    expect(none.dynamic.status).toBe('error');
    expect(none.provider.models).toHaveLength(3);
  });

  it.each<[string, Answer, RegExp]>([
    ['garbage', '<html>', /not JSON/],
    ['no list', { voices: 'x' }, /not a list/],
    ['a redirect', { status: 302 }, /answered 302/],
    ['too much', new Uint8Array(2 * 1024 * 1024 + 1), /too large/],
    ['too much structure', `{"voices":[],"x":${'['.repeat(2e5)}${']'.repeat(2e5)}}`, /not JSON/],
    ['a broken connection that tells the key', 'fail', /cannot reach it with <redacted>/],
  ])('%s ends with the static lists', async (_, answer, message) => {
    const { of, lines } = setUp({
      answers: () => (answer instanceof Uint8Array ? { status: 200, body: answer } : answer),
    });
    const { dynamic, provider: xai } = await of('xai_tts');
    expect(dynamic).toMatchObject({ attempted: true, status: 'error', message: expect.stringMatching(message) });
    expect(xai.voices).toHaveLength(26);
    expect(lines.join('\n')).not.toContain(SECRET);
  });

  it('a reply of 2 MiB is read', async () => {
    const text = JSON.stringify({ voices: [{ id: 'big', note: '' }] });
    const body = text.replace('""', `"${'x'.repeat(2 * 1024 * 1024 - text.length)}"`);
    expect((await setUp({ answers: () => ({ status: 200, body }) }).of('xai_tts')).dynamic.status).toBe('ok');
  });

  it('a provider that hangs costs five seconds, and both calls hang at the same time', async () => {
    const { of, clock, calls } = setUp({ answers: () => 'hang' });
    const outcome = of('elevenlabs_tts');
    await clock.advanceAsync(4999);
    expect(calls).toHaveLength(2);
    await clock.advanceAsync(1);
    expect((await outcome).dynamic).toMatchObject({
      status: 'error',
      message: 'voices: no reply in time; models: no reply in time',
    });
    expect(clock.pending).toBe(0);
  });

  it('pages that drip end after ten seconds with what has come', async () => {
    const { clock, ...slow } = setUp({
      answers: (url) => {
        if (!url.pathname.endsWith('/custom-voices')) return [];
        const token = url.searchParams.get('pagination_token');
        if (token === '2') return 'hang';
        return { data: [{ id: `c${token}` }], pagination_token: String(Number(token) + 1) };
      },
    });
    const outcome = slow.of('xai_tts');
    await clock.advanceAsync(5000);
    expect((await outcome).dynamic).toMatchObject({
      status: 'ok',
      custom_voice_count: 2,
      message: 'custom voices: no reply in time',
    });
  });

  it('an invalid base URL is reported without its value', async () => {
    const { of, calls } = setUp({ env: { XAI_API_KEY: SECRET, XAI_BASE_URL: `https://user:${SECRET}@host` } });
    const { dynamic } = await of('xai_tts');
    expect(dynamic).toMatchObject({
      status: 'error',
      attempted: false,
      message: expect.stringContaining('XAI_BASE_URL'),
    });
    expect(dynamic.message).not.toContain(SECRET);
    expect(calls).toEqual([]);
  });

  it('labels carry the short description of the provider, where there is one (issue 23, 3.6)', async () => {
    const answers = () => [
      { voice_id: 'rex', name: 'Rex', description: 'Deep\nand slow.' },
      { voice_id: 'kai', labels: { descriptive: 'raspy', accent: 'american' } },
      { voice_id: 'sal', name: 'Sal - warm', description: 'not said twice' },
      { voice_id: 'lux', name: 'Lux', description: 'A whole story about this voice. '.repeat(5) },
      { voice_id: 'odd', name: 'Odd', description: { text: 'x' }, labels: 'x' },
    ];
    const labels = {
      rex: 'Rex - Deep and slow',
      kai: 'Kai - raspy',
      sal: 'Sal - warm',
      lux: 'Lux',
      odd: 'Odd',
    };
    const { of } = setUp({ answers, env: { XAI_API_KEY: SECRET, ELEVENLABS_API_KEY: SECRET } });
    const custom = Object.fromEntries(Object.entries(labels).map(([id, label]) => [id, `${label} (custom)`]));
    expect((await of('xai_tts')).provider.voice_labels).toEqual(custom);
    expect((await of('elevenlabs_tts')).provider.voice_labels).toEqual(labels);
  });

  it('ids and labels that no list can show are left out or cleaned', async () => {
    const answers = () => [
      { id: 'a'.repeat(161) },
      { id: '  ' },
      { id: { nested: 1 } },
      { id: '__proto__', name: 'p' },
      { id: 'fine', name: 'Two\nlines\u202e' },
      { id: 'long', name: 'x'.repeat(300) },
    ];
    const { provider: xai } = await setUp({ answers }).of('xai_tts');
    expect(xai.voice_groups[0]?.values).toEqual(['__proto__', 'fine', 'long']);
    expect(xai.voice_labels.long).toBe('Long (custom)');
    expect(Object.entries(xai.voice_labels)).toContainEqual(['fine', 'Two lines (custom)']);
  });
});

describe('cache of options (contract 05 §11)', () => {
  it('keeps an answer as long as configured, for each mode, provider and credential', async () => {
    const env: Record<string, string> = { XAI_API_KEY: SECRET, ELEVENLABS_API_KEY: SECRET };
    const { of, calls, clock } = setUp({ env, answers: XAI });
    const states = async (...ids: [string, OptionsMode?][]) => {
      const found: string[] = [];
      for (const [id, mode] of ids) found.push((await of(id, mode)).dynamic.cache);
      return found;
    };
    expect(await states(['xai_tts'], ['xai_tts'], ['xai_realtime', 'realtime_voice'], ['elevenlabs_tts'])).toEqual([
      'miss',
      'hit',
      'miss',
      'miss',
    ]);
    const before = calls.length;
    clock.advance(599_999);
    expect(await states(['xai_tts'])).toEqual(['hit']);
    expect(calls).toHaveLength(before);
    env.XAI_API_KEY = 'another-key';
    expect(await states(['xai_tts'], ['xai_tts'])).toEqual(['miss', 'hit']);
    env.XAI_API_KEY = SECRET;
    clock.advance(1);
    expect(await states(['xai_tts'])).toEqual(['miss']);
  });

  it('keeps an error for 30 s at most, and nothing with 0', async () => {
    const failing = setUp({ answers: () => ({ status: 500 }) });
    expect((await failing.of('xai_tts')).dynamic).toMatchObject({ cache: 'miss', cache_ttl_seconds: 30 });
    expect((await failing.of('xai_tts')).dynamic.cache).toBe('hit');
    failing.clock.advance(30_000);
    expect((await failing.of('xai_tts')).dynamic.cache).toBe('miss');
    const off = setUp({ answers: XAI, cacheSeconds: 0 });
    await off.of('xai_tts');
    expect((await off.of('xai_tts')).dynamic).toMatchObject({ cache: 'miss', cache_ttl_seconds: 0 });
    expect(off.calls).toHaveLength(4);
    const short = setUp({ answers: () => ({ status: 500 }), cacheSeconds: 5 });
    expect((await short.of('xai_tts')).dynamic.cache_ttl_seconds).toBe(5);
  });

  it('gives copies that a caller may change', async () => {
    const { of } = setUp({ answers: XAI });
    for (let round = 0; round < 3; round++) {
      const { provider: xai, dynamic } = await of('xai_tts');
      expect(xai.voices[0]).toBe('eve');
      expect(xai.voice_labels.eve).toBe('Eve - energetic, upbeat');
      expect(dynamic.cache).toBe(round === 0 ? 'miss' : 'hit');
      xai.voices.length = 0;
      xai.models.push('mine');
      xai.voice_groups.length = 0;
      xai.voice_labels.eve = 'changed';
      dynamic.cache = 'hit';
    }
    expect(findProvider('xai_tts')?.info.models).toEqual(['xai-tts']);
  });

  it('callers at the same time share one discovery', async () => {
    const { of, calls } = setUp({ answers: XAI, cacheSeconds: 0 });
    const found = await Promise.all(Array.from({ length: 5 }, () => of('xai_tts')));
    expect(calls).toHaveLength(2);
    expect(new Set(found.map(({ provider: xai }) => xai)).size).toBe(5);
  });

  it('is bounded', async () => {
    const env: Record<string, string> = {};
    const { of } = setUp({ env, answers: XAI });
    const stateWith = async (key: number) => {
      env.XAI_API_KEY = `key-${key}`;
      return (await of('xai_tts')).dynamic.cache;
    };
    for (let key = 0; key <= 64; key++) expect(await stateWith(key)).toBe('miss');
    expect(await stateWith(64)).toBe('hit');
    expect(await stateWith(0)).toBe('miss');
  });

  it('stopping aborts running calls', async () => {
    const { of, options, calls } = setUp({ answers: () => 'hang' });
    const outcome = of('xai_tts');
    await expect.poll(() => calls.length).toBe(2);
    options.stop();
    expect((await outcome).dynamic.status).toBe('error');
  });
});

it('names the key of a provider that lists nothing, and that a server of the owner needs none', async () => {
  expect((await setUp({ env: {} }).of('openai_tts')).dynamic.auth_source).toBeNull();
  const { dynamic } = await setUp({ env: { OPENAI_API_KEY: SECRET } }).of('openai_tts');
  expect(dynamic).toMatchObject({ status: 'static', auth_source: 'OPENAI_API_KEY' });
  const { options } = setUp({ env: {} });
  const servers = { tts: { openai: { base_url: 'http://127.0.0.1:8880/v1' } } };
  const own = await options.of('voice_output', provider('openai_tts'), undefined, servers);
  expect(own.dynamic.auth_source).toBe('none');
});

describe('validation (contract 05 §11)', () => {
  const checks = async (id: string, selection: Partial<Parameters<typeof checkSelection>[1]>) => {
    const { provider: options } = await setUp({ env: {} }).of(id);
    const all = checkSelection(options, { model: '', voice: '', sampleRate: 24_000, ...selection });
    expect(all.every(({ message }) => message !== '')).toBe(true);
    return all.map(({ id: name, status }) => `${name} ${status}`);
  };

  it.each<[string, Partial<Parameters<typeof checkSelection>[1]>, string[]]>([
    [
      'openai_tts',
      { model: 'tts-1', voice: 'alloy', language: 'en' },
      ['model_known ok', 'voice_known ok', 'sample_rate_known ok', 'language_known ok'],
    ],
    [
      'openai_tts',
      { model: 'tts-1', voice: 'marin' },
      ['model_known ok', 'voice_compatible error', 'sample_rate_known ok'],
    ],
    [
      'openai_tts',
      { model: 'new', voice: 'mine', language: 'xx' },
      ['model_known warning', 'voice_known warning', 'sample_rate_known ok', 'language_known warning'],
    ],
    ['openai_tts', { sampleRate: 16_000 }, ['model_present error', 'voice_present error', 'sample_rate_known error']],
    [
      'stub',
      { model: 'stub-tone', voice: 'mine', sampleRate: 48_000 },
      ['model_known ok', 'voice_known warning', 'sample_rate_known ok'],
    ],
    [
      'xai_realtime',
      { model: 'grok-voice-latest', voice: 'rex', language: 'en' },
      ['model_known ok', 'voice_known ok', 'sample_rate_known ok'],
    ],
    [
      'xai_tts',
      { model: 'constructor', voice: 'rex' },
      ['model_known warning', 'voice_known ok', 'sample_rate_known ok'],
    ],
  ])('%s %j', async (id, selection, expected) => {
    expect(await checks(id, selection)).toEqual(expected);
  });
});
