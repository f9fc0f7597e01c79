import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createFiles } from '../../../lib/host/node/files.ts';
import { createOauthStore, tokenIn } from '../../../lib/voice/oauth-store.ts';
import { createTestClock } from '../../support/clock.ts';
import { temporaryDirectory, writeFiles } from '../../support/temp.ts';

const NOW = 1_790_000_000_000;
const seconds = (ago: number) => NOW / 1000 - ago;
const iso = (ago: number) => new Date(NOW - ago * 1000).toISOString();
const fresh = { access_token: 'token-1', expires_at_ms: NOW + 3_600_000 };
const find = (document: Record<string, unknown>) => tokenIn(document, NOW)?.secret ?? null;

describe('where a token is found (contract 05 §13)', () => {
  it('in any of the four shapes', () => {
    expect(find({ tokens: fresh })).toBe('token-1');
    expect(find({ credential_pool: { 'xai-oauth': ['x', {}, fresh] } })).toBe('token-1');
    expect(find({ credential_pool: { 'xai-oauth': [{ tokens: fresh }] } })).toBe('token-1');
    expect(find({ providers: { 'xai-oauth': { tokens: fresh } } })).toBe('token-1');
    expect(find(fresh)).toBe('token-1');
  });

  it('not under another provider, and not in other types', () => {
    expect(find({ providers: { 'openai-codex': { tokens: fresh } }, credential_pool: { xai: [fresh] } })).toBeNull();
    expect(find({ tokens: [fresh], credential_pool: { 'xai-oauth': fresh }, providers: null })).toBeNull();
    expect(find({ ...fresh, access_token: 7 })).toBeNull();
    expect(find({ ...fresh, access_token: 'a\r\nb' })).toBeNull();
  });

  it('an expired one is skipped for the next', () => {
    const expired = { access_token: 'old', expires_at_ms: NOW - 1 };
    expect(find({ tokens: expired, credential_pool: { 'xai-oauth': [expired, fresh] } })).toBe('token-1');
  });
});

describe('until when a token is valid (contract 05 §13)', () => {
  it('until its stated end, less two minutes', () => {
    expect(find({ access_token: 't', expires_at_ms: NOW + 120_000 })).toBe('t');
    expect(find({ access_token: 't', expires_at_ms: NOW + 119_999 })).toBeNull();
    expect(find({ access_token: 't', expires_at_ms: String(NOW + 120_000) })).toBe('t');
  });

  it('for its lifetime, or six hours, after it was issued or refreshed', () => {
    const given = (facts: Record<string, unknown>) => find({ access_token: 't', ...facts });
    expect(given({ issued_at: seconds(60), expires_in: 181 })).toBe('t');
    expect(given({ issued_at: seconds(60), expires_in: 179 })).toBeNull();
    expect(given({ created_at_ms: NOW - 1000 })).toBe('t');
    expect(given({ last_refresh: iso(21_600 - 121) })).toBe('t');
    expect(given({ last_refresh: iso(21_600 - 119) })).toBeNull();
    expect(given({ last_refresh: iso(60).replace('Z', ''), expires_in: 200 })).toBe('t');
    expect(given({ created_at: seconds(1e6), refreshed_at: seconds(5) })).toBe('t');
    expect(given({ issued_at: seconds(5), expires_in: 'soon' })).toBeNull();
  });

  it('the times of an entry count for the tokens in it', () => {
    expect(find({ providers: { 'xai-oauth': { last_refresh: iso(5), tokens: { access_token: 't' } } } })).toBe('t');
  });

  it('never without a known end', () => {
    expect(find({ access_token: 't' })).toBeNull();
    expect(find({ access_token: 't', expires_in: 3600 })).toBeNull();
    expect(find({ access_token: 't', issued_at: 'yesterday' })).toBeNull();
  });
});

it('contract 05 §8: a token keeps its base URL, and is not used when that is invalid', () => {
  expect(tokenIn({ ...fresh, base_url: 'https://own.example/v1/' }, NOW)?.baseUrl).toBe('https://own.example/v1');
  expect(tokenIn({ ...fresh, base_url: 'wss://own.example/v1' }, NOW)?.baseUrl).toBe('https://own.example/v1');
  expect(tokenIn({ ...fresh, base_url: 'own.example' }, NOW)).toBeNull();
  expect(tokenIn({ ...fresh, base_url: 'https://user:word@own.example' }, NOW)).toBeNull();
});

it('contract 05 §13: the configured file, then auth.json of the agent home; read on each use', async () => {
  const directory = await temporaryDirectory({
    'agent/auth.json': JSON.stringify({ ...fresh, access_token: 'agent' }),
  });
  const store = createOauthStore({
    files: createFiles(),
    clock: createTestClock(NOW),
    path: async () => join(directory, 'own.json'),
    agentHome: join(directory, 'agent'),
  });
  expect((await store.find())?.secret).toBe('agent');
  await writeFiles(directory, { 'own.json': '{"access_token": ' });
  expect((await store.find())?.secret).toBe('agent');
  await writeFiles(directory, { 'own.json': JSON.stringify(fresh), 'other.json': JSON.stringify({ tokens: fresh }) });
  expect(await store.find()).toEqual({ secret: 'token-1', path: join(directory, 'own.json') });
  expect((await store.find(join(directory, 'other.json')))?.path).toBe(join(directory, 'other.json'));
  expect(await store.paths()).toEqual([join(directory, 'own.json'), join(directory, 'agent/auth.json')]);
});
