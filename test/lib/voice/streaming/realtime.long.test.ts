import { describe, expect, it, vi } from 'vitest';
import { aRequest, audioBytes, audioDelta, DONE, REALTIME, startAdapters } from './support.ts';

describe.each(REALTIME)('%s', (id) => {
  it('reads the provider no faster than its audio is taken, and loses nothing', async () => {
    const { provider, adapter } = await startAdapters();
    const part = audioBytes(96 * 1024);
    const parts = 300;
    let sent = 0;
    provider.onSocket(async (socket) => {
      await socket.message(2);
      for (; sent < parts && !socket.isOver; sent++) await socket.send(audioDelta(part));
      await socket.send(DONE);
    });
    const audio = adapter(id)(aRequest());
    const first = await audio.next();
    const seen: number[] = [];
    await vi.waitFor(() => expect(seen.push(sent) > 1 && seen.at(-2) === sent).toBe(true), { interval: 200 });
    expect(sent).toBeLessThan(parts);
    let total = first.done ? 0 : first.value.pcm.length;
    for await (const { pcm } of audio) total += pcm.length;
    expect(total).toBe(part.length * parts);
  });
});
