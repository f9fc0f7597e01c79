import type { Capability } from '../safety-settings.ts';
import type { PhoneAnswer } from '../types.ts';

/** Refusals for want of a grant (contract 03 §8.2): the sentence, the code, and what would help. */
const GRANT_REFUSALS = {
  'capability-denied': [(id: Capability) => `${id} is not granted`, 'bridge_capability_denied', 'grant_capability'],
  'capability-expired': [
    (id: Capability) => `the ${id} grant has expired`,
    'bridge_capability_expired',
    'renew_capability',
  ],
  'policy-unbound': [() => 'nothing has been granted to this relay yet', 'bridge_policy_unbound', 'grant_capability'],
  'policy-unavailable': [() => 'the stored grants cannot be read', 'bridge_policy_unavailable', 'restart_companion'],
  'policy-invalid': [() => 'the stored grants are invalid', 'bridge_policy_invalid', 'reset_grants'],
} as const;

/** Why a command is refused: one arm per reason (contract 03 §8.1). */
export type Refusal =
  | { kind: keyof typeof GRANT_REFUSALS; capability: Capability }
  | { kind: 'unknown-command' }
  | { kind: 'method-not-allowed' }
  | { kind: 'sideload-only'; flavor: string }
  | { kind: 'accessibility-off' }
  | { kind: 'bridge-disabled' }
  | { kind: 'blocked-package'; package: string }
  | { kind: 'blocked-share-target'; package: string }
  | { kind: 'denied'; detail: string }
  | { kind: 'no-safety-manager' }
  | { kind: 'keyguard-blocked' };

type Body = { error: string } & Record<string, unknown>;

/** An error body with a code, under both of its names. */
export const withCode = (error: string, code: string, more: Record<string, unknown> = {}): Body => ({
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
      const error = 'device control is only available in the sideload build';
      return answer(403, withCode(error, 'device_control_sideload_only', { flavor: refusal.flavor }));
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
    case 'blocked-share-target':
      return answer(403, { error: `blocked package ${refusal.package}`, status: 'blocked', reason: 'blocked_package' });
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
    default: {
      const { kind, capability } = refusal;
      const [sentence, code, required_action] = GRANT_REFUSALS[kind];
      return answer(403, withCode(sentence(capability), code, { capability, required_action }));
    }
  }
}
