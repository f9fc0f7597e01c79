import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createSseMap, type MappedEvent } from '../../../../../lib/voice/agent/upstream/sse-map.ts';
import { runs } from '../../../../support/runs.ts';

const encode = (text: string) => new TextEncoder().encode(text);

function mapBytes(chunks: Uint8Array[]): MappedEvent[] {
  const map = createSseMap();
  return [...chunks.flatMap((chunk) => map.push(chunk)), ...map.end()];
}

const mapText = (text: string) => mapBytes([encode(text)]);
const line = (data: unknown, event?: string) => `${event ? `event: ${event}\n` : ''}data: ${JSON.stringify(data)}\n\n`;
const mapAll = (...events: Record<string, unknown>[]) => mapText(events.map((data) => line(data)).join(''));
/** The first event of a stream. */
const first = (data: Record<string, unknown>) => mapAll(data)[0];
const END = { type: 'end', text: '' };

describe('answer (contract 06 §5.3)', () => {
  it.each(['assistant.delta', 'content_delta', 'delta'])('%s is a piece of the answer', (type) => {
    expect(mapAll({ type, delta: 'Hello ' }, { type, content: 'world' })).toEqual([
      { type: 'answer', text: 'Hello ' },
      { type: 'answer', text: 'world' },
      { type: 'end', text: 'Hello world' },
    ]);
  });

  it.each(['assistant.completed', 'content_complete', 'complete', 'completed'])(
    '%s counts only without pieces',
    (type) => {
      expect(mapAll({ type, content: 'whole' })).toEqual([
        { type: 'answer', text: 'whole' },
        { type: 'end', text: 'whole' },
      ]);
      const pieces = mapAll({ type: 'delta', delta: 'piece' }, { type, content: 'whole' });
      expect(pieces.at(-1)).toEqual({ type: 'end', text: 'piece' });
      const late = mapAll({ type, content: 'whole' }, { type: 'delta', delta: 'piece' });
      expect(late.at(-1)).toEqual({ type: 'end', text: 'piece' });
    },
  );

  it('is the drafting text when there is nothing else', () => {
    const drafts = [
      { type: 'tool.progress', tool_name: '_thinking', delta: 'It is ' },
      { type: 'thinking_delta', thinking: 'noon.' },
    ];
    expect(mapAll(...drafts).slice(-2)).toEqual([
      { type: 'answer', text: 'It is noon.' },
      { type: 'end', text: 'It is noon.' },
    ]);
    expect(mapAll(...drafts, { type: 'completed', content: 'Noon.' }).at(-1)).toEqual({ type: 'end', text: 'Noon.' });
    expect(mapAll(...drafts, { type: 'completed', content: ' ' }).at(-1)).toMatchObject({ text: 'It is noon.' });
  });

  it('is bounded', () => {
    const text = 'x'.repeat(600_000);
    const events = mapAll(
      { type: 'delta', delta: text },
      { type: 'delta', delta: text },
      { type: 'delta', delta: 'y' },
    );
    expect(events.map((event) => 'text' in event && event.text.length)).toEqual([600_000, 448_576, 1_048_576]);
  });

  it('joins halves of a character that came in two pieces', () => {
    expect(mapAll({ type: 'delta', delta: '\ud83d' }, { type: 'delta', delta: '\ude00' }).at(-1)).toEqual({
      type: 'end',
      text: '😀',
    });
  });
});

describe('run (contract 06 §5.3)', () => {
  it.each(['run.completed', 'response.completed', 'done'])('%s ends it, once', (type) => {
    expect(
      mapAll({ type }, { type: 'delta', delta: 'late' }, { type: 'done' }, { type: 'error', error: 'late' }),
    ).toEqual([END]);
  });

  it('ends with the stream', () => {
    expect(mapText('')).toEqual([END]);
    expect(mapText('data: {"type":"delta","delta":"a"}')).toEqual([
      { type: 'answer', text: 'a' },
      { type: 'end', text: 'a' },
    ]);
  });

  it.each([
    [{ message: 'out of credit' }, 'out of credit'],
    [{ error: 'broken' }, 'broken'],
    [{ error: { message: 'deep' } }, 'deep'],
    [{}, 'The run failed'],
  ])('an error %j ends it', (data, message) => {
    expect(mapAll({ type: 'error', ...data }, { type: 'delta', delta: 'late' })).toEqual([{ type: 'error', message }]);
  });

  it('has the id of its first event that has one', () => {
    expect(mapAll({ type: 'run.started', run_id: 'r1' }, { type: 'run.started', run_id: 'r2' })).toEqual([
      { type: 'svc.run.started', run_id: 'r1' },
      END,
    ]);
    expect(first({ type: 'response.created', response: { id: 'r3' } })).toEqual({
      type: 'svc.run.started',
      run_id: 'r3',
    });
    expect(mapAll({ type: 'run.started', run_id: 'r1' }, { type: 'tool.started', name: 'x' })[1]).toMatchObject({
      run_id: 'r1',
    });
  });

  it('is announced again once, when its id comes late', () => {
    const start = { type: 'run.started' };
    const tool = { type: 'tool.started', name: 'x', run_id: 'r1' };
    const events = mapAll(start, start, tool, { ...start, run_id: 'r1' }, { ...start, run_id: 'r2' });
    expect(events).toMatchObject([
      { type: 'svc.run.started' },
      { type: 'svc.run.started', run_id: 'r1' },
      { type: 'svc.tool.started', run_id: 'r1' },
      END,
    ]);
    expect(events[0]).not.toHaveProperty('run_id');
  });

  it.each([
    [{ message: { id: 'm1' } }, 'm1'],
    [{ message_id: 'm2', id: 'x' }, 'm2'],
    [{ id: 'm3' }, 'm3'],
  ])('message.started %j names the message', (data, message_id) => {
    expect(first({ type: 'message.started', ...data })).toEqual({ type: 'svc.message.started', message_id });
  });
});

describe('tools (contract 06 §5.3)', () => {
  it.each(['tool.pending', 'tool.started', 'tool_start', 'tool_started'])('%s starts a tool', (type) => {
    expect(first({ type, tool: { name: 'web' }, call_id: 'c1', args: { q: 'x', api_key: 'k' } })).toEqual({
      type: 'svc.tool.started',
      tool_call_id: 'c1',
      tool_name: 'web',
      arguments: { q: 'x', api_key: '[REDACTED]' },
      message: 'Running web',
    });
    expect(first({ type, tool_name: 'web', arguments: 'a', message: 'Looking\nup' })).toMatchObject({
      tool_call_id: 'web',
      arguments: 'a',
      message: 'Looking up',
    });
  });

  it.each([
    [{ call_id: 'a', tool_call_id: 'b', id: 'c' }, 'a'],
    [{ tool_call_id: 'b', id: 'c' }, 'b'],
    [{ id: 'c' }, 'c'],
    [{}, 'web'],
  ])('%j gives the call id %s', (ids, tool_call_id) => {
    expect(first({ type: 'tool.started', name: 'web', ...ids })).toMatchObject({ tool_call_id, tool_name: 'web' });
  });

  it.each(['tool.completed', 'tool_result', 'tool_completed', 'memory.updated', 'skill.loaded', 'artifact.created'])(
    '%s completes a tool',
    (type) => {
      const started = { type: 'tool.started', name: 'web', id: 'c1' };
      expect(mapAll(started, { type, name: 'web', id: 'c1', result: 'found' })[1]).toEqual({
        type: 'svc.tool.completed',
        tool_call_id: 'c1',
        tool_name: 'web',
        result_preview: 'found',
        success: true,
        message: 'web finished',
      });
    },
  );

  it('shows at most 2,000 characters of a result, without secrets', () => {
    const preview = (data: Record<string, unknown>) => mapAll({ type: 'tool_result', name: 'web', ...data })[1];
    expect(preview({ result: 'x'.repeat(3000) })).toMatchObject({ result_preview: `${'x'.repeat(1999)}…` });
    expect(preview({ result: { token: 'secret', n: 1 } })).toMatchObject({
      result_preview: '{"token":"[REDACTED]","n":1}',
    });
    expect(preview({ output: 'a', result: 'b', result_preview: 'c' })).toMatchObject({ result_preview: 'c' });
    expect(preview({ success: false, message: 'm' })).toMatchObject({ success: false, result_preview: 'm' });
    expect(preview({})).not.toHaveProperty('result_preview');
  });

  it.each(['tool.failed', 'tool_error'])('%s fails a tool', (type) => {
    const fields = { type: 'svc.tool.failed', tool_call_id: 'web', tool_name: 'web' };
    expect(mapAll({ type, name: 'web', error: 'no net' })[1]).toEqual({
      ...fields,
      error: 'no net',
      message: 'no net',
    });
    expect(mapAll({ type, name: 'web', error: { message: 'deep' } })[1]).toMatchObject({ error: 'deep' });
    expect(mapAll({ type, name: 'web' })[1]).toMatchObject({ error: 'Tool failed' });
  });

  it.each(['tool.completed', 'tool.failed', 'tool.progress'])(
    '%s of a call that was never announced starts it first, once',
    (type) => {
      const event = { type, tool_name: 'web', call_id: 'c1', delta: 'x' };
      const [start, ...rest] = mapAll(event, event);
      expect(start).toEqual({
        type: 'svc.tool.started',
        tool_call_id: 'c1',
        tool_name: 'web',
        message: 'Running web',
        synthetic: true,
      });
      expect(rest.filter(({ type }) => type === 'svc.tool.started')).toEqual([]);
      expect(rest).toHaveLength(3);
    },
  );

  it.each(['thinking_delta', 'reasoning_delta', 'thinking', 'reasoning.available', 'tool.progress'])(
    '%s without a name is drafting text, and no tool',
    (type) => {
      for (const field of ['delta', 'thinking', 'content', 'text', 'message']) {
        expect(mapAll({ type, [field]: 'hm' })[0]).toEqual({
          type: 'svc.tool.delta',
          tool_call_id: 'svc',
          tool_name: 'svc',
          delta: 'hm',
          message: 'hm',
        });
      }
      expect(mapAll({ type })).toEqual([END]);
    },
  );

  it.each(['_thinking', 'thinking', 'svc'])('the name %s is that of drafting text', (name) => {
    expect(mapAll({ type: 'tool.progress', tool_name: name, delta: 'hm' }).map(({ type }) => type)).toEqual([
      'svc.tool.delta',
      'answer',
      'end',
    ]);
  });

  it.each(['confirmation.requested', 'confirmation.required', 'tool.confirmation_requested'])(
    '%s asks for a confirmation',
    (type) => {
      const asked = { type: 'svc.confirmation.requested', confirmation_id: 'k1', message: 'Really?' };
      expect(first({ type, confirmation_id: 'k1', id: 'x', message: 'Really?' })).toEqual(asked);
      expect(first({ type, id: 'k1', call_id: 'x', prompt: 'Really?' })).toEqual(asked);
      expect(first({ type, call_id: 'k1', prompt: 'Really?' })).toEqual(asked);
      expect(first({ type, run_id: 'r1' })).toMatchObject({ confirmation_id: 'r1' });
    },
  );

  it('bounds arguments and deltas', () => {
    const args = Object.fromEntries(Array.from({ length: 5000 }, (_, at) => [`name${at}`, 'value']));
    expect(JSON.stringify(first({ type: 'tool.started', name: 'web', args })).length).toBeLessThan(5000);
    const [, delta] = mapAll({ type: 'tool.progress', name: 'web', delta: 'x'.repeat(100_000) });
    expect(JSON.stringify(delta).length).toBeLessThan(9000);
  });

  it('bounds ids, names and messages', () => {
    const long = 'x'.repeat(5000);
    for (const type of ['tool.started', 'tool.failed', 'confirmation.requested', 'message.started', 'run.started']) {
      const events = mapAll({ type, name: long, id: long, run_id: long, message: long, error: long, prompt: long });
      expect(
        Math.max(...events.flatMap((event) => Object.values(event).map((value) => String(value).length))),
      ).toBeLessThan(2001);
    }
  });
});

describe('stream (contract 06 §5.3)', () => {
  it('takes the name of the event before the type in its data', () => {
    expect(mapText(line({ type: 'error', delta: 'a' }, 'delta'))[0]).toEqual({ type: 'answer', text: 'a' });
    expect(mapText(line({ type: 'delta', delta: 'a' }, 'unheard.of'))).toEqual([END]);
  });

  it('skips marks, other data than objects, unknown types, comments and oversize events', () => {
    const noise = [
      'data: [DONE]\n\n',
      'data: {"type":"delta"\n\n',
      'data: [1]\n\ndata: "delta"\n\ndata: null\n\n',
      ': delta\n\n',
      line({ type: 'toString' }),
      line({ type: '__proto__' }),
      line({ delta: 'no type' }),
      line({ type: 'delta', delta: 'x'.repeat(5 * 1024 * 1024) }),
    ];
    expect(mapText(`${noise.join('')}${line({ type: 'delta', delta: 'a' })}${noise.join('')}`)).toEqual([
      { type: 'answer', text: 'a' },
      { type: 'end', text: 'a' },
    ]);
  });

  it('survives members of any type', () => {
    const value = fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.string());
    const names = 'run_id response message id delta content tool tool_name name call_id args result error text'.split(
      ' ',
    );
    const types = ['delta', 'completed', 'run.started', 'thinking', 'tool.started', 'tool_result', 'tool.failed'];
    const data = fc
      .record(Object.fromEntries(names.map((name) => [name, value])), { requiredKeys: [] })
      .chain((record) => fc.constantFrom(...types).map((type) => ({ ...record, type })));
    fc.assert(
      fc.property(fc.array(data), (events) => {
        const mapped = mapAll(...events);
        expect(mapped.filter(({ type }) => type === 'end' || type === 'error')).toHaveLength(1);
        expect(mapped.every((event) => JSON.stringify(event).length < 100_000)).toBe(true);
      }),
      { numRuns: runs(300) },
    );
  });

  it('maps the same events wherever its bytes are cut', () => {
    const piece = fc.constantFrom(
      line({ type: 'delta', delta: 'é😀' }),
      'event: delta\r\ndata: {"delta":\r\ndata: "two lines"}\r\n\r\n',
      line({ type: 'run.started', run_id: 'r1' }, 'run.started'),
      line({ type: 'tool_result', name: 'web', result: '日本' }),
      line({ type: 'thinking', text: 'hm' }),
      line({ type: 'error', message: 'ende' }),
      line({ type: 'done' }),
      'data: [DONE]\n\n',
      ': ping\n',
      'data: {"type"\r',
      '\n\n',
      'garbage \ufffd\n',
    );
    const property = fc.property(fc.array(piece), fc.array(fc.nat(400)), (pieces, cuts) => {
      const bytes = encode(pieces.join(''));
      const borders = [0, ...cuts.filter((cut) => cut < bytes.length).sort((a, b) => a - b), bytes.length];
      const chunks = borders.slice(1).map((end, index) => bytes.subarray(borders[index], end));
      const whole = mapBytes([bytes]);
      expect(mapBytes(chunks)).toEqual(whole);
      expect(mapBytes(Array.from(bytes, (byte) => Uint8Array.of(byte)))).toEqual(whole);
    });
    fc.assert(property, { numRuns: runs(200) });
  });
});
