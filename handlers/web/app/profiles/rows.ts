import { isObject } from '../../../../lib/kit/json.ts';

/** A profile of the agent, as listed by the relay (contract 07 §1.2). */
export interface ProfileRow {
  name: string;
  description: string;
  model: string;
  provider: string;
  skills: number;
  /** True if its gateway seemed to run at the relay's last check. */
  isRunning: boolean;
}

const text = (value: unknown): string => (typeof value === 'string' ? value : '');

/** Reads `profiles` of `auth.ok` or of `profiles.updated`. Invalid rows are omitted. */
export function readProfiles(value: unknown): ProfileRow[] {
  if (!Array.isArray(value)) return [];
  return value
    .filter(isObject)
    .filter(({ name }) => text(name) !== '')
    .map((row) => ({
      name: text(row.name),
      description: text(row.description),
      model: text(row.model),
      provider: text(row.provider),
      skills: typeof row.skill_count === 'number' ? row.skill_count : 0,
      isRunning: row.gateway_running === true,
    }));
}
