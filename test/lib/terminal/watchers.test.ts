import { beforeEach, describe, expect, test } from 'vitest';
import type { Viewer } from '../../../lib/terminal/viewer.ts';
import { createWatchers, MAX_WATCHERS } from '../../../lib/terminal/watchers.ts';

const FACTS = { pid: 7, shell: '/bin/bash', size: { cols: 80, rows: 24 }, reattach: true };
const LIMITS = { high: 1024, low: 256 };
const WINDOW = 16_384;

/** A client of a watcher, and what it has got. */
function createClient() {
  const seen: string[] = [];
  let limits: Parameters<Viewer['follow']>[0] | undefined;
  const viewer: Viewer = {
    attached: ({ pid }) => void seen.push(`attached ${pid}`),
    output: (text) => void seen.push(text),
    resized: ({ cols, rows }) => void seen.push(`resized ${cols}x${rows}`),
    detached: (reason, { exitCode = '', id = '' }) => void seen.push(`detached: ${reason} ${exitCode}${id}`),
    follow(given) {
      limits = given;
      return () => {
        limits = undefined;
      };
    },
  };
  return { viewer, seen, limits: () => limits };
}

describe('watchers of a bare shell (contract 09 §1)', () => {
  let watchers: ReturnType<typeof createWatchers>;
  let screen: string;
  let redraws: number;
  beforeEach(() => {
    watchers = createWatchers();
    screen = 'screen';
    redraws = 0;
  });

  function add({ viewer }: ReturnType<typeof createClient>, window?: number) {
    const redraw = async () => {
      redraws++;
      return screen;
    };
    return watchers.add({ viewer, window, facts: FACTS, shown: 'shown', redraw, limits: LIMITS });
  }

  test('get the screen, then all output, sizes and the end', () => {
    const client = createClient();
    add(client);
    watchers.push('a');
    watchers.resized({ cols: 90, rows: 30 });
    watchers.end('eof', 3);
    expect(client.seen).toEqual(['attached 7', 'shown', 'a', 'resized 90x30', 'detached: eof 3']);
    expect(client.limits()).toBeUndefined();
    expect(watchers.size).toBe(0);
  });

  test('one that stops reading misses output, and gets the screen once it reads again', async () => {
    const [slow, fast] = [createClient(), createClient()];
    add(slow);
    add(fast);
    slow.limits()?.pause();
    for (let time = 0; time < 1_000; time++) watchers.push('x');
    expect(fast.seen).toHaveLength(1_002);
    expect(slow.seen).toEqual(['attached 7', 'shown']);
    slow.limits()?.resume();
    // It stops again while the screen is being read.
    slow.limits()?.pause();
    await Promise.resolve();
    expect(slow.seen).toHaveLength(2);
    slow.limits()?.resume();
    watchers.push('lost');
    await Promise.resolve();
    watchers.push('next');
    expect(slow.seen.slice(2)).toEqual(['screen', 'next']);
    expect(redraws).toBe(2);
  });

  test('one that read all of it gets no screen', () => {
    const client = createClient();
    add(client);
    client.limits()?.pause();
    client.limits()?.resume();
    watchers.push('a');
    expect(client.seen).toEqual(['attached 7', 'shown', 'a']);
    expect(redraws).toBe(0);
  });

  test('with a window, output that is not acknowledged is not held', async () => {
    const client = createClient();
    const watch = add(client, WINDOW);
    const sent = () => client.seen.slice(1).join('').length;
    for (let time = 0; time < 100; time++) watchers.push('x'.repeat(4_096));
    expect(sent()).toBe(WINDOW);
    watch?.acknowledge(WINDOW - 10);
    await Promise.resolve();
    await Promise.resolve();
    expect(client.seen.at(-1)).toBe('screen');
    expect(redraws).toBe(1);
    watchers.push('y');
    expect(client.seen.at(-1)).toBe('y');
  });

  test('one that leaves is told, and nothing more is sent', async () => {
    const client = createClient();
    const watch = add(client);
    client.limits()?.pause();
    watchers.push('missed');
    client.limits()?.resume();
    watch?.end('detach', { id: 'id' });
    watch?.end('detach', { id: 'again' });
    watchers.push('a');
    await Promise.resolve();
    expect(client.seen).toEqual(['attached 7', 'shown', 'detached: client detach id']);
  });

  test('are limited', () => {
    for (let time = 0; time < MAX_WATCHERS; time++) expect(add(createClient())).toBeDefined();
    const client = createClient();
    expect(add(client)).toBeUndefined();
    expect(client.seen).toEqual([]);
  });
});
