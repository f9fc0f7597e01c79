import type { Capability } from '../safety-settings.ts';
import type { PhoneAnswer } from '../types.ts';

/** Why a command is refused: one arm per reason (contract 03 §8.1). */
export type Refusal =
  | { kind: 'unknown-command' }
  | { kind: 'method-not-allowed' }
  | { kind: 'sideload-only'; flavor: string }
  | { kind: 'capability-denied'; capability: Capability }
  | { kind: 'capability-expired'; capability: Capability }
  | { kind: 'policy-unbound'; capability: Capability }
  | { kind: 'policy-unavailable'; capability: Capability }
  | { kind: 'policy-invalid'; capability: Capability }
  | { kind: 'accessibility-off' }
  | { kind: 'bridge-disabled' }
  | { kind: 'blocked-package'; package: string }
  | { kind: 'blocked-share-target'; package: string }
  | { kind: 'denied'; detail: string }
  | { kind: 'no-safety-manager' }
  | { kind: 'keyguard-blocked' };

type Body = { error: string } & Record<string, unknown>;

const withCode = (error: string, code: string, more: Record<string, unknown> = {}): Body => ({
  error,
  code,
  error_code: code,
  ...more,
});

const answer = (status: number, body: Body): PhoneAnswer => ({
  status,
  result: body,
  error: body.error,
  ...(status === 403 && { blocked: true }),
});

/** The answer that the caller gets for a refusal (contract 03 §8.4, §8.7). */
export function refusalAnswer(refusal: Refusal): PhoneAnswer {
  switch (refusal.kind) {
    case 'unknown-command':
      return answer(403, withCode('unknown bridge command', 'unknown_bridge_command'));
    case 'method-not-allowed':
      return answer(405, { error: 'method not allowed' });
    case 'sideload-only': {
      const { flavor } = refusal;
      const error = 'device control is only available in the sideload build';
      return answer(403, withCode(error, 'device_control_sideload_only', { flavor }));
    }
    case 'capability-denied': {
      const { capability } = refusal;
      const more = { capability, required_action: 'grant_capability' };
      return answer(403, withCode(`${capability} is not granted`, 'bridge_capability_denied', more));
    }
    case 'capability-expired': {
      const { capability } = refusal;
      const more = { capability, required_action: 'renew_capability' };
      return answer(403, withCode(`the ${capability} grant has expired`, 'bridge_capability_expired', more));
    }
    case 'policy-unbound': {
      const more = { capability: refusal.capability, required_action: 'grant_capability' };
      return answer(403, withCode('nothing has been granted to this relay yet', 'bridge_policy_unbound', more));
    }
    case 'policy-unavailable': {
      const more = { capability: refusal.capability, required_action: 'restart_companion' };
      return answer(403, withCode('the stored grants cannot be read', 'bridge_policy_unavailable', more));
    }
    case 'policy-invalid': {
      const more = { capability: refusal.capability, required_action: 'reset_grants' };
      return answer(403, withCode('the stored grants are invalid', 'bridge_policy_invalid', more));
    }
    case 'accessibility-off': {
      const more = { required_action: 'enable_accessibility_service' };
      return answer(503, withCode('the accessibility service is not running', 'service_unavailable', more));
    }
    case 'bridge-disabled': {
      const more = { required_action: 'enable_bridge' };
      return answer(403, withCode('device control is switched off on the phone', 'bridge_disabled', more));
    }
    case 'blocked-package':
      return answer(403, { error: `blocked package ${refusal.package}` });
    case 'blocked-share-target': {
      const error = `blocked package ${refusal.package}`;
      return answer(403, { error, status: 'blocked', reason: 'blocked_package' });
    }
    case 'denied':
      return answer(403, {
        error: 'user denied destructive action',
        reason: 'confirmation_denied_or_timeout',
        error_code: 'user_denied',
        status: 'blocked',
        android_result: 'user_denied',
        final: true,
        detail: refusal.detail,
        instruction: 'The person at the phone did not allow this: do not retry this intent by other means.',
      });
    case 'no-safety-manager':
      return answer(503, withCode('cannot ask for confirmation: no safety manager', 'service_unavailable'));
    case 'keyguard-blocked': {
      const more = { final: true, required_action: 'unlock_phone' };
      return answer(423, withCode('the phone is locked with a PIN or password', 'keyguard_blocked', more));
    }
  }
}
