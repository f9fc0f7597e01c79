import type { Storage } from 'unstorage';

/**
 * Every store by name, with the type of its values. `LOCATIONS` in `index.ts` says where each one lives, `README.md` what
 * its keys are. To add a store: a line here, a line there, its keys and its survival in the README.
 */
export interface StoreSchema {
  sessions: SessionRecord;
  'ended-sessions': EndedSessionRecord;
  clock: ClockRecord;
  /** When `svc restore` put this state in place, epoch seconds. */
  restored: { at: number };
  pairing: PairingRecord;
  'pairing-codes': PairingCodeRecord;
  limiter: LimiterRecord;
  switches: SwitchRecord;
  freeze: FreezeRecord;
  sockets: SocketRecord;
  bridge: BridgeDeviceRecord | BridgeSupersededRecord | BridgeSelectionRecord;
  'bridge-activity': RingRecord;
  desktop: DesktopDeviceRecord | { sessions: DesktopControlRecord[] };
  'desktop-activity': RingRecord;
  media: { entry: MediaEntry } | MediaOrphanRecord;
  phone: QueuedMessage;
  'phone-replies': StoredReply;
  'phone-history': PhoneHistoryItem;
  'phone-delivered': { seq: number; id: string };
  /** Socket ids of those that get messages (latest last), those that get copies, and those that read replies. */
  'phone-subscribers': {
    sockets: string[];
    mirrors?: string[];
    custody?: Record<string, number[]>;
    /** Session family by socket id; null for the operator's sockets. */
    readers?: Record<string, string | null>;
    /** Expiry of the operator's token by socket id, epoch seconds. */
    ends?: Record<string, number>;
  };
  'phone-threads': ThreadRecord;
  push: PushRecord;
  notifications: RingRecord;
  'voice-callers': VoiceCallerRecord;
  reach: ReachRecord;
  'mcp-sessions': McpSessionRecord;
  'chat-turns': ChatTurnRecord;
  mirror: MirrorRecord;
}

export type StoreName = keyof StoreSchema;

/** An entry of a store. The value is null if it is damaged or not JSON. */
export type Entry = [key: string, value: unknown];

/**
 * Reads single committed values of a store synchronously: writes of this turn are not visible yet. Each read is one
 * statement, whose cost does not grow with the size of the store.
 */
export interface Lookups {
  get(key: string): Entry[];
  /** Values whose lookup is `value`, plus some that only the caller can compare. */
  find(name: string, value: string): Entry[];
  startingWith(name: string, start: string): Entry[];
  /** Values whose lookup is a number up to `end`. */
  upTo(name: string, end: number): Entry[];
  /** The smallest number of a lookup above `above`. */
  least(name: string, above: number): number | null;
  /** Number of values that have a lookup. */
  count(name: string): number;
}

/** A store beyond unstorage's interface. */
export interface Backed {
  /** Every key, or those that begin with `base`, with its value, null for one that cannot be read. */
  entries?(base?: string): Promise<Entry[]>;
  /** Reads values on demand (edge). Without it, read the store as a whole. */
  readonly lookups?: Lookups;
  /**
   * Runs `work`, which may only write to durable stores and must not wait: all of its writes become durable together,
   * or none. Called by `batched`.
   */
  batch?<T>(work: () => T): T;
}

export type Store<K extends StoreName> = Storage<StoreSchema[K]> & Backed;

/** The relay's state, one named store at a time. */
export interface Stores {
  open<K extends StoreName>(name: K): Store<K>;
  /** True if the durable stores of this runtime survive the process; false if all are in memory. */
  readonly durable: boolean;
  /** Durable stores whose writes have failed since the last transaction that did not, each with the reason. */
  readonly failing: ReadonlyMap<StoreName, unknown>;
  /** Writes a snapshot of all durable stores to an empty file, as a database; absent where a runtime has no files. */
  snapshot?(path: string): Promise<void>;
  /** Commits all writes and releases the state. */
  close(): void;
}

/** A paired device (contract 01 §6.7). Times are epoch seconds, `null` means never; only hashes of tokens are kept. */
export interface SessionRecord {
  family: string;
  token_sha256: string;
  token_prefix: string;
  device_name: string;
  device_id: string;
  device_model: string;
  device_platform: string;
  client_surface: 'android' | 'desktop' | 'quest' | 'web' | 'unknown';
  device_form_factor: 'phone' | 'desktop' | 'xr' | 'unknown';
  /** Origin of home's page, for a device that is a browser on it (contract 12 §3). */
  page_origin?: string;
  transport_hint: 'wss' | 'ws' | 'unknown';
  created_at: number;
  first_seen: number;
  last_seen: number;
  expires_at: number | null;
  /** 2 since `grants` names every grant; older records lack some that their sessions have (contract 01 §6.2). */
  version?: number;
  grants: Record<string, number | null>;
  refresh: RefreshRecord | null;
  /** Thumbprint of the key that must accompany the session's credentials (RFC 7638). */
  key_thumbprint?: string;
  /** The `terminal` grant was reduced, and the device's shells have not ended yet (contract 01 §6.4). */
  terminal_reduced?: boolean;
  /** Durations that the operator chose, in seconds, counted from `granted_at`; older records lack both. */
  policy?: { ttl_seconds?: number; grants?: Record<string, number>; without?: string[] };
  granted_at?: number;
  /** The owner's name for the device (contract 11 §2). */
  owner_name?: string;
  /** The expiry of which the device was notified by a push. */
  noticed_expiry?: number;
  routes?: RoutesRecord;
  /** True if its clients answer a `system/ping`, which only the edge sends (contract 04 §5.4a). */
  answers_pings?: boolean;
  /** Home owns the session; this relay at the edge honours it while home is in contact (contract 12 §2). */
  mirrored?: true;
  /** At the edge, number of the latest chain of credentials that home began. */
  chain?: number;
  /** At the edge, the code by which the device of home has paired here, and whether home has taken it in. */
  paired_here?: { code: string; adopted?: boolean };
}

/**
 * The routes to the relay that a device has (contract 11 §2): URLs by addresses of this machine, and whether there are
 * others. `key` identifies the routes that the relay had when the device was last given them.
 */
export interface RoutesRecord {
  own: string[];
  others: boolean;
  key?: string;
}

/** A session that is over, keyed by its family (contract 11 §2). `ended_at` is epoch seconds. */
export interface EndedSessionRecord {
  token_prefix: string;
  token_sha256: string;
  device_name: string;
  device_id: string;
  client_surface: SessionRecord['client_surface'];
  ended_at: number;
  /** `expired`, `replaced` or `revoked by ...`. */
  reason: string;
}

/**
 * The last time at which the relay is known to have run, keyed `clock`, epoch seconds. `jump`: a start so long after it
 * that the clock may be wrong (contract 11 §2).
 */
export interface ClockRecord {
  at: number;
  jump?: { from: number; at: number };
}

/** A session's refresh credential (contract 01 §6.5). */
export interface RefreshRecord {
  sha256: string;
  /** Earlier tokens that still work, oldest first. */
  replaced: { sha256: string; until: number }[];
  created_at: number;
  last_used: number;
  expires_at: number;
}

/** Permanent state of pairing. */
export interface PairingRecord {
  /** The secret that signs QR payloads, base64 (contract 01 §5.4). */
  secret?: string;
  /** SHA-256 of the last `RELAY_PAIRING_CODE` that was registered (edge). */
  registered?: string;
}

/**
 * A pending pairing code or a request to pair, keyed by the SHA-256 of the code (contract 01 §5.1, 5.5). Durations are
 * seconds, 0 means never.
 */
export interface PairingCodeRecord {
  ttl_seconds?: number;
  grants?: Record<string, number>;
  without?: string[];
  transport_hint?: 'wss' | 'ws' | 'unknown';
  /** Epoch seconds. */
  expires_at: number;
  /** The first two characters of the code. */
  masked: string;
  anonymous: boolean;
  /** Hash of the secret in the code's QR payload. */
  secret_sha256?: string;
  /** The key that signed the payload: the first characters of its SHA-256. */
  key_id?: string;
  /** The peer that made a request to pair. */
  requested_by?: string;
  /** The routes that the code's payload names. */
  routes?: RoutesRecord;
  /** At the edge, a code whose device becomes one of home (contract 12 §2). */
  for_home?: boolean;
}

/** Failures and code requests of one peer, keyed by its SHA-256 (contract 01 §4). Times are epoch milliseconds. */
export interface PeerLimitRecord {
  peer: string;
  pairing: number[];
  session: number[];
  mint: number[];
  blocked_until: number;
}

/**
 * Kept beside the peers: wrong codes of all peers, keyed `code-budget`, and peers that have paired, keyed
 * `paired-peers`.
 */
export type LimiterRecord =
  | PeerLimitRecord
  | { wrong_codes: number[]; restricted_until: number }
  | { paired_peers: string[] };

/** A switch that the operator flipped, and the configured value that it overrides (contract 01 §8.2). */
export interface SwitchRecord {
  value: boolean;
  configured: boolean;
}

/** A session of MCP, keyed by its id (contract 09 §7). */
export interface McpSessionRecord {
  /** Family of the paired session. */
  family: string;
  /** Parameters of its `initialize`, as JSON text. */
  params: string;
  /** When it began or was last taken up from here, epoch seconds. */
  at: number;
}

export type ChatTurnState = 'running' | 'done' | 'cancelled' | 'failed' | 'interrupted';

/**
 * A chat turn that outlives its socket, without its texts, keyed `turn:<id>` (contract 10 §1). Times are epoch seconds
 * with a fraction.
 */
export interface ChatTurnHead {
  id: string;
  /** Family of the session that asked. */
  family: string;
  client_turn_id: string | null;
  /** Null before the agent has made one. */
  session_id: string | null;
  profile: string | null;
  state: ChatTurnState;
  started_at: number;
  /** When it entered its present state; null while it runs. */
  ended_at: number | null;
  seq: number;
  /** The beginning of the answer, on one line. */
  preview: string;
  /** Approximate UTF-8 bytes of its records. */
  bytes: number;
  /** Number of its records of the question, of text and of tools. */
  questions: number;
  texts: number;
  tools: number;
  usage?: Record<string, unknown>;
  error?: string;
  truncated?: true;
  recovered?: true;
  /** The rest of it has not been fetched from the agent's history yet. */
  unasked?: true;
}

/** A call of a tool in a chat turn; `preview` holds its arguments, then its result. */
export interface ChatTool {
  id: string;
  name: string;
  state: 'running' | 'done' | 'failed';
  preview: string;
}

/**
 * Beside the head of a turn: its question and the answer in blocks of 32,768 characters (`question:<id>:<n>`,
 * `text:<id>:<n>`), as a value at the edge has 2 MB at most, and its tools in blocks of 16 (`tools:<id>:<n>`). Keyed
 * `followers`: sockets that receive the turns of their family (edge).
 */
export type ChatTurnRecord = { turn: ChatTurnHead } | { text: string } | { tools: ChatTool[] } | { sockets: string[] };

/** The freeze that is in effect, keyed `freeze` (contract 09 §3). `since` is epoch seconds. */
export interface FreezeRecord {
  frozen: true;
  since: number;
  /** Name of a device, or `operator`. */
  by: string;
  reason: string | null;
}

/** One entry of a ring, keyed by its slot. */
export interface RingRecord {
  /** Grows with every entry. */
  seq: number;
  /** The entry as JSON text. */
  json: string;
}

/** An open socket that survives the memory of the process. */
export interface SocketRecord {
  /** Family of its session. */
  family: string;
  typed_stream: boolean;
  /** When it authenticated, epoch milliseconds; records of older versions lack it. */
  since?: number;
  caller: {
    peer: {
      readonly address: string | null;
      readonly tls: boolean;
      readonly via: 'direct' | 'ingress' | 'edge' | 'secure-link' | 'reach';
    };
    key: string;
    transportHint: 'wss' | 'ws' | 'unknown';
    page?: { origin: string; isOwn: boolean };
  };
}

/**
 * A phone, on an open socket (keyed `socket:<socket id>`) or departed (`departed:<SHA-256 of session family and id>`;
 * `newest`, the one that reported last). Times are epoch milliseconds.
 */
export interface BridgeDeviceRecord {
  id: string;
  source: 'session' | 'payload' | 'socket';
  name: string;
  surface: string;
  form_factor: string;
  /** Family and prefix of its session. */
  family: string;
  prefix: string;
  /** Its last report as JSON text, shortened when it exceeds 64 KiB. */
  status: string;
  /** Null if it departed. */
  connected_at: number | null;
  last_seen_at: number;
}

/** An open socket whose phone moved to another one, keyed `socket:<socket id>`. */
export interface BridgeSupersededRecord {
  /** Id of the phone. */
  superseded: string;
}

/** Session family and id (`family:id`) of the active and the most recent phone, keyed `selection`. */
export interface BridgeSelectionRecord {
  active: string | null;
  recent: string | null;
}

/** A desktop on an open socket, keyed `socket:<socket id>`. Times are epoch milliseconds. */
export interface DesktopDeviceRecord {
  /** Its last status as JSON text; null before the first. */
  status: string | null;
  id: string;
  tools: string[];
  /** As JSON text. */
  hints: Partial<Record<'workspace' | 'active_editor', string>>;
  connected_at: number;
  last_seen_at: number;
}

/** A control session whose target is a desktop on an open socket, keyed `control:<socket id>`. */
export interface DesktopControlRecord {
  id: string;
  targetId: string;
  /** Family of the paired session that calls; no other may use the control session. */
  family: string;
  /** Name of that session's device, shown to the target. */
  deviceId: string;
  chatSession?: string;
  runId: string;
  profile?: string;
  /** Time of the last command, epoch milliseconds. */
  usedAt: number;
}

/** One entry of the media index, keyed `entry:<token>` (contract 04 §3.1). Times are epoch seconds. */
export interface MediaEntry {
  token: string;
  /** Where the bytes are: a real path on a host, a key at the edge. Never on the wire. */
  place: string;
  contentType: string;
  fileName: string | null;
  size: number;
  createdAt: number;
  expiresAt: number;
  lastAccessed: number;
  sensitive: boolean;
  /** True if the relay owns the bytes and removes them with their last token. */
  owned: boolean;
  /** Hash of an upload as received, hex. */
  sha256?: string;
  /** On a host: it came from the edge and survives the process (contract 12 §2). */
  kept?: true;
}

/** Bytes without an entry, keyed `orphan:<SHA-256 of the place>`: of an upload under way, or of a failed removal. */
export interface MediaOrphanRecord {
  /** `removableAt` is epoch seconds. */
  orphan: { place: string; removableAt: number };
}

type Scalar = string | number | boolean | null;
export type Metadata = Record<string, Scalar | Scalar[]>;

/** A text that only its receivers can open (contract 12 §4). */
export type SealedText = {
  /** Names the key of the sender. */
  by: string;
  /** Base64url. */
  content: string;
  /** The content key for each receiver, by the name of its key. */
  keys: Record<string, string>;
};

/** `phone.message` without the flag of a flush (contract 04 §5.2). Every key is always present. */
export type PhoneMessage = {
  message_id: string;
  chat_id: string | null;
  title: string | null;
  text: string;
  surfacing: string | null;
  reply_to: string | null;
  metadata: Metadata;
  /** Epoch milliseconds at which the relay accepted it. */
  sent_at: number;
  /** At the edge: the message, whose text here is a placeholder. */
  sealed?: SealedText;
};

/** An undelivered message. `seq` is its place in the order of arrival. */
export type QueuedMessage = {
  seq: number;
  message: PhoneMessage;
};

/** A phone's reply, as the agent reads it (contract 04 §5.5). */
export type Reply = {
  text: string;
  chat_id: string | null;
  reply_to: string | null;
  message_id: string;
  metadata: Metadata;
  /** Epoch milliseconds, the phone's own time if it sent one. */
  ts: number;
  /** Which of the message's answers this is, from 0 (contract 09 §10). */
  answer_index?: number;
  /** At the edge: the reply, whose text here is a placeholder. */
  sealed?: SealedText;
};

/** State of a message as home and the edge report it to each other (contract 12 §2). */
export type MessageStanding =
  | 'queued'
  | 'dropped'
  | 'expired'
  | 'cancelled'
  | 'sent'
  | 'shown'
  | 'withdrawn'
  | 'answered';

/** A message or a reply, and what became of it (contract 09 §1). `ts` is epoch milliseconds. */
export type PhoneHistoryItem = {
  /** Counts up over messages and replies. */
  seq: number;
  /** At the edge of a mirror, the `seq` that home has given it. */
  home?: number;
  message_id: string;
  chat_id: string | null;
  title: string | null;
  text: string;
  reply_to: string | null;
  ts: number;
  /** At the edge: the message or reply, whose text here is a placeholder. */
  sealed?: SealedText;
} & (
  | {
      kind: 'message';
      state: 'queued' | 'sent' | 'shown' | 'answered' | 'expired' | 'cancelled' | 'dropped';
      /** The answers to choose from, if it is a question (contract 09 §10). */
      question?: true;
      answers?: string[];
      /** A caller waits for the answer: only the first one counts, and a restart withdraws the question. */
      asked?: true;
      /** It was cancelled after a phone had got it. */
      withdrawn?: true;
      /** State of the message at the mirror's other relay; absent if that relay never had it. */
      peer?: MessageStanding;
      /** The other relay has the message to deliver. */
      away?: true;
      /** At home: it came to the edge without a seal, while home sealed its own messages. */
      unsealed?: true;
    }
  | {
      kind: 'reply';
      state: 'waiting' | 'taken';
      answer_index?: number;
      /** It arrived after its question was closed (contract 09 §7). */
      late?: 'answered' | 'withdrawn' | 'expired';
    }
);

/** An unread reply. `arrived` is epoch milliseconds. */
export type StoredReply = {
  seq: number;
  reply: Reply;
  arrived: number;
  bytes: number;
  /** End of a reader's lease on it (epoch milliseconds), unless the reader acknowledges it before. */
  lease?: { id: string; until: number };
};

/** A device's subscription to web push (RFC 8030), keyed `subscription:<SHA-256 of the endpoint>`. */
export interface PushSubscriptionRecord {
  endpoint: string;
  /** The device's public key and shared secret, base64url (RFC 8291). */
  p256dh: string;
  auth: string;
  /** Family of its session. */
  family: string;
  /** True if title and text may leave the relay. */
  content: boolean;
  /** At the edge: a device of home, whose pushes are signed with home's key. */
  home?: true;
  /** At home: its keys came from the edge, which may have made them up. */
  edge?: true;
  /** Grows with every subscription. */
  seq: number;
}

/** A push notice of a message, keyed `knock:<SHA-256 of the message id>`. Times are epoch milliseconds. */
export interface PushNoticeRecord {
  seq: number;
  message_id: string;
  chat_id: string | null;
  title: string | null;
  /** The first 120 characters. */
  text: string;
  question: boolean;
  /** Answers to choose from (contract 09 §10); absent without any. */
  answers?: string[];
  /** `read`: the message was seen, and devices that were notified remove their notification. */
  kind: 'message' | 'read';
  /** It announces the answer of the chat turn `message_id`, to the devices of this family only. */
  answer?: { family: string; session_id: string | null; state: Exclude<ChatTurnState, 'running'> };
  /** It warns this family's devices, and no others, that their session ends, epoch seconds (contract 11 §2). */
  ends?: { family: string; ends_at: number };
  /** When devices are notified, unless the message was shown before. */
  due: number;
  /** When the notice expires. */
  until: number;
  /** Devices still to be notified, by the key of their subscription; null before `due`. */
  pending: { subscription: string; attempts: number; at: number }[] | null;
  /** Devices that were notified. */
  told: string[];
}

/** The last call to a push service, in the list keyed `services`. `at` is epoch milliseconds. */
export interface PushServiceRecord {
  host: string;
  at: number;
  /** `gone`: it answered that the subscription no longer exists. `later`: the call is retried. */
  result: 'sent' | 'gone' | 'refused' | 'later';
  /** Status of its answer; null without one. */
  status: number | null;
  /** The reason if there was no answer. */
  error: string | null;
}

/** The key pair that identifies this relay to push services (RFC 8292), keyed `vapid`. */
export type PushRecord =
  | { subscription: PushSubscriptionRecord }
  | { knock: PushNoticeRecord }
  | { services: PushServiceRecord[] }
  | { vapid: { d: string; x: string; y: string } };

/** A chat that passed through the relay, keyed by the SHA-256 of its id (contract 04 §5.7). */
export interface ThreadRecord {
  chat_id: string;
  title: string | null;
  message_id: string | null;
  /** Epoch milliseconds. */
  at: number;
  /** Grows with every use. */
  seq: number;
}

/**
 * Checks of API bearers of voice (contract 05 §2): a valid bearer, keyed by the hash of the API server's URL and the
 * bearer; failures of a caller, keyed by the hash of its limit key; whether the API server accepts any bearer. Times
 * are epoch milliseconds.
 */
export type VoiceCallerRecord =
  | { until: number }
  | { caller: string; failures: number[] }
  | { open: boolean; until: number };

/**
 * The route of a session through the broker, keyed by the first 32 hex digits of the session token's SHA-256 (contract 08
 * §6.4). The one secret that is stored as it is, because it is handed out again. `expires_at` is epoch seconds.
 */
export interface ReachRouteRecord {
  route: {
    family: string;
    session_sha256: string;
    broker_url: string;
    host_id: string;
    token: string;
    device_id_hash: string;
    expires_at: number;
  };
}

/** A route, keyed the same way, whose end the broker has not acknowledged. */
export interface ReachRevocationRecord {
  revoke: { broker_url: string; host_id: string };
}

/**
 * Keyed `broker`: a broker that accepts only single-use bootstrap credentials. Checked again after `until`, epoch
 * seconds.
 */
export interface ReachBrokerRecord {
  broker_url: string;
  max_uses: 1;
  until: number;
}

export type ReachRecord = ReachRouteRecord | ReachRevocationRecord | ReachBrokerRecord;

/**
 * State of a Reach broker (contract 08 §7.1), which is not a store of the relay: a credential or a consumed one by the
 * digest of its token, or a used connection ID (edge). Times are epoch seconds; only digests are kept.
 */
export type BrokerRecord =
  | {
      host_id: string;
      token_sha256: string;
      expires_at: number;
      uses_left: number | null;
      kind: 'bootstrap' | 'route';
      credential_id: string;
      device_id_hash: string | null;
    }
  | { token_sha256: string; expires_at: number; host_id?: string; spent_until?: number }
  | { connection_id: string; expires_at: number };

/** A place in the ops of one side: `epoch` names the start of the process that made the op with that number. */
export interface MirrorCursor {
  epoch: string;
  oseq: number;
}

/** An op for the other side, or the last record of a session that it got. */
export interface MirrorOpRecord extends MirrorCursor {
  kind: string;
  body: Record<string, unknown>;
}

/**
 * Keys by which home and the edge know each other: at home the edge's origin and home's private key, at the edge home's
 * public key.
 */
export interface MirrorPeerRecord {
  url?: string;
  /** PKCS #8, base64url. */
  private_key?: string;
  /** Uncompressed point of P-256, base64url. */
  public_key: string;
  /** At home, the secret from which the first credentials of devices for the edge are derived; base64url. */
  mailbox_secret?: string;
}

/** At home, its key to open what is sealed for it; both parts are base64url. */
export interface MirrorBoxRecord {
  box: { private_key: string; public_key: string };
}

/** At home, the public key of a device (base64url), and whether the device has home's key. */
export interface DeviceBoxRecord {
  key: string;
  /** Its previous key: messages sealed with it may still be in transit. */
  before?: string;
  device_id: string;
  knows_home: boolean;
}

/**
 * At home, an upload that a device made at the edge, keyed `upload:<token>`. Times are epoch seconds. `place` is a path,
 * once home has the bytes; `told` once the edge knows that, or of the refusal.
 */
export interface MirrorUploadRecord {
  token: string;
  file_name: string | null;
  content_type: string;
  size: number;
  sha256: string;
  created_at: number;
  expires_at: number;
  family: string;
  place?: string;
  /** Content of the seal of the upload at `place`. */
  opened?: { file_name: string; content_type: string; size: number };
  /** Why home keeps nothing of it. */
  refused?: string;
  told?: true;
}

/** Records of the mirror: changes under way, keys and cursors (contract 12 §2). */
export type MirrorRecord =
  | MirrorOpRecord
  | MirrorCursor
  | MirrorPeerRecord
  | MirrorUploadRecord
  /** At home, the chain of a device's credentials for the edge, and whether the device has received them. */
  | { chain: number; taken: boolean }
  | MirrorBoxRecord
  | DeviceBoxRecord
  /**
   * A session that ended at the edge, or a family that paired there and came home. It must not come back before this
   * time, epoch seconds.
   */
  | { until: number }
  /**
   * At home, a code that is valid at the edge only: its policy, as `POST /pairing/register` takes it. Epoch seconds.
   */
  | { policy: object; until: number }
  /** When home was last in contact, epoch seconds. */
  | { heard: number }
  /** At the edge, origins of home's pages (newest last), or those at which a page finds home. */
  | { origins: string[] }
  /** The socket on which home is linked. */
  | { socket: string; since: number; listening?: boolean };
