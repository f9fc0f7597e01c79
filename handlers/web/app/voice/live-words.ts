import type { JsonObject } from '../../../../lib/kit/json.ts';

export const PROVIDER_GONE = 'The provider of live voice has gone. Start again.';

const PROVIDER_REFUSES =
  /(?:openai|xai) realtime auth|realtime rejected the relay auth|realtime oauth refresh failed|realtime provider credentials/;
const AGENT_REFUSES = /svc broker auth failed|relay-side svc credential/;
const NOTICE = /no active response|cancellation failed|timed out.*inactivity|inactivity.*timed out/;

/** An error of the relay, worded for people; null for a notice that ends nothing. */
export function wordsOf({ message, error_code }: JsonObject): string | null {
  const text = typeof message === 'string' ? message : '';
  const lower = text.toLowerCase();
  if (NOTICE.test(lower)) return null;
  if (PROVIDER_REFUSES.test(lower)) return 'The provider of live voice refused the relay: its key is missing or wrong.';
  if (AGENT_REFUSES.test(lower) || error_code === 'svc_broker_auth_failed') {
    return 'The API server of the agent refused the relay: its key is missing or wrong.';
  }
  if (error_code === 'provider_disconnected') return PROVIDER_GONE;
  return text === '' ? 'Something went wrong.' : `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}
