import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readToolCall, TOOL_SURFACE, TOOLS, toolResults } from '../../../../../lib/voice/agent/text/tools.ts';

const shown = { engine: 'realtime_agent' };
const run = { runId: 'r1', sessionId: 's1', interface: shown };
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
    expect(TOOLS.every(({ type, parameters }) => type === 'function' && parameters.type === 'object')).toBe(true);
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
  it('reads a task', () => {
    expect(read('svc_run_task', { text: ' Do it ' })).toEqual({ name: 'svc_run_task', text: 'Do it', mode: 'chat' });
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
    const plain = { name: 'svc_run_task', text: 'Do it', mode: 'chat' };
    const odd = { profile: 'p'.repeat(200), session_id: '..', mode: 'fast' };
    expect(read('svc_run_task', { text: 'Do it', ...odd })).toEqual(plain);
    expect(read('svc_run_task', { text: 'Do it', profile: ' ', session_id: 7, mode: null })).toEqual(plain);
  });

  it('reads the others', () => {
    expect(read('svc_get_status', { run_id: 'r1' })).toEqual({ name: 'svc_get_status', runId: 'r1' });
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

describe('results (contract 06 §6.2)', () => {
  const finished = { ...run, answer: 'It is\nnoon.', profile: 'work', toolCount: 2, lastToolName: 'clock' };

  it('of a run', () => {
    expect(toolResults.done(finished)).toEqual({
      ok: true,
      status: 'completed',
      run_id: 'r1',
      session_id: 's1',
      profile: 'work',
      text: 'It is noon.',
      answer: 'It is noon.',
      summary: 'It is noon.',
      tool_count: 2,
      last_tool_name: 'clock',
      raw_text_omitted: true,
      interface: shown,
      spoken_response: 'It is noon.',
      provider_instruction: expect.stringContaining('spoken_response'),
    });
    expect(toolResults.done({ ...finished, answer: 'Noon.' })).toMatchObject({ raw_text_omitted: false });
    expect(toolResults.fastLane(finished)).toEqual({ ...toolResults.done(finished), fast_lane: true });
    const long = toolResults.done({ ...finished, answer: 'word '.repeat(1000) }) as { text: string; summary: string };
    expect([long.text.length, long.summary.length]).toEqual([1800, 1200]);
  });

  it('of a run that failed or was cancelled', () => {
    const ids = { run_id: 'r1', session_id: 's1', interface: shown };
    expect(toolResults.failed('x'.repeat(500), run)).toEqual({ ok: false, error: `${'x'.repeat(239)}…`, ...ids });
    expect(toolResults.cancelledRun(run)).toEqual({ ok: false, cancelled: true, ...ids });
  });

  it('of a run that goes on, without ids', () => {
    const instruction = expect.any(String);
    expect(toolResults.promoted(run)).toEqual({
      ok: true,
      status: 'running_in_background',
      instruction,
      interface: shown,
    });
    expect(toolResults.queued(2, run)).toEqual({
      ok: true,
      status: 'queued',
      queue_position: 2,
      instruction,
      interface: shown,
    });
    expect(toolResults.alreadyRunning(run)).toMatchObject({ ok: true, status: 'already_running', run_id: 'r1' });
  });

  it('of a status', () => {
    const facts = {
      ...run,
      status: 'waiting_for_confirmation' as const,
      pendingConfirmationId: 'k1',
      activeToolName: 'a',
      lastToolName: 'b',
      lastToolStatus: 'running',
      lastToolMessage: 'm',
      completedToolCount: 3,
      queue: ['x'.repeat(200), 'second'],
    };
    expect(toolResults.status(facts)).toEqual({
      ok: true,
      run_id: 'r1',
      session_id: 's1',
      status: 'waiting_for_confirmation',
      pending_confirmation_id: 'k1',
      active_tool_name: 'a',
      last_tool_name: 'b',
      last_tool_status: 'running',
      last_tool_message: 'm',
      completed_tool_count: 3,
      queued_count: 2,
      queued_items: [
        { position: 1, request_preview: `${'x'.repeat(119)}…` },
        { position: 2, request_preview: 'second' },
      ],
      interface: shown,
    });
  });

  it('of a cancellation and a confirmation', () => {
    expect(toolResults.cancelled('cancelled', run)).toEqual({
      ok: true,
      run_id: 'r1',
      status: 'cancelled',
      session_id: 's1',
      interface: shown,
    });
    expect(toolResults.confirmed('k1', run)).toEqual({
      ok: true,
      confirmation_id: 'k1',
      status: 'forwarded_to_svc_ui',
      interface: shown,
    });
  });
});
