import type { ServerSections } from '../../servers.ts';

import type { Tuning } from '../tuning.ts';
import type { Usage } from '../usage.ts';

/**
 * A report of a realtime provider, whatever it calls it (contract 06 §9). Texts are redacted and may be shown to a client.
 * A response id is the provider's, or one that the adapter makes up for a provider that sends none.
 */
export type ProviderEvent =
  /**
   * The provider knows its session. May come more than once; `model` is the one that it really uses, and after `expiresIn`
   * (milliseconds) it ends the session.
   */
  | { type: 'ready'; model?: string; expiresIn?: number }
  | { type: 'transcriptDelta'; text: string }
  /** Once per utterance; empty when nothing was understood. */
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
  /** Once per `callId`, before the end of its response. `args` is JSON text that nobody has checked. */
  | { type: 'functionCall'; responseId: string; callId: string; name: string; args: string }
  /**
   * `reason` and `message` say in short and in words why a response failed or is incomplete; `retryAfter` is in seconds, of
   * one that met a rate limit.
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
  /** The session goes on without its instructions and tools: nobody may hear it. `setting` is its name, else `session`. */
  | { type: 'settingsRefused'; setting: string; message: string }
  /** Once, and last. `idle`: the provider ended the session because of its age or because nobody spoke. */
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
  /** To be said word for word, where the provider has a primitive for that; others go by the instructions. */
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
  /** Adds a message of the user; the response to it is asked for by `requestResponse`. */
  sendText(text: string): void;
  cancelResponse(): void;
  sendToolResult(callId: string, result: object): void;
  /** Adds to the history what was said elsewhere. Nothing is answered. */
  appendContext(role: 'assistant' | 'user', text: string): void;
  /**
   * Cuts an answer in the history to what was heard, which is about `heard` in words; a provider without that gets them in
   * a message of context.
   */
  truncate(itemId: string, contentIndex: number, audioEndMs: number, heard: string): void;
  requestResponse(request?: ResponseRequest): void;
  /**
   * Stops reading where the platform can. Events that were already read still arrive; the loss of the connection may go
   * unnoticed until reading goes on.
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
  /** Optional settings; the session goes on without those that the provider refuses. */
  tuning?: Tuning;
  /** The token store of xAI that the profile names, instead of the configured one. */
  oauthPath?: string;
  /** Keys and base URLs of the configuration (contract 05 §18). */
  servers?: ServerSections;
  /** Drops the connection, without any further event. */
  signal: AbortSignal;
}

/**
 * Opens a session within 12 seconds (contract 06 §9). Events may arrive before the caller has resumed from the promise.
 * @throws RelayError whose message may be shown to a client. No event is reported then.
 */
export type ConnectProvider = (
  options: ProviderOptions,
  onEvent: (event: ProviderEvent) => void,
) => Promise<ProviderSession>;
