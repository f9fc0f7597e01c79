import { expect, it } from 'vitest';
import { describeMatrix } from '../support/relay.ts';
import { leftClips } from '../support/voice/clips.ts';
import { clipForm, startVoice } from '../support/voice/relay.ts';

const MiB = 1024 * 1024;

describeMatrix('POST /voice/transcribe (contract 05 §6)', (start) => {
  it('refuses more than 25 MiB with 413, which a client reads that sends everything first', async () => {
    const { transcribe } = await startVoice(start);
    const response = await transcribe(clipForm(new Uint8Array(25 * MiB + 1)));
    expect([response.status, await response.json()]).toEqual([
      413,
      { success: false, error: expect.stringContaining('25 MiB') },
    ]);
    expect(await leftClips()).toEqual([]);
  });

  it('sends 25 MiB, whole', async () => {
    const { provider, transcribe } = await startVoice(start);
    provider.onCall((call) => call.answer(200, String(call.body.length)));
    const response = await transcribe(clipForm(new Uint8Array(25 * MiB)));
    expect(response.status).toBe(200);
    const { text } = (await response.json()) as { text: string };
    expect(Number(text)).toBeGreaterThan(25 * MiB);
  });
});
