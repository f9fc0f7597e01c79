import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { bearer, describeMatrix, pair, post } from '../support/relay.ts';
import { mp3Frames, sinePcm } from '../support/voice/audio.ts';
import type { ProviderCall } from '../support/voice/provider.ts';
import { PROVIDER_KEY, startVoice } from '../support/voice/relay.ts';

const MP3 = Buffer.from([0xff, 0xf3, 1, 2, 3, 0, 255]);

describeMatrix('POST /voice/synthesize (contract 05 §7)', (start, runtime) => {
  it('answers with MP3 and the headers of the contract', async () => {
    const { provider, speak } = await startVoice(start);
    provider.onCall((call) => call.answer(200, MP3, { 'content-type': 'audio/mpeg' }));
    const response = await speak({ text: ' **Hello** `x`, see [docs](http://a.b) ' });
    expect(response.status).toBe(200);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'audio/mpeg',
      'cache-control': 'private, no-store',
      'content-disposition': 'inline; filename="tts.mp3"',
      'content-length': String(MP3.length),
    });
    expect(Buffer.from(await response.arrayBuffer())).toEqual(MP3);
    const [call] = provider.calls;
    expect(call?.json()).toMatchObject({ input: 'Hello x, see docs' });
    expect(call?.headers.authorization).toBe(`Bearer ${PROVIDER_KEY}`);
  });

  it.each<[string, unknown, string]>([
    ['no text', {}, 'text'],
    ['a number', { text: 7 }, 'text'],
    ['a blank text', { text: ' \n' }, 'empty'],
    ['a long text', { text: 'x'.repeat(5001) }, '5000'],
    ['only code', { text: '```\nx\n```' }, 'sanitiz'],
    ['a list', [], 'object'],
    ['null', null, 'object'],
  ])('refuses %s with 400 as JSON', async (_name, body, message) => {
    const { provider, speak } = await startVoice(start);
    const response = await speak(body);
    expect(response.status).toBe(400);
    expect(await response.json()).toEqual({ success: false, error: expect.stringContaining(message) });
    expect(provider.calls).toHaveLength(0);
  });

  it('refuses what is no JSON, and more than 2 MiB', async () => {
    const { target, token } = await startVoice(start);
    const send = (body: string) => target.fetch('/voice/synthesize', { method: 'POST', body, headers: bearer(token) });
    const broken = await send('{"text":');
    expect([broken.status, await broken.json()]).toEqual([400, { success: false, error: 'invalid JSON body' }]);
    const large = await send(JSON.stringify({ text: 'x', padding: 'x'.repeat(2 * 1024 * 1024) }));
    expect([large.status, await large.json()]).toMatchObject([413, { success: false }]);
  });

  it.each<[string, (call: ProviderCall) => void, string]>([
    ['500 with the key', (call) => call.answer(500, `oops ${PROVIDER_KEY} at /home/me/x`), 'oops <redacted> at <path>'],
    ['no audio', (call) => call.answer(200, ''), 'no audio'],
    ['a redirect', (call) => call.answer(307, '', { location: '/stolen' }), 'HTTP 307'],
    ['a cut', (call) => call.cut(), 'openai'],
  ])('reports a failing provider with 500: %s', async (_name, handle, message) => {
    const { provider, speak, target } = await startVoice(start);
    provider.onCall(handle);
    const response = await speak({ text: 'Hello' });
    expect(response.status).toBe(500);
    expect(await response.json()).toEqual({
      success: false,
      error: expect.stringContaining(message),
      provider: 'openai',
    });
    expect(provider.calls.every(({ path }) => path === '/audio/speech')).toBe(true);
    expect(target.log.join('\n')).not.toContain(PROVIDER_KEY);
  });

  it('wants the grant', async () => {
    const { target } = await startVoice(start);
    const { token } = await pair(target, { policy: { without: ['voice:tts'] } });
    const refused = await target.fetch('/voice/synthesize', { ...post({ text: 'x' }), headers: bearer(token) });
    expect([refused.status, await refused.text()]).toEqual([403, expect.stringContaining('voice:tts')]);
  });

  if (runtime === 'edge') {
    it('encodes the PCM of gemini here too', async () => {
      const { provider, target, token } = await startVoice((options) =>
        start({ env: { GEMINI_API_KEY: 'k-1234', GEMINI_BASE_URL: options?.env?.OPENAI_BASE_URL ?? '' } }),
      );
      const data = Buffer.from(sinePcm(1, 24_000)).toString('base64');
      provider.onCall((call) => call.answer(200, { candidates: [{ content: { parts: [{ inlineData: { data } }] } }] }));
      const response = await target.fetch('/voice/synthesize', { ...post({ text: 'Hi' }), headers: bearer(token) });
      expect(response.status).toBe(200);
      expect(mp3Frames(new Uint8Array(await response.arrayBuffer()))).toMatchObject({ sampleRate: 24_000, rest: 0 });
    });
    return;
  }

  it('speaks as the profile says that the body or the query names', async () => {
    const { provider, target, token, configure, section } = await startVoice(start);
    provider.onCall((call) => call.answer(200, MP3));
    await mkdir(`${target.agentHome}/profiles/work`, { recursive: true });
    await configure({ tts: { ...section, voice: 'root' } });
    const work = { tts: { ...section, voice: 'work' } };
    await writeFile(`${target.agentHome}/profiles/work/config.yaml`, JSON.stringify(work));
    const say = (query: string, body: object) =>
      target.fetch(`/voice/synthesize${query}`, { ...post({ text: 'x', ...body }), headers: bearer(token) });
    await say('', { profile: 'work' });
    await say('?profile=work', { profile: 'default' });
    await say('', { profile: 'default' });
    await say('', { profile: '../work' });
    await say('', {});
    expect(provider.calls.map((call) => call.json().voice)).toEqual(['work', 'work', 'root', 'root', 'root']);
    const before = await readdir(target.agentHome);
    expect(before).toContain('config.yaml');
  });

  it('aborts the call to the provider when the client hangs up', async () => {
    const { provider, speak } = await startVoice(start);
    const hangUp = new AbortController();
    const waiting = speak({ text: 'Hello' }, { signal: hangUp.signal }).catch(() => {});
    const call = await provider.call(0);
    hangUp.abort();
    await waiting;
    await expect.poll(() => call.isAbandoned).toBe(true);
  });
});
