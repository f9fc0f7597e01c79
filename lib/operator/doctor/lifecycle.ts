import { type ServiceParts, serviceStatus, unitPath } from '../service/service.ts';
import type { SystemdState } from '../service/systemd.ts';

/** What keeps the relay running: facts for the report, no verdict (contract 07 §5.2 leaves the members open). */
export interface Lifecycle {
  service: {
    systemd: SystemdState | 'unknown';
    unit_path: string;
    installed: boolean;
    current: boolean;
    enabled: boolean | null;
    active: string | null;
  };
}

export async function readLifecycle(parts: ServiceParts): Promise<Lifecycle> {
  const { systemd, unit_path, installed, current, enabled, active } = await serviceStatus(parts);
  return { service: { systemd, unit_path, installed, current, enabled, active } };
}

export const noLifecycle = (parts: ServiceParts): Lifecycle => ({
  service: {
    systemd: 'unknown',
    unit_path: unitPath(parts),
    installed: false,
    current: false,
    enabled: null,
    active: null,
  },
});
