import { defaultTriggers, type NotificationTriggers } from './triggers.ts';

/**
 * State of the grants of the current relay connection. `bound`: a policy of schema version 1 and of this install was
 * read. Every other state denies every capability (contract 03 §8.2).
 */
export type PolicyState = 'bound' | 'unbound' | 'unavailable' | 'invalid';

/** Every setting that the owner controls (contract 03 §8.6). */
export interface SafetySettings {
  masterEnabled: boolean;
  /** True if the phone subscribes to messages from the agent (contract 04 §5). */
  messagesEnabled: boolean;
  flavor: 'sideload' | 'store';
  unattended: boolean;
  /** Package names, matched exactly. */
  blocklist: string[];
  destructiveVerbs: string[];
  /** `bridge_trusted_destructive_verbs`: lower-case, trimmed words and route verbs. */
  trustedVerbs: string[];
  /** 5..120. */
  autoDisableMinutes: number;
  /** 10..60. */
  confirmationTimeoutSeconds: number;
  triggers: NotificationTriggers;
  policy: PolicyState;
  /**
   * Capability id -> epoch ms, null = unlimited, absent = not granted. A permanent capability must be null: a number
   * makes the whole policy malformed, which denies everything.
   */
  capabilities: Record<string, number | null>;
}

/** A change of settings. Its `triggers` contain only the changed keys. */
export type SettingsChange = Partial<Omit<SafetySettings, 'triggers'>> & { triggers?: Partial<NotificationTriggers> };

/**
 * Holds the settings. `get` reflects a change as soon as `update` is called, whose promise resolves once the change is
 * durable.
 */
export interface SettingsStore {
  get(): SafetySettings;
  update(change: SettingsChange): Promise<void>;
  /** Returns the unsubscribe function. */
  onChange(listener: (settings: SafetySettings) => void): () => void;
}

/** Routes that always ask, by the verb that can be trusted (contract 03 §8.3). */
export const ROUTE_VERBS = ['call', 'send_sms', 'share_media', 'send_mms'] as const;

const DEFAULT_BLOCKLIST = `com.chase.sig.android com.wf.wellsfargomobile com.bankofamerica.digitalwallet
com.usaa.mobile.android.usaa com.konylabs.capitalone com.americanexpress.android.acctsvcs.us
com.discoverfinancial.mobile com.infonow.bofa uk.co.hsbc.hsbcukmobilebanking com.barclays.android.barclaysmobilebanking
com.monzo.android co.uk.getmondo co.revolut.app com.starlingbank.android com.venmo com.squareup.cash
com.paypal.android.p2pmobile com.coinbase.android co.mona.android com.lastpass.lpandroid com.agilebits.onepassword
com.x8bit.bitwarden com.dashlane.frozenaccount com.keepersecurity.passwordmanager com.bitwarden.authenticator
com.google.android.apps.authenticator2 com.authy.authy com.duosecurity.duomobile`;

const DEFAULT_DESTRUCTIVE_VERBS = 'send pay delete transfer confirm submit post publish buy purchase charge withdraw';

/** Initial settings of a phone: nothing granted, master toggle off (contract 03 §8.6). */
export const defaultSettings = (): SafetySettings => ({
  masterEnabled: false,
  messagesEnabled: false,
  flavor: 'sideload',
  unattended: false,
  blocklist: DEFAULT_BLOCKLIST.split(/\s+/),
  destructiveVerbs: DEFAULT_DESTRUCTIVE_VERBS.split(' '),
  trustedVerbs: [],
  autoDisableMinutes: 30,
  confirmationTimeoutSeconds: 30,
  triggers: defaultTriggers(),
  policy: 'unbound',
  capabilities: {},
});

/** Capabilities that are granted permanently or not at all (contract 03 §8.2). */
export const PERMANENT = [
  'device_info',
  'contacts_read',
  'location_read',
  'clipboard_read',
  'clipboard_write',
  'media_control',
  'communications',
  'outbound_sharing',
] as const;

/** Capabilities that are granted as a lease with an absolute end, or without an end. */
export const TIMED = ['screen_inspection', 'screen_control'] as const;

export type TimedCapability = (typeof TIMED)[number];
export type Capability = (typeof PERMANENT)[number] | TimedCapability;

export const isTimed = (capability: string): capability is TimedCapability =>
  (TIMED as readonly string[]).includes(capability);

const expiryOf = ({ capabilities }: SafetySettings, id: string): unknown =>
  Object.hasOwn(capabilities, id) ? capabilities[id] : undefined;

/** True if all stored grants are valid. A single invalid entry denies everything (contract 03 §8.2). */
export function isWellFormed(settings: SafetySettings): boolean {
  if (typeof settings.capabilities !== 'object' || settings.capabilities === null) return false;
  return [...PERMANENT, ...TIMED].every((id) => {
    const expiry = expiryOf(settings, id);
    return expiry === undefined || expiry === null || (isTimed(id) && Number.isFinite(expiry));
  });
}

/** A lease is live while its end lies in the future; null never ends. */
export function grantState(settings: SafetySettings, id: Capability, now: number): 'live' | 'expired' | 'absent' {
  const expiry = expiryOf(settings, id);
  if (expiry === undefined) return 'absent';
  return expiry === null || (expiry as number) > now ? 'live' : 'expired';
}

/** Timed grants that have an end, expired ones included. */
export function finiteLeases(settings: SafetySettings): { id: TimedCapability; expiry: number }[] {
  if (settings.policy !== 'bound' || !isWellFormed(settings)) return [];
  return TIMED.flatMap((id) => {
    const expiry = expiryOf(settings, id);
    return typeof expiry === 'number' ? [{ id, expiry }] : [];
  });
}
