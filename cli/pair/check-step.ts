export type StepStatus = 'ok' | 'warning' | 'failed' | 'skipped';

/** One step of a phone's pairing. `next` is a command to type. */
export interface Step {
  id: string;
  status: StepStatus;
  summary: string;
  next?: string;
}

export const ok = (id: string, summary: string): Step => ({ id, status: 'ok', summary });
/** A step that does not apply here, or was not reached. */
export const skipped = (id: string, summary: string): Step => ({ id, status: 'skipped', summary });
export const warning = (id: string, summary: string, next: string): Step => ({ id, status: 'warning', summary, next });
export const failed = (id: string, summary: string, next: string): Step => ({ id, status: 'failed', summary, next });

/** Judges the routes: if one works, failures of the others are only warnings. No route at all is a failure. */
export function judgeRoutes(steps: readonly Step[]): Step[] {
  if (!steps.some(({ status }) => status === 'ok')) return [...steps];
  return steps.map((step) => (step.status === 'failed' ? { ...step, status: 'warning' } : step));
}
