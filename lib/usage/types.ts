/** How much of one quota is used. */
export type UsageWindow = {
  id: string;
  label: string;
  /** 0 to 100. */
  used_percent: number | null;
  reset_at: string | null;
  detail: string | null;
};

export type UsageBalance = { id: string; label: string; amount: number; currency: 'USD' };

export type UsageCredential = {
  /** The beginning of a hash: never the id of the pool entry. */
  id: string;
  label: string;
  active: boolean;
  status: 'available' | 'at_limit' | 'unavailable';
  pool_status: string | null;
  last_status_at: string | null;
  reset_at: string | null;
  plan: string | null;
  windows: UsageWindow[];
  details: string[];
  message: string | null;
};

/** One provider as devices see it (contract 04 §9.2): every key is always there. Times are ISO 8601 UTC. */
export type ProviderUsage = {
  id: string;
  display_name: string;
  status: 'available' | 'not_configured' | 'unavailable';
  source: string | null;
  fetched_at: string | null;
  plan: string | null;
  renews_at: string | null;
  action_url: string | null;
  message: string | null;
  windows: UsageWindow[];
  details: string[];
  balances: UsageBalance[];
  credentials: UsageCredential[];
  active_credential_id: string | null;
  active_credential_state: 'known' | 'single_credential' | 'unknown';
  active_observed_at: string | null;
};

export interface ProviderName {
  id: string;
  displayName: string;
}

/** A provider of which nothing is known but its name, with what is. */
export const providerUsage = (
  { id, displayName }: ProviderName,
  { status, ...known }: Partial<ProviderUsage> & Pick<ProviderUsage, 'status'>,
): ProviderUsage => ({
  id,
  display_name: displayName,
  status,
  source: null,
  fetched_at: null,
  plan: null,
  renews_at: null,
  action_url: null,
  message: null,
  windows: [],
  details: [],
  balances: [],
  credentials: [],
  active_credential_id: null,
  active_credential_state: 'unknown',
  active_observed_at: null,
  ...known,
});
