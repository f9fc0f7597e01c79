import { singleFlight } from '../../kit/single-flight.ts';
import type { Diagnosis } from './doctor.ts';
import { groupChecks } from './groups.ts';

/** The JSON of the command: every check, in the order of the contract (07 §5.2). */
export const reportOf = ({ checks, ...facts }: Diagnosis) => ({
  schema_version: 1,
  ...facts,
  checks: checks.map(({ id, status, summary }) => ({ id, status, summary })),
});

/**
 * The answer of a running relay: the command's JSON, and the `groups` that its text shows, with one finding for each cause,
 * the remedy in `next`, and `unknown` for checks without a result.
 */
const groupedReportOf = (diagnosis: Diagnosis) => ({
  ...reportOf(diagnosis),
  groups: groupChecks(diagnosis).map(({ title, checks }) => ({
    title,
    checks: checks.map(({ id, status, summary, next, isUnknown, covers }) => ({
      ...{ id, status, summary },
      ...(next !== undefined && { next }),
      ...(isUnknown && { unknown: true as const }),
      ...(covers && { covers }),
    })),
  })),
});

export type DoctorReport = ReturnType<typeof groupedReportOf>;

/** The doctor of a running relay. */
export const createDoctor = (diagnose: () => Promise<Diagnosis>) => ({
  /** Examines this host now. Callers during a run share it (contract 09 §4). */
  report: singleFlight(() => diagnose().then(groupedReportOf)),
});
