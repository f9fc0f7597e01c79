import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type AgentEvent, type Dialect, initialState, readEvent } from '../../../lib/chat/events.ts';
import { legacy } from '../../../lib/chat/legacy.ts';
import { typed } from '../../../lib/chat/typed.ts';

const NOW = Date.UTC(2026, 0, 1);

function run(dialect: Dialect, events: AgentEvent[]) {
  let state = initialState('s1');
  const sent: { type: string; payload: Record<string, unknown> }[] = [];
  for (const event of events) {
    const step = dialect(state, event, NOW);
    state = step.state;
    if (step.send) sent.push(step.send);
  }
  return sent;
}

const event = (type: string | undefined, data: Record<string, unknown> = {}): AgentEvent => ({
  kind: 'event',
  type,
  data,
});
const MARK: AgentEvent = { kind: 'mark' };
const END: AgentEvent = { kind: 'end' };
const typedPayloads = (events: AgentEvent[]) => run(typed, events).map(({ payload }) => payload);
const only = (dialect: Dialect, one: AgentEvent) => run(dialect, [one])[0];

describe('event parsing (contract 02 §5.3)', () => {
  it.each([
    [{ event: 'a', data: '{"type":"b","event":"c"}' }, 'a'],
    [{ data: '{"type":"b","event":"c"}' }, 'b'],
    [{ data: '{"type":5,"event":"c"}' }, 'c'],
    [{ data: '{}' }, undefined],
  ])('the type of %j is %s', (sse, type) => expect(readEvent(sse)).toMatchObject({ kind: 'event', type }));

  it.each(['', 'hello', '[1]', '5', 'null', '"x"', '{"a":', '[done]'])('%j is dropped', (data) =>
    expect(readEvent({ event: 'run.completed', data })).toBeUndefined(),
  );

  it('[DONE] is a mark', () => expect(readEvent({ event: 'x', data: '[DONE]' })).toEqual(MARK));
});

describe('typed events (contract 02 §5.5)', () => {
  it('keep all members of a complete event', () => {
    const data = {
      type: 'tool.started',
      run_id: 'r1',
      seq: 3,
      ts: 'then',
      tool_name: 'terminal',
      event: 'e',
      session_id: 'x',
    };
    expect(only(typed, event('tool.started', data))).toEqual({
      type: 'stream.event',
      payload: {
        type: 'stream.event',
        schema_version: 1,
        session_id: 'x',
        run_id: 'r1',
        seq: 3,
        event: 'tool.started',
        ts: 'then',
        payload: { tool_name: 'terminal' },
      },
    });
  });

  it('fill in missing members', () => {
    expect(typedPayloads([event(undefined, { delta: 'x', session_id: '' })])).toEqual([
      {
        type: 'stream.event',
        schema_version: 1,
        session_id: 's1',
        run_id: null,
        seq: 1,
        event: 'assistant.delta',
        ts: '2026-01-01T00:00:00.000Z',
        payload: { delta: 'x' },
      },
    ]);
    expect(typedPayloads([event('x', { timestamp: 'T', ts: 5 })])[0]).toMatchObject({ ts: 'T', payload: {} });
  });

  it('remember the run id', () => {
    const runs = typedPayloads([event('a'), event('a', { run_id: 'r' }), event('a', { run_id: 5 }), MARK]);
    expect(runs.map(({ run_id }) => run_id)).toEqual([null, 'r', 'r', 'r']);
  });

  it('continue seq where upstream repeats it, goes back or omits it', () => {
    const seqs = [undefined, 5, 5, 2, undefined, 9, 1.5, '20', true, 2 ** 53].map((seq) => event('a', { seq }));
    expect(typedPayloads([...seqs, MARK]).map(({ seq }) => seq)).toEqual([1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
  });

  it('have a strictly increasing seq for any upstream values', () => {
    const seq = fc.oneof(fc.integer(), fc.maxSafeInteger(), fc.double(), fc.constantFrom(undefined, null, '7'));
    fc.assert(
      fc.property(fc.array(seq), (seqs) => {
        const sent = typedPayloads([...seqs.map((value) => event('a', { seq: value })), END]).map(
          ({ seq }) => seq as number,
        );
        expect(sent).toHaveLength(seqs.length + 1);
        expect(sent.every((value, index) => Number.isSafeInteger(value) && value > (sent[index - 1] ?? 0))).toBe(true);
      }),
    );
  });

  it('contract 02 §10.9: two events without seq and [DONE]', () => {
    const sent = typedPayloads([event('assistant.delta'), event('run.completed'), MARK, END]);
    expect(sent.map(({ seq, event }) => [seq, event])).toEqual([
      [1, 'assistant.delta'],
      [2, 'run.completed'],
      [3, 'done'],
    ]);
    expect(sent[2]?.payload).toEqual({ state: 'final' });
  });

  it.each(['run.completed', 'done', 'error'])('add no synthetic end after %s', (name) => {
    expect(run(typed, [event(name), END])).toHaveLength(1);
  });

  it('report an end without a terminal event', () => {
    const [, last] = typedPayloads([event('message.started'), END]);
    expect(last).toMatchObject({ seq: 2, event: 'done', payload: { state: 'final', synthetic: true } });
  });

  it('preview payloads, but do not cut the assistant’s text', () => {
    const long = 'x'.repeat(5000);
    const data = {
      delta: long,
      content: long,
      text: long,
      note: long,
      nested: { text: long },
      api_key: 'k',
      output: 'o',
    };
    for (const name of ['assistant.delta', 'message.started', 'tool.progress', undefined]) {
      const { payload } = typedPayloads([event(name, data)])[0] as { payload: Record<string, string> };
      for (const member of ['delta', 'content', 'text']) expect(payload[member]).toBe(long);
      expect(payload.note).toHaveLength(1600);
      expect(payload).toMatchObject({ nested: { text: expect.stringMatching(/^x{1599}…$/) }, api_key: '[REDACTED]' });
      expect(payload).toMatchObject({ output_preview: 'o' });
    }
    // The names of other agents, and the ends of a turn, which may hold all of its text.
    for (const name of ['content_delta', 'reasoning_delta', 'delta', 'content_complete', 'run.completed', 'done']) {
      const { payload } = typedPayloads([event(name, data)])[0] as { payload: Record<string, string> };
      for (const member of ['delta', 'content', 'text']) expect(payload[member]).toBe(long);
      expect(payload.note).toHaveLength(1600);
    }
    const other = typedPayloads([event('tool.completed', data)])[0] as { payload: Record<string, string> };
    expect(other.payload.content).toHaveLength(1600);
    const [huge] = typedPayloads([event('assistant.delta', { delta: 'x'.repeat(2 ** 20 + 1) })]);
    expect(huge).toMatchObject({ payload: { delta: expect.stringMatching(/^x{1048575}…$/) } });
  });
});

describe('legacy events (contract 02 §5.6)', () => {
  const tool = { tool_name: 't', tool_call_id: 'c' };
  const at = { session_id: 's1', message_id: 'm' };
  const turn = { ...at, content: '', completed: true, partial: false, interrupted: false };
  const end = { ...at, content: '', api_calls: 0 };
  it.each([
    ['assistant.delta', { message_id: 'm', delta: 'd', session_id: 'x' }, 'chat.delta', { ...at, delta: 'd' }],
    ['content_delta', { id: 'm', content: 'd' }, 'chat.delta', { ...at, delta: 'd' }],
    ['delta', {}, 'chat.delta', { session_id: 's1', message_id: '', delta: '' }],
    ['tool.progress', { id: 'm', text: 'p' }, 'chat.progress', { ...at, delta: 'p' }],
    ['thinking_delta', { id: 'm', thinking_delta: 'p', text: 'q' }, 'chat.progress', { ...at, delta: 'p' }],
    ['reasoning_delta', { id: 'm', delta: 'p' }, 'chat.progress', { ...at, delta: 'p' }],
    ...['tool.pending', 'tool.started', 'tool_start', 'tool_started'].map((name): [string, object, string, object] => [
      name,
      { name: 't', call_id: 'c', preview: 'p', arguments: { password: 'x', a: 1 } },
      'chat.tool.started',
      { ...tool, preview: 'p', args: { password: '[REDACTED]', a: 1 } },
    ]),
    ['tool.started', {}, 'chat.tool.started', { tool_name: '', tool_call_id: '', preview: '', args: {} }],
    [
      'tool.completed',
      { ...tool, result: 'r' },
      'chat.tool.completed',
      { ...tool, result_preview: 'r', success: true },
    ],
    [
      'tool_result',
      { ...tool, success: false },
      'chat.tool.completed',
      { ...tool, result_preview: '', success: false },
    ],
    [
      'tool_completed',
      { ...tool, result: 'r', result_preview: { token: 1 } },
      'chat.tool.completed',
      { ...tool, result_preview: { token: '[REDACTED]' }, success: true },
    ],
    ['tool.failed', tool, 'chat.tool.failed', { ...tool, error: 'Tool failed' }],
    ['tool.failed', { ...tool, message: 'no' }, 'chat.tool.failed', { ...tool, error: 'no' }],
    ['assistant.completed', { id: 'm' }, 'chat.turn.completed', turn],
    [
      'assistant.completed',
      { id: 'm', content: 'c', completed: false, partial: true, interrupted: true },
      'chat.turn.completed',
      { ...at, content: 'c', completed: false, partial: true, interrupted: true },
    ],
    ...['run.completed', 'done', 'content_complete', 'complete', 'completed'].map(
      (name): [string, object, string, object] => [name, { id: 'm' }, 'chat.completed', end],
    ),
    ['done', { id: 'm', content: 'c', api_calls: 3 }, 'chat.completed', { ...end, content: 'c', api_calls: 3 }],
    ['error', {}, 'chat.error', { message: 'Unknown error' }],
    ['error', { error: { message: 'inner' } }, 'chat.error', { message: 'inner' }],
    ['error', { message: 'a', error: 'b' }, 'chat.error', { message: 'a' }],
  ])('%s %j becomes %s', (name, data, type, payload) => {
    expect(only(legacy, event(name, data as Record<string, unknown>))).toEqual({ type, payload });
  });

  it.each([event('run.started'), event('constructor'), event(undefined, { delta: 'x' }), MARK])(
    '%j is ignored',
    (one) => {
      expect(run(legacy, [one])).toEqual([]);
    },
  );

  it('the first terminal event wins', () => {
    expect(run(legacy, [event('run.completed', { content: '1' }), event('done', { content: '2' }), MARK, END])).toEqual(
      [{ type: 'chat.completed', payload: { session_id: 's1', message_id: '', content: '1', api_calls: 0 } }],
    );
    expect(run(legacy, [event('error'), event('done'), END]).map(({ type }) => type)).toEqual(['chat.error']);
  });

  it('a clean end without a terminal event is reported', () => {
    expect(run(legacy, [event('delta', { delta: 'x' }), MARK, END]).at(-1)).toEqual({
      type: 'chat.completed',
      payload: { session_id: 's1', message_id: '', content: '', api_calls: 0 },
    });
  });
});
