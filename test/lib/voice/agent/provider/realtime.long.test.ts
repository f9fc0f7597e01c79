import { describe, expect, it, vi } from 'vitest';
import { startProviders } from './support.ts';

describe.each(['openai_realtime', 'xai_realtime'])('%s', (id) => {
  it('reads the provider no further while paused', async () => {
    const { provider, connect } = await startProviders();
    const { session, events, event } = await connect(id);
    const socket = await provider.socket(0);
    const delta = Buffer.alloc(96 * 1024).toString('base64');
    session.pause();
    let sent = 0;
    const sending = (async () => {
      for (; sent < 400 && !socket.isOver; sent++) {
        await socket.send({ type: 'response.output_audio.delta', response_id: 'r', delta });
      }
    })();
    const seen: number[] = [];
    await vi.waitFor(() => expect(seen.push(sent) > 1 && seen.at(-2) === sent).toBe(true), { interval: 200 });
    expect(sent).toBeLessThan(400);
    expect(events.length).toBeLessThan(10);
    session.resume();
    await sending;
    await socket.send({ type: 'response.done', response: { id: 'r' } });
    await event('responseDone');
    expect(events.filter(({ type }) => type === 'audioDelta')).toHaveLength(400);
  });
});
