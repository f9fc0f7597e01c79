/** A `bridge.command` as received (contract 03 §1). */
export interface PhoneCommand {
  requestId: string;
  method: 'GET' | 'POST';
  path: string;
  /** The arguments, for GET too: query values arrive here as strings (contract 03 §4.1). */
  body: Record<string, unknown>;
  /**
   * Aborted when the command's socket closes, or with the reason of `bridge.cancel`: its caller has been told that the
   * command failed, so it must not act any more.
   */
  gone?: AbortSignal;
  /**
   * Tells the relay that the owner is asked. Resolves with the milliseconds since the arrival of the command for which
   * the relay waits; null if the relay does not support waiting.
   */
  ownerAsked?(): Promise<number | null>;
}

/** Becomes a `bridge.response`. `blocked` marks a refusal by the safety pipeline. */
export interface PhoneAnswer {
  status: number;
  result?: unknown;
  error?: string;
  blocked?: boolean;
}

/** A confirmation shown to the person at the phone. Several may be open at once, keyed by `requestId`. */
export interface Question {
  requestId: string;
  /** The route verb (`send_sms`) or the destructive words (`buy`), lower-case. */
  verb: string;
  title: string;
  detail: string;
  /**
   * The command that asks, such as `POST /tap_text`, or the notification rule, which asks each time; the app concerned,
   * and the effect there, such as `taps it`.
   */
  subject?: { app: string; effect: string } & ({ command: string } | { rule: string });
  /** Milliseconds to wait for a decision; silence is a denial. */
  timeoutMs: number;
  /** Aborted when a decision no longer matters, before the timeout. */
  gone?: AbortSignal;
}

/** `dontAskAgain` only counts together with `allowed`, and makes the verbs trusted (contract 03 §8.3). */
export type Decision = boolean | { allowed: boolean; dontAskAgain?: boolean };

/** Asks the person at the phone. Resolves to false on denial or timeout; a rejection is a denial too. */
export type Confirm = (question: Question) => Promise<Decision>;

/** One row of the phone's activity log (contract 03 §8.8). No text in it contains control characters. */
export interface ActivityEntry {
  /** Time of arrival, epoch ms. */
  at: number;
  requestId: string;
  method: string;
  /** At most 25 characters. */
  path: string;
  /** Summary of the command, at most 80 characters; never typed text or message bodies. */
  summary: string;
  /** `executed`, `confirmed`, `trusted`, `error`, or the reason of the refusal (a `Refusal['kind']`). */
  decision: string;
  status: number;
  outcome: 'success' | 'blocked' | 'failed';
  /** At most 140 characters. */
  resultText?: string;
  thumbnailToken?: string;
  durationMs: number;
  /** True if the phone itself started it (auto-return), not a frame from the relay (contract 03 §8.8). */
  own: boolean;
}

/** A file for `POST /media/upload`. */
export interface UploadFile {
  name: string;
  type: string;
  bytes: Uint8Array;
}

/** Uploads with the phone's own bearer (contract 03 §7). Resolves to the token, or to the status if it is not 200. */
export type Upload = (file: UploadFile) => Promise<{ token: string } | { status: number }>;

/** Target of an attachment: a media token or a path on the relay's host (contract 03 §5, Attachments). */
export type MediaSource =
  | { token: string; contentType?: string; fileName?: string }
  | { path: string; contentType?: string; fileName?: string };

/** Fetches an attachment with the phone's own bearer; rejects when it is not available. */
export type FetchMedia = (source: MediaSource) => Promise<UploadFile>;
