/** Result of one probe (contract 07 §5.2). */
export interface ProbeResult {
  /** True for a complete response in time, with a status of 200 to 399. */
  ok: boolean;
  /** True if there was a response other than 404. */
  exists: boolean;
  status: number | null;
  method: ProbeMethod;
  url: string;
  /** The body, if it is JSON. */
  json?: unknown;
  /** Why the response is missing or incomplete, in a few words. */
  error?: string;
}

export type ProbeMethod = 'GET' | 'HEAD' | 'POST';

/**
 * Sends one request without a body, and without credentials other than `headers`, and follows no redirect. Never throws.
 * `timeout` is in milliseconds for the whole exchange.
 */
export type Probe = (
  method: ProbeMethod,
  url: string,
  timeout: number,
  headers?: Record<string, string>,
) => Promise<ProbeResult>;

/** Result of a probe without any response. */
export const unanswered = (method: ProbeMethod, url: string, error: string): ProbeResult => ({
  ok: false,
  exists: false,
  status: null,
  method,
  url,
  error,
});
