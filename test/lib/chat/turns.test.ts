import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { AgentEvent } from '../../../lib/chat/events.ts';
import { type Answer, advanceAnswer, emptyAnswer, MAX_TEXT, MAX_TOOLS, previewOf } from '../../../lib/chat/turns.ts';
import { runs } from '../../support/runs.ts';

const event = (type: string | undefined, data: Record<string, unknown> = {}): AgentEvent => ({
  kind: 'event',
  type,
  data,
});

/** The answer after events, and how the first end among them reads. */
function answerAfter(...events: AgentEvent[]) {
  let answer: Answer = emptyAnswer();
  const endings = events.flatMap((each) => {
    const step = advanceAnswer(answer, each);
    answer = step.answer;
    return step.ending ?? [];
  });
  return { answer, endings };
}

describe('the answer of a turn (contract 10 §1)', () => {
  it('is the text of its deltas, whatever they are called and wherever they are cut', () => {
    const names = fc.constantFrom('assistant.delta', 'content_delta', 'delta', undefined);
    fc.assert(
      fc.property(fc.array(fc.tuple(names, fc.string({ unit: 'binary' }))), (deltas) => {
        const { answer, endings } = answerAfter(...deltas.map(([name, delta]) => event(name, { delta })));
        expect(answer.text).toBe(deltas.map(([, delta]) => delta).join(''));
        expect(endings).toEqual([]);
      }),
      { numRuns: runs(200) },
    );
  });

  it('takes the whole text at the end only where nothing was streamed', () => {
    const whole = event('run.completed', { content: 'all of it', usage: { input_tokens: 3, api_key: 'k' } });
    expect(answerAfter(whole)).toEqual({
      answer: { text: 'all of it', tools: [], truncated: false, usage: { input_tokens: 3, api_key: '[REDACTED]' } },
      endings: [{ state: 'done' }],
    });
    expect(answerAfter(event('assistant.delta', { delta: 'part' }), whole).answer.text).toBe('part');
    expect(answerAfter(event('assistant.completed', { content: 'message' })).answer.text).toBe('message');
  });

  it.each([
    [{ kind: 'mark' }, { state: 'done' }],
    [{ kind: 'end' }, { state: 'done' }],
    [{ kind: 'cancelled' }, { state: 'cancelled' }],
    [event('done'), { state: 'done' }],
    [event('error', { message: 'no credit' }), { state: 'failed', error: 'no credit' }],
    [event('error', { error: { message: 'x'.repeat(5000) } }), { state: 'failed', error: `${'x'.repeat(1599)}…` }],
  ] as [AgentEvent, object][])('%j ends it as %j, and no tool runs on', (last, ending) => {
    const { answer, endings } = answerAfter(event('tool.started', { tool_name: 't' }), last);
    expect(endings).toEqual([ending]);
    expect(answer.tools).toMatchObject([{ state: 'done' }]);
  });

  it('lists tools by their id or name, with previews that are cut and redacted', () => {
    const { answer } = answerAfter(
      event('tool.pending', { tool_name: 'a', call_id: '1', args: { path: '/x', password: 'p' } }),
      event('tool.started', { tool_name: 'a', call_id: '1', preview: 'reads /x' }),
      event('tool.started', { tool_name: 'b' }),
      event('tool.completed', { tool_name: 'b', result: { token: 't', lines: 'y'.repeat(5000) } }),
      event('tool.failed', { tool_name: 'a', call_id: '1', error: 'no such file' }),
      event('tool.completed', { tool_name: 'late', success: false }),
    );
    expect(answer.tools.map(({ preview, ...tool }) => [tool, preview.length > 100 ? preview.length : preview])).toEqual(
      [
        [{ id: '1', name: 'a', state: 'failed' }, 'no such file'],
        [{ id: '', name: 'b', state: 'done' }, 1600],
        [{ id: '', name: 'late', state: 'failed' }, ''],
      ],
    );
    expect(answer.tools[1]?.preview).toContain('[REDACTED]');
    expect(answerAfter(event('tool.started', { args: { password: 'p' } })).answer.tools[0]).toEqual({
      id: '',
      name: 'tool',
      state: 'running',
      preview: '{"password":"[REDACTED]"}',
    });
  });

  it('stays within its limits, and says so', () => {
    const long = answerAfter(event('delta', { delta: 'x'.repeat(MAX_TEXT - 1) }), event('delta', { delta: 'yz' }));
    expect(long.answer.text).toHaveLength(MAX_TEXT);
    expect([long.answer.text.at(-1), long.answer.truncated]).toEqual(['y', true]);
    const tools = Array.from({ length: MAX_TOOLS + 5 }, (_, at) => event('tool.started', { call_id: String(at) }));
    const many = answerAfter(...tools, event('tool.completed', { call_id: '3', result: 'r' })).answer;
    expect(many.tools).toHaveLength(MAX_TOOLS);
    expect([many.truncated, many.tools[3]?.preview]).toEqual([true, 'r']);
  });

  it('has a preview on one line', () => {
    expect(previewOf(' a\n\tb\u202ec ')).toBe('a bc');
    expect(previewOf('😀'.repeat(100))).toHaveLength(120);
    expect(previewOf(`${'x'.repeat(119)}😀`)).toBe(`${'x'.repeat(119)}\ufffd`);
  });
});
