import type { Clock } from '../kit/clock.ts';
import type { AutoDisable } from './auto-disable.ts';
import type { Device } from './device.ts';
import { grantState, isWellFormed, PERMANENT, type SafetySettings, TIMED } from './safety-settings.ts';

function capabilitiesPayload(settings: SafetySettings, now: number) {
  const usable = settings.policy === 'bound' && isWellFormed(settings);
  const live = TIMED.filter((id) => usable && grantState(settings, id, now) === 'live');
  return {
    schema_version: 1,
    permanent: PERMANENT.filter((id) => usable && grantState(settings, id, now) === 'live').sort(),
    timed: Object.fromEntries(
      live.filter((id) => settings.capabilities[id] !== null).map((id) => [id, settings.capabilities[id]]),
    ),
    unlimited: live.filter((id) => settings.capabilities[id] === null).sort(),
  };
}

/** The payload of `bridge.status` (contract 03 §1.3). The store build reports device control as unsupported and off. */
export function statusPayload(
  device: Device,
  settings: SafetySettings,
  autoDisable: AutoDisable,
  clock: Clock,
): Record<string, unknown> {
  const info = device.info();
  const sideload = settings.flavor === 'sideload';
  const foreground = info.foreground ?? 'unknown';
  return {
    device: {
      name: info.name,
      battery_percent: info.batteryPercent,
      screen_on: info.screenOn,
      current_app: foreground,
      flavor: settings.flavor,
      application_id: info.applicationId,
    },
    bridge: {
      device_control_supported: sideload,
      master_enabled: sideload && settings.masterEnabled,
      accessibility_granted: sideload && info.accessibilityGranted,
      screen_capture_granted: sideload && info.screenCaptureGranted,
      overlay_granted: sideload && info.overlayGranted,
      notification_listener_granted: info.notificationListenerGranted,
    },
    safety: {
      blocklist_count: settings.blocklist.length,
      destructive_verbs_count: settings.destructiveVerbs.length,
      auto_disable_minutes: settings.autoDisableMinutes,
      auto_disable_at_ms: autoDisable.at(),
    },
    capabilities: capabilitiesPayload(settings, clock.now()),
    unattended: {
      supported: sideload,
      enabled: sideload && settings.unattended,
      credential_lock_detected: info.credentialLockDetected,
    },
    screen_on: info.screenOn,
    battery: info.batteryPercent,
    current_app: foreground,
    accessibility_enabled: sideload && info.accessibilityGranted,
    ts: clock.now(),
  };
}
