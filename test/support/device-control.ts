import { startPhone } from './phone.ts';
import type { Target } from './relay.ts';

export const named = (target: Target, device_id: string, device_name: string, more: Record<string, unknown> = {}) =>
  startPhone(target, { device: { device_id, device_name, ...more } });

export const devices = async (target: Target) => (await target.operator('/bridge/devices')).json();
