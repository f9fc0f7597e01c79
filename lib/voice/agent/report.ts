import { type JsonObject, parseObject } from '../../kit/json.ts';

/** What became of results, counted from event logs (contract 06 §10). Types, so that they are JSON values. */
export type DeliveryCounts = {
  background_runs: number;
  background_failed: number;
  /** Spoken by the provider, and heard before its end was known to be good. */
  early_commit: number;
  /** Spoken by the provider, and checked whole. */
  end_validated: number;
  /** Read aloud by the relay instead, because of what the provider said, by reason. */
  validator_fallback: Record<string, number>;
  /** The same, because the provider was lost. */
  provider_death_fallback: number;
  /** The same, for any other reason, such as a refused request. */
  other_fallback: number;
  preempted: number;
  alarms: number;
  deferred: number;
  pushed_to_phone: number;
  malformed_lines: number;
};

export type LogReport = DeliveryCounts & {
  file: string;
  session_id: string | null;
  provider: string | null;
  /** The model that the provider really used, where it said so. */
  model: string | null;
  /** Of its first line; null without one. */
  unix_ms: number | null;
  provider_spoken_rate: number | null;
};

const none = (): DeliveryCounts => ({
  background_runs: 0,
  background_failed: 0,
  early_commit: 0,
  end_validated: 0,
  validator_fallback: {},
  provider_death_fallback: 0,
  other_fallback: 0,
  preempted: 0,
  alarms: 0,
  deferred: 0,
  pushed_to_phone: 0,
  malformed_lines: 0,
});

/** Markers that are counted as they are. */
const COUNTED: Readonly<Record<string, keyof Omit<DeliveryCounts, 'validator_fallback'>>> = {
  'voice.response.forced_summary_streaming': 'early_commit',
  'voice.response.forced_summary_delivered': 'end_validated',
  'voice.realtime_agent.delivery_preempted': 'preempted',
  'voice.realtime_agent.delivery_unconfirmed': 'alarms',
  'voice.realtime_agent.result_deferred': 'deferred',
  'voice.realtime_agent.result_pushed_proactive': 'pushed_to_phone',
};
const MAX_REASON = 64;

/** Counts one event log, line by line. */
export function createLogReport(file: string) {
  const report: LogReport = {
    file,
    session_id: null,
    provider: null,
    model: null,
    unix_ms: null,
    ...none(),
    provider_spoken_rate: null,
  };
  /** Runs whose summary was found wanting: the fallback that follows has the same cause. */
  const judged = new Set<unknown>();

  function fallback({ reason, run_id: run }: JsonObject): void {
    if (judged.delete(run)) return;
    if (reason === 'provider_lost') report.provider_death_fallback++;
    else report.other_fallback++;
  }

  function event(line: JsonObject): void {
    const { type, reason } = line;
    const counted = COUNTED[String(type)];
    if (counted) report[counted]++;
    else if (type === 'svc.run.background_completed') {
      report.background_runs++;
      if (line.ok !== true) report.background_failed++;
    } else if (type === 'voice.response.forced_summary_fallback') {
      judged.add(line.run_id);
      const name = (textOf(reason) ?? 'unknown').slice(0, MAX_REASON);
      report.validator_fallback[name] = (report.validator_fallback[name] ?? 0) + 1;
    } else if (type === 'voice.response.delivery_fallback') fallback(line);
    else if (type === 'voice.realtime_agent.session.created') {
      report.session_id = textOf(line.session_id);
      report.provider = textOf(line.provider);
      report.model ??= textOf(line.model);
    } else if (type === 'voice.realtime_agent.provider_model_resolved') report.model = textOf(line.model);
  }

  return {
    /** Takes the next line. One that is not a JSON object with a type is counted, and skipped. */
    line(text: string): void {
      if (text.trim() === '') return;
      const parsed = parseObject(text);
      if (typeof parsed?.type !== 'string') {
        report.malformed_lines++;
        return;
      }
      if (typeof parsed.unix_ms === 'number') report.unix_ms ??= parsed.unix_ms;
      event(parsed);
    },
    end: (): LogReport => ({ ...report, provider_spoken_rate: spokenRate(report) }),
  };
}

/** Sums of all logs. */
export function totalOf(logs: readonly DeliveryCounts[]): DeliveryCounts & { provider_spoken_rate: number | null } {
  const total = none();
  for (const log of logs) {
    for (const [name, count] of Object.entries(log.validator_fallback)) {
      total.validator_fallback[name] = (total.validator_fallback[name] ?? 0) + count;
    }
    for (const name of Object.keys(total) as (keyof DeliveryCounts)[]) {
      if (name !== 'validator_fallback') total[name] += log[name];
    }
  }
  return { ...total, provider_spoken_rate: spokenRate(total) };
}

export const validatorFallbacks = ({ validator_fallback }: DeliveryCounts): number =>
  Object.values(validator_fallback).reduce((sum, count) => sum + count, 0);

/** Share of the delivered results that the provider has spoken itself; null without any. */
function spokenRate(counts: DeliveryCounts): number | null {
  const spoken = counts.early_commit + counts.end_validated;
  const delivered =
    spoken + validatorFallbacks(counts) + counts.provider_death_fallback + counts.other_fallback + counts.alarms;
  return delivered === 0 ? null : spoken / delivered;
}

const textOf = (value: unknown): string | null => (typeof value === 'string' ? value : null);
