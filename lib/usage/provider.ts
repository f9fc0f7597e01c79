import type { ActiveCredential } from './active-credential.ts';
import type { Ask } from './ask.ts';
import type { Credentials } from './credentials.ts';
import type { ProviderName, ProviderUsage } from './types.ts';

/** Where providers are asked unless a credential names another place. */
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

export interface LoadParts {
  credentials: Credentials;
  ask: Ask;
  bases: ProviderBases;
  /** When this is, ISO 8601. */
  fetchedAt: string;
}

/** What was loaded, as it looks to a session that uses the given credential. */
export type Loaded = (active: ActiveCredential | null) => ProviderUsage;

export interface Provider extends ProviderName {
  /**
   * Asks the provider. Null without a credential; rejects with a RelayError whose message may be shown, or with
   * anything else when no answer can be had.
   */
  load(parts: LoadParts): Promise<Loaded | null>;
}

export const withoutSlash = (url: string): string => url.replace(/\/+$/, '');
