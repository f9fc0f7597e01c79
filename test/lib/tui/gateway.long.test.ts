import { describe, expect, it } from 'vitest';
import { bench } from './support.ts';

describe('contract 02 §4.4: input', () => {
  it('queues at most 64 MiB', () => {
    const { gateway, written, drains } = bench();
    const message = JSON.stringify({ data: 'x'.repeat(24 * 1024 * 1024) });
    expect([1, 2, 3].map(() => gateway.write(message))).toEqual([true, true, false]);
    expect(gateway.write('{}')).toBe(true);
    drains();
    expect(gateway.write(message)).toBe(true);
    expect(written).toHaveLength(4);
  });
});
