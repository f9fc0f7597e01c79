import { expect, it } from 'vitest';
import { createLogReport, totalOf } from '../../../../lib/voice/agent/report.ts';

function reportOf(...lines: (object | string)[]) {
  const report = createLogReport('x.jsonl');
  for (const line of lines) report.line(typeof line === 'string' ? line : JSON.stringify({ unix_ms: 7, ...line }));
  return report.end();
}

const created = {
  type: 'voice.realtime_agent.session.created',
  session_id: 's',
  provider: 'openai_realtime',
  model: 'asked for',
};
const early = { type: 'voice.response.forced_summary_streaming' };
const fallback = (run_id: string, reason: string) => ({ type: 'voice.response.delivery_fallback', run_id, reason });

it('counts what became of results', () => {
  const report = reportOf(
    created,
    { type: 'voice.realtime_agent.provider_model_resolved', model: 'really used' },
    { type: 'svc.run.background_completed', ok: true },
    { type: 'svc.run.background_completed', ok: false },
    early,
    { type: 'voice.response.forced_summary_delivered' },
    { type: 'voice.response.forced_summary_fallback', run_id: 'r1', reason: 'empty_summary' },
    fallback('r1', 'empty_summary'),
    fallback('r2', 'provider_lost'),
    fallback('r3', 'refused'),
    { type: 'voice.realtime_agent.delivery_unconfirmed' },
    { type: 'voice.realtime_agent.delivery_preempted' },
    { type: 'voice.realtime_agent.result_deferred' },
    { type: 'voice.realtime_agent.result_pushed_proactive' },
    '{"type":',
    '[]',
    '{"type":7}',
    '',
    { type: 'voice.response.done' },
  );
  expect(report).toEqual({
    file: 'x.jsonl',
    session_id: 's',
    provider: 'openai_realtime',
    model: 'really used',
    unix_ms: 7,
    background_runs: 2,
    background_failed: 1,
    early_commit: 1,
    end_validated: 1,
    validator_fallback: { empty_summary: 1 },
    provider_death_fallback: 1,
    other_fallback: 1,
    preempted: 1,
    alarms: 1,
    deferred: 1,
    pushed_to_phone: 1,
    malformed_lines: 3,
    provider_spoken_rate: 2 / 6,
  });
});

it('adds up logs; without a delivery there is no share', () => {
  const empty = reportOf(created);
  expect(empty).toMatchObject({ model: 'asked for', provider_spoken_rate: null });
  const judged = reportOf({ type: 'voice.response.forced_summary_fallback', run_id: 'r', reason: 'no_answer_overlap' });
  const total = totalOf([reportOf(early, early, '?'), judged, judged, empty]);
  expect(total).toMatchObject({
    early_commit: 2,
    validator_fallback: { no_answer_overlap: 2 },
    malformed_lines: 1,
    provider_spoken_rate: 0.5,
  });
  expect(totalOf([])).toMatchObject({ background_runs: 0, provider_spoken_rate: null });
});
