import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readToolCall, TOOL_SURFACE, TOOLS } from '../../../../../lib/voice/agent/text/tools.ts';

const read = (name: string, args: unknown) => readToolCall(name, JSON.stringify(args));
const refused = (error: string) => ({ name: 'refused', result: { ok: false, error } });

describe('schemas (contract 06 §6.2)', () => {
  it('are the four functions in their order', () => {
    expect(TOOLS.map(({ name }) => name)).toEqual(TOOL_SURFACE);
    expect(TOOLS.map(({ parameters }) => [Object.keys(parameters.properties as object), parameters.required])).toEqual([
      [['text', 'profile', 'session_id', 'mode'], ['text']],
      [['run_id'], []],
      [['run_id'], []],
      [
        ['confirmation_id', 'answer'],
        ['confirmation_id', 'answer'],
      ],
    ]);
    expect(TOOLS.every(({ parameters }) => parameters.type === 'object')).toBe(true);
  });

  it('tell when to use each', () => {
    const description = (name: string) => TOOLS.find((tool) => tool.name === name)?.description;
    for (const word of ['memory', 'tools', 'current', 'side effects', 'files']) {
      expect(description('svc_run_task')).toContain(word);
    }
    expect(description('svc_get_status')).toMatch(/progress.*queue/);
  });
});

describe('calls (contract 06 §6.2)', () => {
  const plain = { name: 'svc_run_task', text: 'Do it', profile: null, sessionId: null, mode: 'foreground' };

  it('reads a task', () => {
    expect(read('svc_run_task', { text: ' Do it ' })).toEqual(plain);
    const whole = { text: 'Do it', profile: 'work', session_id: 's1', mode: 'BACKGROUND', other: 1 };
    expect(read('svc_run_task', whole)).toEqual({
      name: 'svc_run_task',
      text: 'Do it',
      profile: 'work',
      sessionId: 's1',
      mode: 'background',
    });
    expect(read('svc_run_task', { text: 'x'.repeat(6000) })).toMatchObject({ text: 'x'.repeat(5000) });
  });

  it('leaves out members of a task that cannot be used', () => {
    const odd = { profile: 'p'.repeat(200), session_id: '..', mode: 'fast' };
    expect(read('svc_run_task', { text: 'Do it', ...odd })).toEqual(plain);
    expect(read('svc_run_task', { text: 'Do it', profile: ' ', session_id: 7, mode: null })).toEqual(plain);
  });

  it('reads the others', () => {
    expect(read('svc_get_status', { run_id: 'r1' })).toEqual({ name: 'svc_get_status' });
    expect(readToolCall('svc_cancel', '')).toEqual({ name: 'svc_cancel' });
    expect(read('svc_confirm', { confirmation_id: ' k1 ', answer: 'Allow_Once' })).toEqual({
      name: 'svc_confirm',
      confirmationId: 'k1',
      answer: 'allow_once',
    });
  });

  it.each(['', 'null', '[]', '"text"', '{', '{}', '{"text":7}', '{"text":" "}'])(
    'arguments %j miss the text of a task',
    (args) => expect(readToolCall('svc_run_task', args)).toEqual(refused('text is required')),
  );

  it.each([
    [{}, 'confirmation_id is required'],
    [{ answer: 'allow' }, 'confirmation_id is required'],
    [{ confirmation_id: 'k1' }, 'answer is required'],
    [{ confirmation_id: 'k1', answer: 'perhaps' }, 'answer must be one of allow, allow_once, deny, cancel'],
    [{ confirmation_id: 'k'.repeat(201), answer: 'allow' }, 'confirmation_id has at most 200 characters'],
  ])('a confirmation with %j is refused', (args, error) => {
    expect(read('svc_confirm', args)).toEqual(refused(error));
  });

  it.each(['terminal', 'toString', '', 'SVC_RUN_TASK'])('the name %j is refused', (name) => {
    expect(read(name, { text: 'x' })).toEqual({
      name: 'refused',
      result: { ok: false, error: `tool is not allowed: ${name}`, allowed_tools: [...TOOL_SURFACE] },
    });
  });

  it('survive any arguments', () => {
    fc.assert(
      fc.property(fc.constantFrom(...TOOL_SURFACE, 'x'), fc.oneof(fc.json(), fc.string()), (name, args) => {
        expect([name, 'refused']).toContain(readToolCall(name, args).name);
      }),
    );
  });
});
