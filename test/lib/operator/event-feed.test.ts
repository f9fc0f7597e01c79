import { expect, it } from 'vitest';
import { followFeed } from '../../../lib/operator/event-feed.ts';

class Refused extends Error {}

/** One attempt to open the stream: what it sends, and how it ends. */
type Attempt = { text?: string[]; fails?: Error };

/** Runs a feed over these attempts, and returns all that it did, in order. */
async function run(attempts: Attempt[]): Promise<{ seen: unknown[]; error?: unknown }> {
  const over = new AbortController();
  const seen: unknown[] = [];
  const rest = [...attempts];
  const done = followFeed({
    signal: over.signal,
    async open(lastId, onText) {
      const { text = [], fails } = rest.shift() as Attempt;
      seen.push(['open', lastId]);
      for (const part of text) onText(part);
      if (fails) throw fails;
    },
    onEvent: (event, data) => seen.push([event, data]),
    onOpen: () => seen.push('live'),
    onLost: (reason) => seen.push(['lost', reason]),
    mayRecover: (error) => !(error instanceof Refused),
    async wait(milliseconds) {
      seen.push(milliseconds);
      if (rest.length === 0) over.abort();
    },
  });
  return done.then(
    () => ({ seen }),
    (error) => ({ seen, error }),
  );
}

it('contract 09 §4: resumes after the last event, also one that was cut in two', async () => {
  const { seen } = await run([
    { text: [': \n\n', 'id: 7\nevent: device\nda', 'ta: {"a":1}\n\n'] },
    { text: ['id: 8\nevent: reset\ndata: {}\n\nid: 9\nevent: log\nda'], fails: new Error('cut') },
    { text: [': \n\n'] },
  ]);
  expect(seen).toEqual([
    ['open', undefined],
    'live',
    ['device', '{"a":1}'],
    ['lost', 'the relay ended the stream'],
    1000,
    ['open', '7'],
    'live',
    ['reset', '{}'],
    ['lost', 'cut'],
    1000,
    // What came of the event with id 9 was not the whole of it.
    ['open', '8'],
    'live',
    ['lost', 'the relay ended the stream'],
    1000,
  ]);
});

it('says once that it is lost, and waits longer each time, up to eight seconds', async () => {
  const away = { fails: new Error('away') };
  const { seen } = await run([away, away, away, away, away, { text: [': \n\n'] }, away]);
  expect(seen.filter((item) => typeof item === 'number')).toEqual([1000, 2000, 4000, 8000, 8000, 1000, 2000]);
  expect(seen.filter((item) => Array.isArray(item) && item[0] === 'lost')).toEqual([
    ['lost', 'away'],
    ['lost', 'the relay ended the stream'],
  ]);
});

it('ends with an error from which there is no recovery', async () => {
  const { error, seen } = await run([{ fails: new Refused('not the operator') }]);
  expect(error).toEqual(new Refused('not the operator'));
  expect(seen).toEqual([['open', undefined]]);
});
