import { expect, it } from 'vitest';
import type { Result, RunFacts } from '../../../../../lib/voice/agent/core/state.ts';
import { toolResult } from '../../../../../lib/voice/agent/text/tool-results.ts';

/** Contract 06 §6.2. */

const shown = { engine: 'realtime_agent' };
const facts = { sessionId: 's1', profile: 'work', interface: shown };
const ids = { run_id: 'r1', session_id: 's1', interface: shown };
const FINISHED: Result = {
  runKey: 1,
  runId: 'r1',
  request: 'What time is it?',
  answer: 'It is\nnoon.',
  isOk: true,
  isBackground: false,
  callId: 'c1',
  toolCount: 2,
  lastToolName: 'clock',
  isReoffered: false,
};

const completed = (answer: string, isFast = false) =>
  toolResult({ type: 'completed', result: { ...FINISHED, answer }, isFast }, facts);

it('of a run', () => {
  const done = completed('It is\nnoon.');
  expect(done).toEqual({
    ok: true,
    status: 'completed',
    profile: 'work',
    text: 'It is noon.',
    answer: 'It is noon.',
    summary: 'It is noon.',
    tool_count: 2,
    last_tool_name: 'clock',
    raw_text_omitted: true,
    spoken_response: 'It is noon.',
    provider_instruction: expect.stringContaining('spoken_response'),
    ...ids,
  });
  expect(completed('Noon.')).toMatchObject({ raw_text_omitted: false });
  expect(completed('It is\nnoon.', true)).toEqual({ ...done, fast_lane: true });
  const long = completed('word '.repeat(1000)) as { text: string; summary: string };
  expect([long.text.length, long.summary.length]).toEqual([1800, 1200]);
});

it('of a run that failed or was cancelled', () => {
  const error = `${'x'.repeat(239)}…`;
  expect(toolResult({ type: 'failed', error: 'x'.repeat(500), runId: 'r1' }, facts)).toEqual({
    ok: false,
    error,
    ...ids,
  });
  expect(toolResult({ type: 'cancelled', runId: 'r1' }, facts)).toEqual({ ok: false, cancelled: true, ...ids });
});

it('of a run that goes on, without ids', () => {
  const common = { ok: true, instruction: expect.any(String), interface: shown };
  expect(toolResult({ type: 'promoted' }, facts)).toEqual({ ...common, status: 'running_in_background' });
  expect(toolResult({ type: 'queued', position: 2 }, facts)).toEqual({
    ...common,
    status: 'queued',
    queue_position: 2,
  });
  expect(toolResult({ type: 'already_running', runId: 'r1' }, facts)).toEqual({
    ...common,
    status: 'already_running',
    run_id: 'r1',
  });
});

it('of a status', () => {
  const run: RunFacts = {
    runId: 'r1',
    status: 'waiting_for_confirmation',
    confirmationId: 'k1',
    activeToolName: 'a',
    lastToolName: 'b',
    lastToolStatus: 'running',
    lastToolMessage: 'm',
    toolCount: 3,
  };
  const queue = ['x'.repeat(200), 'second'].map((text, index) => ({
    callId: `c${index}`,
    localId: `task-${index}`,
    text,
    profile: null,
    sessionId: null,
  }));
  expect(toolResult({ type: 'status', facts: run, queue }, facts)).toEqual({
    ok: true,
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
    ...ids,
  });
  expect(toolResult({ type: 'status', facts: null, queue: [] }, facts)).toMatchObject({
    run_id: null,
    status: 'idle',
    completed_tool_count: 0,
  });
});

it('of a cancellation and a confirmation', () => {
  expect(toolResult({ type: 'cancel', runId: 'r1', hadRun: true }, facts)).toEqual({
    ok: true,
    status: 'cancelled',
    ...ids,
  });
  expect(toolResult({ type: 'confirmed', confirmationId: 'k1' }, facts)).toEqual({
    ok: true,
    confirmation_id: 'k1',
    status: 'forwarded_to_svc_ui',
    interface: shown,
  });
});

it('of a refused call', () => {
  const result = { ok: false, error: 'text is required' };
  expect(toolResult({ type: 'refused', result }, facts)).toEqual(result);
});
