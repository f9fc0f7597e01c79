import type { ServerSections } from '../../servers.ts';

import type { Tuning } from '../tuning.ts';
import type { Usage } from '../usage.ts';

/**
 * An event of a realtime provider, independent of the provider's names (contract 06 §9). Texts are redacted and may be shown
 * to a client. A response id is the provider's, or one made up by the adapter for a provider without ids.
 */
export type ProviderEvent =
  /**
   * The session is ready. May come more than once; `model` is the effective one, and after `expiresIn` (milliseconds) the
   * provider ends the session.
   */
  | { type: 'ready'; model?: string; expiresIn?: number }
  | { type: 'transcriptDelta'; text: string }
  /** Once per utterance; empty if nothing was understood. */
  | { type: 'transcriptFinal'; text: string }
  /** The usage of one response or one transcript. */
  | { type: 'usage'; usage: Usage }
  | { type: 'transcriptFailed' }
  /** Once per response, before its other events. */
  | { type: 'responseStarted'; responseId: string }
  | { type: 'textDelta'; responseId: string; text: string }
  /** Whole 16-bit samples at the session's rate. */
  | { type: 'audioDelta'; responseId: string; itemId?: string; contentIndex?: number; pcm: Uint8Array }
  | { type: 'audioDone'; responseId: string }
  /** Once per `callId`, before the end of its response. `args` is unchecked JSON text. */
  | { type: 'functionCall'; responseId: string; callId: string; name: string; args: string }
  /**
   * `reason` (short) and `message` explain why a response failed or is incomplete; `retryAfter` is in seconds, for a rate
   * limit.
   */
  | {
      type: 'responseDone';
      responseId: string | null;
      status?: string;
      reason?: string;
      message?: string;
      retryAfter?: number;
    }
  /** Harmless, for the event log. */
  | { type: 'notice'; message: string }
  /** `retryAfter` in seconds, of a rate limit. */
  | { type: 'error'; message: string; retryAfter?: number }
  /**
   * The session continues without its instructions and tools, so nobody may hear it. `setting` is its name, else `session`.
   */
  | { type: 'settingsRefused'; setting: string; message: string }
  /** Once, and last. `idle`: the provider ended the session because of its age or inactivity. */
  | { type: 'closed'; idle: boolean; message?: string };

/** One of the functions that a provider may call (contract 06 §6.2). */
export interface ProviderTool {
  name: string;
  description: string;
  /** JSON schema. */
  parameters: Record<string, unknown>;
}

/** The parameters of a requested response. */
export interface ResponseRequest {
  /** For this response only. */
  instructions?: string;
  /** Text to speak word for word, if the provider has a primitive for that; others use the instructions. */
  exactText?: string;
}

/** An open session with a realtime provider. All methods are without effect once it has closed. */
export interface ProviderSession {
  /**
   * Appends to the utterance, resampled from `rate` (hertz) to the session's rate.
   * @throws RelayError `invalid` for half a sample, and for a rate outside 8000 to 96000.
   */
  sendAudio(pcm: Uint8Array, rate: number): void;
  /** Ends the utterance. Without audio since the last commit or clear it does nothing. */
  commitAudio(): void;
  clearAudio(): void;
  /** Adds a message of the user. `requestResponse` requests the response to it. */
  sendText(text: string): void;
  cancelResponse(): void;
  sendToolResult(callId: string, result: object): void;
  /** Adds to the history words that were said elsewhere. They are not answered. */
  appendContext(role: 'assistant' | 'user', text: string): void;
  /**
   * Cuts an answer in the history to the part that was played, which is about `played` in words; a provider without that
   * ability gets them in a message of context.
   */
  truncate(itemId: string, contentIndex: number, audioEndMs: number, played: string): void;
  requestResponse(request?: ResponseRequest): void;
  /**
   * Stops reading if the platform can. Events that were already read still arrive; a lost connection may go unnoticed until
   * reading resumes.
   */
  pause(): void;
  resume(): void;
  /** Ends the session without any further event. */
  close(): void;
}

export interface ProviderOptions {
  model: string;
  voice: string;
  /** Hertz of the audio in both directions. */
  sampleRate: number;
  /** Never logged. */
  instructions: string;
  tools: readonly ProviderTool[];
  /** Further headers of the handshake, from the host's configuration. */
  headers?: Readonly<Record<string, string>>;
  /** Optional settings. The session continues without those that the provider refuses. */
  tuning?: Tuning;
  /** The token store of xAI that the profile sets, in place of the configured one. */
  oauthPath?: string;
  /** Keys and base URLs of the configuration (contract 05 §18). */
  servers?: ServerSections;
  /** Drops the connection, without any further event. */
  signal: AbortSignal;
}

/**
 * Opens a session within 12 seconds (contract 06 §9). Events may arrive before the caller has resumed from the promise.
 * @throws RelayError whose message may be shown to a client, in which case no event is reported.
 */
export type ConnectProvider = (
  options: ProviderOptions,
  onEvent: (event: ProviderEvent) => void,
) => Promise<ProviderSession>;
