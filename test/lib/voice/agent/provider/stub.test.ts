import { expect, it, vi } from 'vitest';
import { samplesOf, startProviders } from './support.ts';

it.each([
  ['short', 16_000, 0.25],
  ['x'.repeat(60), 24_000, 0.5],
  ['x'.repeat(1000), 48_000, 1.5],
])('06 §9: answers %j at %i Hz with a tone of %d s', async (exactText, sampleRate, seconds) => {
  const { connect } = await startProviders();
  const { session, events, event } = await connect('stub', { sampleRate });
  expect(await event('ready')).toEqual({ type: 'ready', model: 'local-tone' });
  session.requestResponse({ exactText });
  expect(await event('responseDone')).toMatchObject({ status: 'completed' });
  const audio = events.flatMap((one) => (one.type === 'audioDelta' ? [one.pcm] : []));
  expect([8, 9]).toContain(audio.length);
  const samples = samplesOf(Buffer.concat(audio));
  expect(samples).toHaveLength(sampleRate * seconds);
  expect(Math.max(...samples)).toBeGreaterThan(7900);
  expect(Math.max(...samples)).toBeLessThanOrEqual(8000);
  const rises = samples.filter((sample, at) => sample >= 0 && (samples[at - 1] ?? 0) < 0).length;
  expect(Math.abs(rises - 440 * seconds)).toBeLessThan(2);
  expect(events.at(-2)?.type).toBe('audioDone');
});

it('one response at a time, which can be cancelled', async () => {
  const { connect } = await startProviders();
  const { session, events, event } = await connect('stub');
  session.requestResponse({ exactText: 'One' });
  session.requestResponse({ exactText: 'Two' });
  session.cancelResponse();
  expect(await event('error')).toMatchObject({ message: 'response already running' });
  expect(await event('responseDone')).toMatchObject({ responseId: 'stub-1', status: 'cancelled' });
  expect(events.map(({ type }) => type)).not.toContain('audioDelta');
  session.requestResponse({ exactText: 'Three' });
  await vi.waitFor(() => expect(events.at(-1)).toMatchObject({ responseId: 'stub-2', status: 'completed' }));
});

it('understands nothing, and refuses bad audio', async () => {
  const { connect } = await startProviders();
  const { session, event } = await connect('stub');
  session.sendAudio(new Uint8Array(4), 16_000);
  session.commitAudio();
  expect(() => session.sendAudio(new Uint8Array(3), 16_000)).toThrow(/16-bit sample/);
  session.requestResponse();
  expect((await event('error')).message).toBe('the stub speaks only a given text');
});

it('closed, it says nothing more', async () => {
  const { connect } = await startProviders();
  const { session, events, event } = await connect('stub');
  await event('ready');
  session.requestResponse({ exactText: 'One' });
  session.close();
  session.requestResponse({ exactText: 'Two' });
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
  expect(events.map(({ type }) => type)).toEqual(['ready', 'responseStarted']);
});
