/** What one question to a service brought (contract 07 §5.2). */
export interface ProbeResult {
  /** Answered with 200 to 399, whole and in time. */
  ok: boolean;
  /** Answered, and not with 404. */
  exists: boolean;
  status: number | null;
  method: ProbeMethod;
  url: string;
  /** The body, when it is JSON. */
  json?: unknown;
  /** Why there is no whole answer, in a few words. */
  error?: string;
}

export type ProbeMethod = 'GET' | 'HEAD' | 'POST';

/**
 * Asks once, without credentials, body or redirects, and never throws. `timeout` is in milliseconds for the whole
 * exchange.
 */
export type Probe = (method: ProbeMethod, url: string, timeout: number) => Promise<ProbeResult>;

/** A question that brought nothing. */
export const unanswered = (method: ProbeMethod, url: string, error: string): ProbeResult => ({
  ok: false,
  exists: false,
  status: null,
  method,
  url,
  error,
});
