import { expect, it } from 'vitest';
import { TIMEOUT } from '../support/limits.ts';
import { filesBelow } from '../support/process.ts';
import { bearer, post } from '../support/relay.ts';
import { sinePcm, wavOf } from '../support/voice/audio.ts';
import { audioOf, connectVoice, type VoiceEvent } from '../support/voice/client.ts';
import { createOutput } from '../support/voice/output.ts';
import { startVoiceProcess } from '../support/voice/process.ts';
import type { ProviderCall } from '../support/voice/provider.ts';
import { clipForm, PROVIDER_KEY } from '../support/voice/relay.ts';

const RATE = 24_000;

/** Faults of a provider, by the text that it is to say, and the error that a client is shown. */
const FAULTS: Record<string, { misbehave(call: ProviderCall): void | Promise<void>; error: RegExp }> = {
  'hang before the answer': { misbehave: () => {}, error: /^no audio within 12 s$/ },
  'hang after the headers': { misbehave: (call) => call.begin(), error: /^no audio within 12 s$/ },
  'drip a byte at a time': {
    async misbehave(call) {
      call.begin();
      for (let count = 0; count < 1000 && !call.isAbandoned; count++) {
        await call.write(Buffer.alloc(1));
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    },
    error: /^no audio within 12 s$/,
  },
  'refuse the key': {
    misbehave: (call) => call.answer(401, { error: { message: `no such key: ${PROVIDER_KEY}` } }),
    error: /^OpenAI TTS answered HTTP 401: no such key: <redacted>$/,
  },
  'be too busy': {
    misbehave: (call) => call.answer(429, { error: { message: 'slow down' } }, { 'retry-after': '1' }),
    error: /^OpenAI TTS answered HTTP 429: slow down$/,
  },
  'send a page': {
    misbehave: (call) => call.answer(200, '<html>Sign in</html>', { 'content-type': 'text/html' }),
    error: /^OpenAI TTS sent text\/html instead of audio/,
  },
  'send an endless error': {
    async misbehave(call) {
      call.answer(500, Buffer.alloc(4 * 1024 * 1024, 'x'));
    },
    error: /^OpenAI TTS answered HTTP 500.{0,300}$/,
  },
  'send nothing': { misbehave: (call) => call.audio(new Uint8Array()), error: /^OpenAI TTS returned no audio$/ },
  'go away in the middle': {
    async misbehave(call) {
      call.begin();
      await call.write(sinePcm(0.2, RATE));
      call.cut();
    },
    error: /^OpenAI TTS: connection (reset|failed)|^OpenAI TTS: .*(aborted|closed)/,
  },
};

it('whatever a provider does wrong is the error of the contract, and leaves nothing behind', async () => {
  const { provider, relay, pair, target, runs, descriptors, clips } = await startVoiceProcess({
    env: { RELAY_LOG_LEVEL: 'DEBUG' },
  });
  const token = await pair();
  const answer = (call: ProviderCall) => FAULTS[String(call.json().input)]?.misbehave(call);
  provider.onCall((call) => (call.path === '/audio/speech' ? answer(call) : call.answer(401, PROVIDER_KEY)));
  const tokens: string[] = [];
  const render = async (text: string): Promise<VoiceEvent[]> => {
    const session = await createOutput(target, token, { provider: 'openai_tts' });
    tokens.push(session.resume_token);
    const client = await connectVoice(target, session.websocket_path, token);
    client.send({ type: 'response.create', text });
    await Promise.race([client.next('voice.error'), client.next('voice.response.done')]).catch(() => {});
    client.close(1000);
    await client.closed();
    return client.events;
  };
  // Opens whatever is opened once and kept.
  await render('send nothing');
  const before = await descriptors();

  const texts = Object.keys(FAULTS);
  const results = await Promise.all(texts.map(render));
  const errors = results.map((events) => events.find(({ type }) => type === 'voice.error'));
  expect(errors.map((event) => event?.message)).toEqual(
    texts.map((text) => expect.stringMatching(FAULTS[text]?.error as RegExp)),
  );
  for (const event of errors) {
    expect(event).toMatchObject({
      provider: 'openai_tts',
      fallback_enabled: true,
      fallback_provider: 'legacy_svc_tts',
    });
  }

  // An odd byte at the end is half a sample, which is no sample.
  const odd = sinePcm(0.1, RATE);
  provider.onCall((call) => call.audio(new Uint8Array([...odd, 7]), { size: 333 }));
  expect(audioOf(await render('odd')).equals(odd)).toBe(true);

  // The basic path: errors in JSON.
  provider.onCall((call) =>
    call.path === '/audio/speech'
      ? call.answer(200, Buffer.alloc(16 * 1024 * 1024 + 1), { 'content-type': 'audio/mpeg' })
      : call.answer(401, { error: { message: PROVIDER_KEY } }),
  );
  const basic = await Promise.all([
    target.fetch('/voice/synthesize', { ...post({ text: 'Hello' }), headers: bearer(token) }),
    target.fetch('/voice/transcribe', { method: 'POST', body: clipForm(wavOf(odd, RATE)), headers: bearer(token) }),
  ]);
  const bodies = await Promise.all(basic.map((response) => response.json()));
  expect(basic.map(({ status }) => status)).toEqual([500, 500]);
  for (const body of bodies) expect(body).toMatchObject({ success: false, provider: 'openai' });

  await expect.poll(() => provider.calls.filter((call) => !call.isAbandoned && FAULTS[hung(call)]).length).toBe(0);
  await expect.poll(descriptors, { timeout: TIMEOUT }).toBeLessThanOrEqual(before);
  expect(await clips()).toEqual([]);
  const logs = (await filesBelow(runs)).filter(({ path }) => path.endsWith('.jsonl'));
  expect(logs).toHaveLength(texts.length + 2);
  const written = logs.map(({ bytes }) => String(bytes)).join('');
  for (const text of [relay.output, written, JSON.stringify([results, bodies])]) {
    for (const secret of [PROVIDER_KEY, token]) expect(text).not.toContain(secret);
  }
  for (const secret of [...tokens, ...texts]) expect(relay.output + written).not.toContain(secret);
});

/** The text of a call that its provider never answers. */
const hung = (call: ProviderCall): string => {
  const text = call.path === '/audio/speech' ? String(call.json().input) : '';
  return text.startsWith('hang') || text.startsWith('drip') ? text : '';
};
