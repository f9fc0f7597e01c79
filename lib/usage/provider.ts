import type { Call } from './call.ts';
import type { ActiveCredential, Credentials } from './credentials.ts';

/** The used part of a quota. */
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
  /** Prefix of a hash: never the id of the pool entry. */
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

/** One provider as shown to devices (contract 04 §9.2), with every key present. Times are ISO 8601 UTC. */
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

/** A provider's row, with defaults for missing keys. */
export const providerUsage = (
  { id, displayName }: Provider,
  status: ProviderUsage['status'],
  given: Partial<ProviderUsage>,
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
  ...given,
});

/** Base URLs of providers; a credential may contain another one. */
export interface ProviderBases {
  codex: string;
  nous: string;
  opencodeGo: string;
  supergrok: string;
}

export const PROVIDER_BASES: ProviderBases = {
  codex: 'https://chatgpt.com/backend-api/codex',
  nous: 'https://portal.nousresearch.com',
  opencodeGo: 'https://opencode.ai/zen/go/v1',
  supergrok: 'https://cli-chat-proxy.grok.com',
};

export interface LoadOptions {
  credentials: Credentials;
  call: Call;
  bases: ProviderBases;
}

/** Usage as a provider reports it, and the source of that report. */
export type Usage = Partial<ProviderUsage> & { source: string };

/** The usage for a session with the given credential. */
export type UsageFor = (active: ActiveCredential | null) => Usage;

export interface Provider {
  id: string;
  displayName: string;
  /**
   * Queries the provider. Null without a credential. Rejects with a RelayError whose message may be shown, or with any other
   * error if there is no response.
   */
  load(options: LoadOptions): Promise<Usage | UsageFor | null>;
}

export const withoutSlash = (url: string): string => url.replace(/\/+$/, '');
