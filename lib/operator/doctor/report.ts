import type { Diagnosis } from './doctor.ts';

/** The JSON of the doctor (contract 07 §5.2). */
export const reportOf = ({ checks, ...facts }: Diagnosis) => ({
  schema_version: 1,
  ...facts,
  checks: checks.map(({ id, status, summary }) => ({ id, status, summary })),
});

export type DoctorReport = ReturnType<typeof reportOf>;

export interface Doctor {
  /** Examines this host now. Callers during a run share it (contract 09 §4). */
  report(): Promise<DoctorReport>;
}

/** The doctor of a running relay. */
export function createDoctor(diagnose: () => Promise<Diagnosis>): Doctor {
  let running: Promise<DoctorReport> | undefined;
  return {
    report() {
      running ??= diagnose()
        .then(reportOf)
        .finally(() => {
          running = undefined;
        });
      return running;
    },
  };
}
