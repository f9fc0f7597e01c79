import { expect, it } from 'vitest';
import { fallbacksIn, reportOf, totalOf } from '../../../../lib/voice/agent/report.ts';
import { NO_USAGE } from '../../../../lib/voice/agent/usage.ts';

const lines = (...events: object[]) =>
  events.map((event, at) => JSON.stringify({ unix_ms: 1000 + at * 60_000, ...event }));
const fellBack = (reason: string) => ({ type: 'voice.response.delivery_fallback', reason });

it('counts deliveries and the last sum of what was used, and skips what is no event (contract 06 §10)', () => {
  const report = reportOf([
    ...lines(
      { type: 'voice.realtime_agent.session.created', provider: 'openai_realtime', model: 'gpt-realtime-2' },
      { type: 'voice.realtime_agent.provider_model_resolved', model: 'gpt-realtime-2.1' },
      { type: 'svc.run.background_completed', ok: true },
      { type: 'voice.response.forced_summary_streaming' },
      { type: 'voice.response.done', usage: { input_audio_tokens: 10, output_audio_tokens: 20 } },
      { type: 'voice.response.forced_summary_delivered' },
      fellBack('empty_summary'),
      fellBack('provider_lost'),
      { type: 'voice.provider.reconnected', gap_ms: 120 },
      { type: 'voice.realtime_agent.session.closed', usage: { input_audio_tokens: 30, output_audio_tokens: 40 } },
    ),
    '{"type":"voice.response',
    '[]',
    '',
  ]);
  expect(report).toEqual({
    provider: 'openai_realtime',
    model: 'gpt-realtime-2.1',
    duration_ms: 9 * 60_000,
    background_runs: 1,
    deliveries: { early_commit: 1, validated: 1, fallback: { empty_summary: 1 }, provider_lost: 1 },
    preempted: 0,
    alarms: 0,
    deferred: 0,
    reconnected: 1,
    provider_spoken_rate: 0.5,
    usage: { ...NO_USAGE, input_audio_tokens: 30, output_audio_tokens: 40 },
  });
  const other = reportOf(lines(fellBack('empty_summary'), { usage: { input_audio_tokens: 5, output_tokens: 'x' } }));
  expect(other.provider_spoken_rate).toBe(0);
  const total = totalOf([report, other, reportOf([])]);
  expect(total.usage).toEqual({ ...NO_USAGE, input_audio_tokens: 35, output_audio_tokens: 40 });
  expect(total.deliveries.fallback).toEqual({ empty_summary: 2 });
  expect([fallbacksIn(total), total.provider_spoken_rate]).toEqual([3, 0.4]);
  expect(totalOf([]).provider_spoken_rate).toBeNull();
});

it('keeps the reasons of a log few, whatever it says', () => {
  const report = reportOf(
    lines(...Array.from({ length: 100 }, (_, at) => fellBack(`reason-${at}`)), fellBack('__proto__')),
  );
  expect(Object.keys(report.deliveries.fallback).length).toBeLessThanOrEqual(32);
});

it.each(['constructor', 'toString', '__proto__'])('counts the reason %s like any other', (reason) => {
  const report = reportOf(lines(fellBack(reason), fellBack(reason)));
  expect(Object.entries(report.deliveries.fallback)).toEqual([[reason, 2]]);
  expect(fallbacksIn(totalOf([report, report]))).toBe(4);
});
