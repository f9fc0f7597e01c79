import { expect, it } from 'vitest';
import { createSpeechRenderer, type Speech } from '../../../../../lib/voice/agent/provider/render.ts';
import { createAdapters } from '../../../../../lib/voice/streaming/adapters.ts';
import { startAdapters } from '../../streaming/support.ts';
import { NATIVE, pcmOf, samplesOf } from './support.ts';

const speech = (provider: string, changes: Partial<Speech> = {}): Speech => ({
  provider,
  text: 'It is done.',
  model: 'm',
  voice: 'v',
  sampleRate: 24_000,
  signal: new AbortController().signal,
  ...changes,
});

async function start() {
  const { provider, deps } = await startAdapters();
  const render = createSpeechRenderer(createAdapters(deps));
  const rendered = async (request: Speech) => {
    const parts: Uint8Array[] = [];
    for await (const pcm of render(request)) parts.push(pcm);
    return samplesOf(Buffer.concat(parts));
  };
  return { provider, rendered };
}

const delta = (samples: number[]) => ({
  type: 'response.output_audio.delta',
  delta: Buffer.from(pcmOf(samples)).toString('base64'),
});
const DONE = { type: 'response.done', response: { status: 'completed' } };

it.each(NATIVE)('06 §7.3: %s reads the text on a connection without tools', async (id) => {
  const { provider, rendered } = await start();
  provider.onSocket(async (socket) => {
    await socket.message(2);
    for (const event of [delta([1, 2]), delta([3]), DONE]) await socket.send(event);
  });
  expect(await rendered(speech(id, { headers: { 'x-own': '1' } }))).toEqual([1, 2, 3]);
  const socket = await provider.socket(0);
  expect(socket.headers['x-own']).toBe('1');
  expect(socket.messages.map(({ type }) => type)).toEqual([
    'session.update',
    'conversation.item.create',
    'response.create',
  ]);
  expect(socket.messages[0]?.session).not.toHaveProperty('tools');
  expect(JSON.stringify(socket.messages[1])).toContain('It is done.');
  await expect.poll(() => socket.isOver).toBe(true);
});

it('has the rate of the session', async () => {
  const { provider, rendered } = await start();
  provider.onSocket(async (socket) => {
    await socket.message(2);
    for (const event of [delta(Array(300).fill(9)), DONE]) await socket.send(event);
  });
  expect(await rendered(speech('xai_realtime', { sampleRate: 16_000 }))).toEqual(Array(200).fill(9));
});

it('an unknown provider, a failure and an abort are errors', async () => {
  const { provider, rendered } = await start();
  await expect(rendered(speech('nobody'))).rejects.toThrow('no adapter');
  provider.refuseSockets(503);
  await expect(rendered(speech('xai_realtime'))).rejects.toThrow(/HTTP 503/);
  provider.refuseSockets(undefined);
  const end = new AbortController();
  const reading = rendered(speech('xai_realtime', { signal: end.signal }));
  const socket = await provider.socket(0);
  end.abort(new Error('over'));
  await expect(reading).rejects.toThrow('over');
  await expect.poll(() => socket.isOver).toBe(true);
});
