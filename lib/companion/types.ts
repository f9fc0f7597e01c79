/** A `bridge.command` as it arrived (contract 03 §1). */
export interface PhoneCommand {
  requestId: string;
  method: 'GET' | 'POST';
  path: string;
  params: Record<string, unknown>;
  /** Where the arguments are, for GET too: query values arrive as strings (contract 03 §4.1). */
  body: Record<string, unknown>;
  /** Aborted when its socket has ended: the caller has been told a failure, and nothing may be done any more. */
  gone?: AbortSignal;
}

/** What goes back as `bridge.response`. `blocked` marks a refusal of the safety pipeline. */
export interface PhoneAnswer {
  status: number;
  result?: unknown;
  error?: string;
  blocked?: boolean;
}

/** One question to the person at the phone. Several may be open at once, told apart by `requestId`. */
export interface Question {
  requestId: string;
  /** The route verb (`send_sms`) or the destructive words (`buy`), lower-case. */
  verb: string;
  title: string;
  detail: string;
  /** How long an answer is waited for; silence is a denial. */
  timeoutMs: number;
  /** Aborted when the answer means nothing any more, before that time is up. */
  gone?: AbortSignal;
}

/** `dontAskAgain` counts only together with `allowed`: it adds the verbs to the trusted ones (contract 03 §8.3). */
export type Decision = boolean | { allowed: boolean; dontAskAgain?: boolean };

/** Asks the person at the phone; resolves false on denial or timeout. A rejection is a denial too. */
export type Confirm = (question: Question) => Promise<Decision>;

/**
 * Whether the grants of the current relay connection can be used at all: `bound` only when a policy of schema version 1
 * and of this install was read for it. Everything else denies every capability (contract 03 §8.2).
 */
export type PolicyState = 'bound' | 'unbound' | 'unavailable' | 'invalid';

/** Everything the owner decides, kept by the settings store of the link (contract 03 §8.6). */
export interface SafetySettings {
  masterEnabled: boolean;
  /** Messages of the agent are wanted: the phone subscribes to them (contract 04 §5). */
  messagesEnabled: boolean;
  flavor: 'sideload' | 'store';
  unattended: boolean;
  /** Packages, compared exactly. */
  blocklist: string[];
  destructiveVerbs: string[];
  /** `bridge_trusted_destructive_verbs`: lower-case, trimmed words and route verbs. */
  trustedVerbs: string[];
  /** 5..120. */
  autoDisableMinutes: number;
  /** 10..60. */
  confirmationTimeoutSeconds: number;
  policy: PolicyState;
  /**
   * Capability id -> epoch ms, null = unlimited, absent = not granted. A permanent capability is granted with null only:
   * a number there makes the whole policy malformed, which denies everything.
   */
  capabilities: Record<string, number | null>;
}

/** Keeps the settings. `get` shows a change as soon as `update` was called; its promise is about durability. */
export interface SettingsStore {
  get(): SafetySettings;
  update(change: Partial<SafetySettings>): Promise<void>;
  /** Returns the end of the subscription. */
  onChange(listener: (settings: SafetySettings) => void): () => void;
}

/** One row of the phone's own log (contract 03 §8.8). No control characters in any text. */
export interface ActivityEntry {
  /** Arrival, epoch ms. */
  at: number;
  requestId: string;
  method: string;
  /** At most 25 characters. */
  path: string;
  /** What was asked, at most 80 characters; never typed text or message bodies. */
  summary: string;
  /** `executed`, `confirmed`, `trusted`, `error`, or the reason of the refusal (a `Refusal['kind']`). */
  decision: string;
  status: number;
  outcome: 'success' | 'blocked' | 'failed';
  /** What came of it, at most 140 characters. */
  resultText?: string;
  thumbnailToken?: string;
  durationMs: number;
  /** The phone's own idea, which no frame asked for: a return by itself (contract 03 §8.8). */
  own: boolean;
}

/** The phone's side of the bridge: gates, handlers, status, log. One answer for every command. */
export interface Phone {
  /** Runs a command through the pipeline (contract 03 §8.1). Never rejects. */
  handle(command: PhoneCommand): Promise<PhoneAnswer>;
  /** Payload of `bridge.status` (contract 03 §1.3). */
  status(): Record<string, unknown>;
  /** Newest first, at most 100. */
  activity(): ActivityEntry[];
  onActivity(listener: (entry: ActivityEntry) => void): () => void;
  /** Called when a status should go out at once: master or unattended toggle flipped, auto-disable ran out. */
  onStatusChange(listener: () => void): () => void;
  /** Ends timers and waits. Commands in flight are answered. */
  close(): void;
}

/** A file for `POST /media/upload`. */
export interface UploadFile {
  name: string;
  type: string;
  bytes: Uint8Array;
}

/** Uploads with the phone's own bearer (contract 03 §7). Gives the token, or the status that is not 200. */
export type Upload = (file: UploadFile) => Promise<{ token: string } | { status: number }>;

/** What an attachment names: a media token or a path on the relay's host (contract 03 §5, Attachments). */
export type MediaSource =
  | { token: string; contentType?: string; fileName?: string }
  | { path: string; contentType?: string; fileName?: string };

/** Fetches an attachment with the phone's own bearer; rejects when it cannot be had. */
export type FetchMedia = (source: MediaSource) => Promise<UploadFile>;
