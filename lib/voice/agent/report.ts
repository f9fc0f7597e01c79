import { asObject, type JsonObject, parseJson } from '../../kit/json.ts';
import { added, NO_USAGE, type Usage, usageIn } from './usage.ts';

/** Deliveries and costs, summed from event logs of the realtime agent (contract 06 §10). */
export interface Report {
  background_runs: number;
  deliveries: {
    /** Spoken by the provider, and heard from an early point on. */
    early_commit: number;
    /** Spoken by the provider, and heard after it was validated. */
    validated: number;
    /** Read aloud by the relay, by reason. */
    fallback: Record<string, number>;
    provider_lost: number;
  };
  preempted: number;
  alarms: number;
  deferred: number;
  /** Connections to the provider that were lost and restored. */
  reconnected: number;
  /** Share of the deliveries that the provider spoke; null without any. */
  provider_spoken_rate: number | null;
  usage: Usage;
}

/** The report of one session. */
export interface SessionReport extends Report {
  provider: string;
  model: string;
  /** Milliseconds from the first line to the last. */
  duration_ms: number;
}

const COUNTS = ['background_runs', 'preempted', 'alarms', 'deferred', 'reconnected'] as const;
const MAX_REASON = 64;
const MAX_REASONS = 32;

const emptyReport = (): Report => ({
  background_runs: 0,
  // Without a prototype, since a damaged log may have a reason such as `constructor`.
  deliveries: { early_commit: 0, validated: 0, fallback: Object.create(null), provider_lost: 0 },
  preempted: 0,
  alarms: 0,
  deferred: 0,
  reconnected: 0,
  provider_spoken_rate: null,
  usage: NO_USAGE,
});

/** Counts the lines of one event log. Lines that are no JSON object are skipped. */
export function reportOf(lines: Iterable<string>): SessionReport {
  const report: SessionReport = { ...emptyReport(), provider: '', model: '', duration_ms: 0 };
  let first: number | undefined;
  for (const line of lines) {
    const event = asObject(parseJson(line));
    if (!event) continue;
    count(report, event);
    const { unix_ms: at } = event;
    if (typeof at !== 'number') continue;
    first ??= at;
    report.duration_ms = Math.max(report.duration_ms, at - first);
  }
  report.provider_spoken_rate = rateOf(report);
  return report;
}

/** Events that count by one, and what they count. */
const COUNTED = new Map<unknown, (typeof COUNTS)[number]>([
  ['svc.run.background_completed', 'background_runs'],
  ['voice.realtime_agent.delivery_preempted', 'preempted'],
  ['voice.realtime_agent.delivery_unconfirmed', 'alarms'],
  ['voice.realtime_agent.result_deferred', 'deferred'],
  ['voice.provider.reconnected', 'reconnected'],
]);

function count(report: SessionReport, event: JsonObject): void {
  const { deliveries } = report;
  const counted = COUNTED.get(event.type);
  if (counted) report[counted]++;
  // Usage is cumulative, so the last one counts.
  if (asObject(event.usage)) report.usage = usageIn(event.usage);
  switch (event.type) {
    case 'voice.realtime_agent.session.created':
      report.provider = textIn(event.provider);
      report.model = textIn(event.model);
      break;
    case 'voice.realtime_agent.provider_model_resolved':
      report.model = textIn(event.model) || report.model;
      break;
    case 'voice.response.forced_summary_streaming':
      deliveries.early_commit++;
      break;
    case 'voice.response.forced_summary_delivered':
      deliveries.validated++;
      break;
    case 'voice.response.delivery_fallback': {
      const reason = textIn(event.reason) || 'unknown';
      if (reason === 'provider_lost') deliveries.provider_lost++;
      else if (reason in deliveries.fallback || Object.keys(deliveries.fallback).length < MAX_REASONS)
        deliveries.fallback[reason] = (deliveries.fallback[reason] ?? 0) + 1;
      break;
    }
  }
}

/** The sum of reports. */
export function totalOf(reports: readonly Report[]): Report {
  const total = emptyReport();
  for (const { deliveries, usage, ...report } of reports) {
    for (const name of COUNTS) total[name] += report[name];
    for (const name of ['early_commit', 'validated', 'provider_lost'] as const)
      total.deliveries[name] += deliveries[name];
    for (const [reason, times] of Object.entries(deliveries.fallback))
      total.deliveries.fallback[reason] = (total.deliveries.fallback[reason] ?? 0) + times;
    total.usage = added(total.usage, usage);
  }
  total.provider_spoken_rate = rateOf(total);
  return total;
}

/** Deliveries that were read aloud by the relay. */
export const fallbacksIn = ({ deliveries: { fallback, provider_lost } }: Report): number =>
  Object.values(fallback).reduce((sum, times) => sum + times, provider_lost);

function rateOf(report: Report): number | null {
  const { early_commit, validated } = report.deliveries;
  const all = early_commit + validated + fallbacksIn(report);
  return all === 0 ? null : (early_commit + validated) / all;
}

const textIn = (value: unknown): string => (typeof value === 'string' ? value.slice(0, MAX_REASON) : '');
