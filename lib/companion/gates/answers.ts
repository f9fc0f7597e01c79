import type { PhoneAnswer } from '../types.ts';
import type { Refusal } from './gate.ts';

type Body = { error: string } & Record<string, unknown>;

const coded = (error: string, code: string, more: Record<string, unknown> = {}): Body => ({
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

/** What the caller sees of a refusal (contract 03 §8.4, §8.7). */
export function refusalAnswer(refusal: Refusal): PhoneAnswer {
  switch (refusal.kind) {
    case 'unknown-command':
      return answer(403, coded('this phone knows no such command', 'unknown_bridge_command'));
    case 'method-not-allowed':
      return answer(405, { error: 'method not allowed' });
    case 'sideload-only': {
      const { flavor } = refusal;
      const error = 'device control exists in the sideload build only';
      return answer(403, coded(error, 'device_control_sideload_only', { flavor }));
    }
    case 'capability-denied': {
      const { capability } = refusal;
      const more = { capability, required_action: 'grant_capability' };
      return answer(403, coded(`${capability} is not granted`, 'bridge_capability_denied', more));
    }
    case 'capability-expired': {
      const { capability } = refusal;
      const more = { capability, required_action: 'renew_capability' };
      return answer(403, coded(`the grant of ${capability} has expired`, 'bridge_capability_expired', more));
    }
    case 'policy-unbound': {
      const more = { capability: refusal.capability, required_action: 'grant_capability' };
      return answer(403, coded('no grants for this relay yet', 'bridge_policy_unbound', more));
    }
    case 'policy-unavailable': {
      const more = { capability: refusal.capability, required_action: 'restart_companion' };
      return answer(403, coded('the grants cannot be read', 'bridge_policy_unavailable', more));
    }
    case 'policy-invalid': {
      const more = { capability: refusal.capability, required_action: 'reset_grants' };
      return answer(403, coded('the stored grants are not valid', 'bridge_policy_invalid', more));
    }
    case 'accessibility-off': {
      const more = { required_action: 'enable_accessibility_service' };
      return answer(503, coded('the accessibility service is not running', 'service_unavailable', more));
    }
    case 'bridge-disabled': {
      const more = { required_action: 'enable_bridge' };
      return answer(403, coded('device control is switched off on the phone', 'bridge_disabled', more));
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
      return answer(503, coded('nobody can be asked: no safety manager', 'service_unavailable'));
    case 'keyguard-blocked': {
      const more = { final: true, required_action: 'unlock_phone' };
      return answer(423, coded('the phone is locked with a credential', 'keyguard_blocked', more));
    }
  }
}
