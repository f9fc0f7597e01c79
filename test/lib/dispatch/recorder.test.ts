import { expect, it } from 'vitest';
import { createRecorder, truncated } from '../../../lib/dispatch/recorder.ts';
import { garbageCollector } from '../../support/garbage.ts';

const { redact, summarise } = createRecorder({ placeholder: () => undefined, isPrivateKey: () => false });

it('what is written down does not keep what it was taken from', () => {
  const collect = garbageCollector();
  const MiB = 1024 * 1024;
  const kept: unknown[] = [];
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let at = 0; at < 20; at++) {
    // Parsed, as bodies are: a text of its own for each.
    const content: string = JSON.parse(`"${'x'.repeat(4 * MiB)}${at}"`);
    kept.push(redact({ content }), summarise({ content }), truncated(content, 500));
  }
  collect();
  expect((process.memoryUsage().heapUsed - before) / MiB).toBeLessThan(30);
  expect(kept).toHaveLength(60);
});

it('starts of texts are what a slice would be', () => {
  for (const text of ['', 'abc', '😀😀', '"\\\u2028']) {
    for (const length of [0, 1, 3, 10]) expect(truncated(text, length)).toBe(text.slice(0, length));
  }
});
