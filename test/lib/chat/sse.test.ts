import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createSseReader, type SseEvent } from '../../../lib/chat/sse.ts';

const encode = (text: string) => new TextEncoder().encode(text);

function read(chunks: Uint8Array[], limit?: number): SseEvent[] {
  const events: SseEvent[] = [];
  const reader = createSseReader((event) => events.push(event), limit);
  for (const chunk of chunks) reader.push(chunk);
  reader.end();
  return events;
}

const readText = (text: string, limit?: number) => read([encode(text)], limit);
const dataOf = (text: string, limit?: number) => readText(text, limit).map(({ data }) => data);

describe('event stream (contract 02 §5.3)', () => {
  it.each([
    ['\\n', '\n'],
    ['\\r\\n', '\r\n'],
    ['\\r', '\r'],
  ])('reads lines that end in %s', (_name, end) => {
    const lines = ['event: a', 'data: 1', 'data:2', '', ': comment', 'data', '', 'id: 7', 'retry: 5', 'odd: x', '', ''];
    expect(readText(lines.join(end))).toEqual([
      { event: 'a', data: '1\n2' },
      { event: undefined, data: '' },
    ]);
  });

  it('resets the event name after each blank line', () => {
    expect(readText('event: a\n\ndata: 1\n\nevent: b\ndata: 2\n\n')).toEqual([
      { event: undefined, data: '1' },
      { event: 'b', data: '2' },
    ]);
  });

  it.each(['data: 1\n\ndata: 2', 'data: 1\n\ndata: 2\n', 'data: 1\r\rdata: 2\r', 'data: 1\r\n\r\ndata: 2\r\n'])(
    'reads a final event without a blank line: %j',
    (text) => expect(dataOf(text)).toEqual(['1', '2']),
  );

  it('emits an event at its blank line, even where lines end in \\r', () => {
    const events: SseEvent[] = [];
    const reader = createSseReader((event) => events.push(event));
    reader.push(encode('data: 1\r\r'));
    expect(events).toEqual([{ event: undefined, data: '1' }]);
    reader.push(encode('\n'));
    reader.push(encode('data: 2\r\n\r'));
    expect(events).toHaveLength(2);
    reader.push(encode('\ndata: 3\r\n\r\n'));
    expect(events.map(({ data }) => data)).toEqual(['1', '2', '3']);
  });

  it('accepts a byte order mark and an empty stream', () => {
    expect(dataOf('\ufeffdata: 1\n\n')).toEqual(['1']);
    expect(dataOf('')).toEqual([]);
    expect(dataOf('\n\n\r\n')).toEqual([]);
  });

  it('reads the same events wherever the chunks are cut', () => {
    const text =
      'event: ä\r\ndata: {"a":"😀 日本"}\r\n\r\n: hm 😀\ndata: 1\ndata: 2\n\nevent: x\rdata: ü\r\rdata: [DONE]\r\n';
    const bytes = encode(text);
    const expected = read([bytes]);
    expect(expected).toHaveLength(4);
    for (let cut = 0; cut <= bytes.length; cut++) {
      expect(read([bytes.subarray(0, cut), bytes.subarray(cut)])).toEqual(expected);
    }
    expect(read(Array.from(bytes, (byte) => Uint8Array.of(byte)))).toEqual(expected);
  });

  it('reads the same events from any text in any chunks', () => {
    const word = fc.constantFrom(
      'data',
      'event',
      ':',
      ': ',
      ' ',
      '\n',
      '\r',
      '\r\n',
      '\n\n',
      'é',
      '😀',
      'x',
      'id',
      '{}',
    );
    const property = fc.property(
      fc.array(word),
      fc.array(fc.nat(200)),
      fc.constantFrom(undefined, 12),
      (words, cuts, limit) => {
        const bytes = encode(words.join(''));
        const borders = [0, ...cuts.filter((cut) => cut < bytes.length).sort((a, b) => a - b), bytes.length];
        const chunks = borders.slice(1).map((end, index) => bytes.subarray(borders[index], end));
        expect(read(chunks, limit)).toEqual(read([bytes], limit));
      },
    );
    fc.assert(property, { numRuns: 500 });
  });

  it('skips an event beyond the limit, but not the ones around it', () => {
    const limit = 4 * 1024 * 1024;
    const big = 'x'.repeat(limit);
    expect(dataOf(`data: 1\n\ndata: ${big}\n\ndata: 2\n\n`)).toEqual(['1', '2']);
    expect(dataOf(`data: 1\n\ndata: ${big.slice(100)}\n\ndata: 2\n\n`)).toHaveLength(3);
    expect(dataOf(`data: 1\n\n${'data: 0123456789\n'.repeat(limit / 16)}event: a\n\ndata: 2\n\n`)).toEqual(['1', '2']);
    expect(dataOf(`data: ${'€'.repeat(limit / 3)}\n\ndata: 2`)).toEqual(['2']);
    expect(dataOf(`data: 1\n\ndata: ${big}`)).toEqual(['1']);
  });

  it('does not count comments towards the limit', () => {
    expect(dataOf(`data: 1\n${': still here\n'.repeat(100)}data: 2\n\n`, 20)).toEqual(['1\n2']);
  });
});
