import * as v from 'valibot';
import { parseJson } from '../../kit/json.ts';
import { isDigest, isId } from '../../reach/ids.ts';
import {
  defaultSettings,
  isWellFormed,
  type PolicyState,
  type SafetySettings,
  type SettingsChange,
} from '../safety-settings.ts';
import { defaultTriggers, TriggersSchema } from '../triggers.ts';
import { isCertificate, isPin, readBrokerUrl } from './candidates.ts';

const VERSION = 1;
const POLICY_SCHEMA = 1;

const Strings = v.array(v.string());
const Epoch = v.nullable(v.number());

const PinnedSchema = v.object({
  pin: v.custom<string>(isPin),
  certDer: v.custom<string>(isCertificate),
});

/** A Reach broker, as named in the pairing link (contract 08 §6.2). */
const BrokerSchema = v.object({
  /** `wss:` URL that ends in `/v1/connect`. */
  url: v.custom<string>((url) => typeof url === 'string' && readBrokerUrl(url) === url),
  hostId: v.custom<string>(isId),
  /** Works a few times, until `expiresAt` (epoch seconds). Secret. */
  bootstrap: v.object({ token: v.custom<string>(isDigest), expiresAt: v.number() }),
});

const EndpointSchema = v.pipe(
  v.object({
    /** `lan`, `tailscale`, `public`, …: an open set. */
    role: v.string(),
    /** `ws:` or `wss:`. Always `wss://AUTHORITY/relay/ws` for a pinned endpoint. */
    url: v.pipe(v.string(), v.regex(/^wss?:\/\//i)),
    /** Lower is tried first. */
    priority: v.number(),
    /** A Secure Link origin. */
    pinned: v.optional(PinnedSchema),
    /** The pinned origin is reached through this broker. */
    broker: v.optional(BrokerSchema),
  }),
  // A route that lost its pin must not pass as an unpinned one.
  v.check(({ url, pinned, broker }) => (pinned ? /^wss:/.test(url) : broker === undefined)),
);

/** Long-term access to a host through its broker, issued by the relay (contract 08 §6.4). The token is secret. */
const RouteCredentialSchema = v.object({
  broker_url: v.string(),
  host_id: v.string(),
  credential_id: v.string(),
  token: v.string(),
  /** Epoch seconds. */
  expires_at: v.number(),
});

/** A device's access to its mailbox: the socket, and credentials for it unless they were lost. Secret. */
const MailboxSchema = v.object({
  url: v.pipe(v.string(), v.regex(/^wss?:\/\//i)),
  session_token: v.optional(v.string()),
  refresh_token: v.optional(v.string()),
  /** Beginning of the session token that home gave, from which the present ones derive. */
  given: v.optional(v.string()),
});

/**
 * Keys of the sealed mailbox, base64url: this device's as home has it, and home's once it has arrived. `uploads`: home
 * opens sealed uploads. A browser stores its non-extractable private key elsewhere.
 */
const BoxSchema = v.object({
  private_key: v.optional(v.string()),
  public_key: v.optional(v.string()),
  home: v.optional(v.string()),
  uploads: v.optional(v.boolean()),
});

export const PairingSchema = v.object({
  session_token: v.pipe(v.string(), v.minLength(1)),
  refresh_token: v.optional(v.string()),
  endpoints: v.pipe(v.array(EndpointSchema), v.minLength(1)),
  /** `endpointId` of the route used last. */
  last_good: v.optional(v.string()),
  /** The mailbox at the edge. Without a token, its credentials have yet to arrive. */
  mailbox: v.optional(MailboxSchema),
  box: v.optional(BoxSchema),
  /** True if this device has paired at the edge, and has yet to get to its home. */
  paired_at_edge: v.optional(v.boolean()),
  /** Time since when this device's home is off, as the edge last reported; epoch seconds. */
  home_off_since: v.optional(v.number()),
  /** For the Reach broker of the pairing link. */
  route_credential: v.optional(RouteCredentialSchema),
  /** SHA-256 of the SPKI in hex by host:port (spec 2.1). */
  tofu_pins: v.record(v.string(), v.string()),
  /** The name that the owner gave this device when it was paired. */
  device_name: v.optional(v.string()),
  paired_at: v.number(),
  server_version: v.string(),
  expires_at: Epoch,
  grants: v.record(v.string(), Epoch),
  /** True if the session is bound to a key of this browser (handlers/web/README.md). */
  bound: v.optional(v.boolean()),
  /** Further addresses of this browser's page, as the relay last reported. */
  addresses: v.optional(v.array(v.string())),
  /** True if a backup also contains the session, which must not be bound then. */
  shared: v.optional(v.boolean()),
});

export const SafetySchema = v.partial(
  v.object({
    masterEnabled: v.boolean(),
    messagesEnabled: v.boolean(),
    flavor: v.picklist(['sideload', 'store']),
    unattended: v.boolean(),
    blocklist: Strings,
    destructiveVerbs: Strings,
    /** `trustedVerbs`, under the key of specification 2.1. */
    bridge_trusted_destructive_verbs: Strings,
    autoDisableMinutes: v.pipe(v.number(), v.integer(), v.minValue(5), v.maxValue(120)),
    confirmationTimeoutSeconds: v.pipe(v.number(), v.integer(), v.minValue(10), v.maxValue(60)),
  }),
);

export const DeviceIdSchema = v.pipe(v.string(), v.uuid());

const DocumentSchema = v.object({
  version: v.literal(VERSION),
  device_id: DeviceIdSchema,
  pairing: v.nullable(PairingSchema),
  safety: SafetySchema,
  notification_triggers: v.optional(TriggersSchema),
  /** Grants for the relay of `pairing`. Anything but a policy of this install denies everything. */
  policy: v.unknown(),
});

export type Broker = v.InferOutput<typeof BrokerSchema>;
export type StoredEndpoint = v.InferOutput<typeof EndpointSchema>;
export type RouteCredential = v.InferOutput<typeof RouteCredentialSchema>;
export type MailboxAccess = v.InferOutput<typeof MailboxSchema>;
/** Everything a later connection needs. Contains credentials. */
export type Pairing = v.InferOutput<typeof PairingSchema>;
/** The content of the settings file. */
export type SettingsDocument = v.InferOutput<typeof DocumentSchema>;

export const emptyDocument = (): SettingsDocument => ({
  version: VERSION,
  device_id: crypto.randomUUID(),
  pairing: null,
  safety: {},
  policy: null,
});

/** The policy of a new pairing: grants nothing. */
export const emptyPolicy = (deviceId: string) => policyOf(deviceId, {});

export const policyOf = (deviceId: string, capabilities: SafetySettings['capabilities']) => ({
  schema_version: POLICY_SCHEMA,
  device_id: deviceId,
  capabilities,
});

export type ReadResult = { kind: 'document'; document: SettingsDocument } | { kind: 'damaged' } | { kind: 'newer' };

export function readDocument(text: string): ReadResult {
  const value = parseJson(text);
  const version = (value as { version?: unknown } | null)?.version;
  if (typeof version === 'number' && version > VERSION) return { kind: 'newer' };
  const read = v.safeParse(DocumentSchema, value);
  return read.success ? { kind: 'document', document: read.output } : { kind: 'damaged' };
}

/** The document after a change of settings. Grants are stored as a separate policy. */
export function withSettings(
  document: SettingsDocument,
  { policy: _, capabilities: __, triggers, trustedVerbs, ...rest }: SettingsChange,
): SettingsDocument {
  const { safety, notification_triggers: stored = defaultTriggers() } = document;
  return {
    ...document,
    safety: { ...safety, ...rest, ...(trustedVerbs && { bridge_trusted_destructive_verbs: trustedVerbs }) },
    ...(triggers && { notification_triggers: { ...stored, ...triggers } }),
  };
}

const PolicySchema = v.object({
  schema_version: v.literal(POLICY_SCHEMA),
  device_id: v.string(),
  capabilities: v.record(v.string(), Epoch),
});

/** The effective safety settings: defaults for everything that the document lacks (contract 03 §8.2, §8.6). */
export function safetyOf(document: SettingsDocument): SafetySettings {
  const { safety, policy, pairing, device_id: deviceId, notification_triggers: triggers } = document;
  const { bridge_trusted_destructive_verbs: trustedVerbs, ...rest } = safety;
  const settings: SafetySettings = {
    ...defaultSettings(),
    ...rest,
    ...(trustedVerbs && { trustedVerbs }),
    ...(triggers && { triggers }),
  };
  const denied = (state: PolicyState): SafetySettings => ({ ...settings, policy: state, capabilities: {} });
  if (pairing === null || policy === null || policy === undefined) return denied('unbound');
  const read = v.safeParse(PolicySchema, policy);
  if (!read.success || read.output.device_id !== deviceId) return denied('invalid');
  const bound: SafetySettings = { ...settings, policy: 'bound', capabilities: read.output.capabilities };
  return isWellFormed(bound) ? bound : denied('invalid');
}
