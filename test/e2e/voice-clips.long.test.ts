import { mkdir, readdir, readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { startRelayProcess, temporaryHome } from '../support/process.ts';
import { bearer, post, randomCode } from '../support/relay.ts';
import { mp3Frames, sinePcm } from '../support/voice/audio.ts';
import { startProvider } from '../support/voice/provider.ts';
import { clipForm } from '../support/voice/relay.ts';

const MiB = 1024 * 1024;

/** The built relay with a temporary directory of its own, whose providers are faked, and a paired device. */
async function started() {
  const provider = await startProvider();
  const home = await temporaryHome();
  const temporary = `${home}/tmp`;
  await mkdir(temporary);
  const relay = await startRelayProcess({
    home,
    env: {
      TMPDIR: temporary,
      GROQ_API_KEY: 'k-1234',
      GROQ_BASE_URL: provider.url,
      GEMINI_API_KEY: 'k-1234',
      GEMINI_BASE_URL: provider.url,
    },
  });
  const code = randomCode();
  await relay.ask('/pairing/register', { method: 'POST', body: { code } });
  const { frame, socket } = await relay.offer({ pairing_code: code, device_id: crypto.randomUUID() });
  socket.close();
  const headers = bearer(String(frame.payload.session_token));
  return {
    provider,
    relay,
    transcribe: (clip: FormData) => fetch(`${relay.url}/voice/transcribe`, { method: 'POST', body: clip, headers }),
    speak: (text: string) => fetch(`${relay.url}/voice/synthesize`, { ...post({ text }), headers }),
    clips: async () => (await readdir(temporary)).filter((name) => name.startsWith('svc-relay-voice-')),
  };
}

it('contract 05 §6: the clip of a relay that was killed is removed by the next one', async () => {
  const { provider, relay, transcribe, clips } = await started();
  const lost = transcribe(clipForm(new Uint8Array(1000))).catch(() => {});
  await provider.call(0);
  expect(await clips()).toHaveLength(1);
  await relay.restart();
  await lost;
  await expect.poll(clips).toEqual([]);
});

it('contract 05 §8: the built relay encodes MP3', async () => {
  const { provider, speak } = await started();
  const data = Buffer.from(sinePcm(1, 24_000)).toString('base64');
  provider.onCall((call) => call.answer(200, { candidates: [{ content: { parts: [{ inlineData: { data } }] } }] }));
  const response = await speak('Hello');
  expect(response.status).toBe(200);
  expect(mp3Frames(new Uint8Array(await response.arrayBuffer()))).toMatchObject({ sampleRate: 24_000, rest: 0 });
});

it('contract 05 §6: eight clips of 24 MiB at once pass through without being held in memory', async () => {
  const { provider, relay, transcribe } = await started();
  provider.onCall((call) => call.answer(200, 'hello'));
  const clip = clipForm(new Uint8Array(24 * MiB));
  const peak = async () => {
    const status = await readFile(`/proc/${relay.child.pid}/status`, 'utf8');
    return Number(/VmHWM:\s+(\d+)/.exec(status)?.[1]) / 1024;
  };
  await transcribe(clipForm(new Uint8Array(1000)));
  const before = await peak();
  const answers = await Promise.all(Array.from({ length: 8 }, () => transcribe(clip)));
  expect(answers.map(({ status }) => status)).toEqual(Array(8).fill(200));
  // 45 MiB where it was written; held in memory, it would be at least 192.
  expect((await peak()) - before).toBeLessThan(96);
});
