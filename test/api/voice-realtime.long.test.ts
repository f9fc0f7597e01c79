import { expect, it, vi } from 'vitest';
import { describeMatrix } from '../support/relay.ts';
import { audioOf } from '../support/voice/client.ts';
import { attached, DONE, delta, environment, render, untilComplete } from '../support/voice/lab.ts';
import { startProvider } from '../support/voice/provider.ts';
import { canSpeak, heard, spoken } from '../support/voice/speech.ts';

describeMatrix('the realtime lab', (start, runtime) => {
  it.runIf(runtime === 'node')('05 §12: a client that does not read slows the provider down', async () => {
    const provider = await startProvider();
    const part = Buffer.alloc(96 * 1024, 7);
    const parts = 500;
    let sent = 0;
    provider.onSocket(async (socket) => {
      await socket.message(2);
      for (; sent < parts && !socket.isOver; sent++) await socket.send(delta(part));
      await socket.send(DONE);
    });
    const { client } = await attached(await start(environment(provider)), { provider: 'openai_realtime' });
    client.send({ type: 'response.create', text: 'x' });
    await client.next('voice.audio.delta');
    client.socket.pause();
    const seen: number[] = [];
    await vi.waitFor(() => expect(seen.push(sent) > 1 && seen.at(-2) === sent).toBe(true), { interval: 500 });
    expect(sent).toBeLessThan(parts);
    client.socket.resume();
    await client.next('voice.response.done');
    expect(audioOf(client.events).length).toBe(part.length * parts);
  });

  it.runIf(runtime === 'node' && canSpeak())(
    'real speech arrives sample by sample, and sox reads its WAV',
    async () => {
      const sentence = 'Every sample of this turn arrives exactly once.';
      const speech = spoken(sentence, 24_000);
      const provider = await startProvider();
      provider.onSocket(async (socket) => {
        await socket.message(2);
        for (let at = 0; at < speech.length; at += 1777) await socket.send(delta(speech.subarray(at, at + 1777)));
        await socket.send({ type: 'response.audio_transcript.delta', delta: sentence });
        await socket.send(DONE);
      });
      const { client } = await attached(await start(environment(provider)), { provider: 'openai_realtime' });
      const events = await render(client, { text: sentence, render_mode: 'verbatim' });
      expect(audioOf(events).equals(speech)).toBe(true);
      client.send({ type: 'session.close' });
      await client.closed();
      const path = String(events.at(-1)?.audio_path);
      await untilComplete(path, speech.length);
      const wav = await heard(path);
      expect(wav).toEqual({ rate: 24_000, channels: 1, bits: 16, samples: speech.length / 2, pcm: speech });
    },
  );
});
