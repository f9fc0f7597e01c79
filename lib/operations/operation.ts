import type { GenericSchema } from 'valibot';
import type { Session } from '../sessions/session.ts';
import type { Actor } from './actor.ts';

/** Hints for callers of an operation; MCP shows them as annotations (contract 09 §7). */
export interface Hints {
  /** It may undo or overwrite something, or cannot be taken back. */
  destructive?: true;
  /** A repetition changes nothing more. */
  idempotent?: true;
  /** It reaches people or services beyond the owner's own devices. */
  openWorld?: true;
}

/** The description of an operation for every door (contract 09 §9). */
export interface OperationRow {
  /** `phone_send`; names an MCP tool, and the operation in errors. */
  readonly name: string;
  /** A few words for people. */
  readonly title: string;
  /** One or two sentences for a model: what it does, and what it returns. */
  readonly description: string;
  /** The grant that a session needs; null for any session. */
  readonly grant: string | null;
  readonly effect: 'read' | 'act';
  readonly hints?: Hints;
  /** It goes on while the relay is frozen (contract 09 §3). */
  readonly ignoresFreeze?: true;
  /**
   * The domain that it calls refuses and ends it while the relay is frozen, and records that: no other gate is needed.
   */
  readonly isGated?: true;
  /** The answer contains text that others wrote: of a screen, a notification, a page (contract 09 §7). */
  readonly untrusted?: true;
  /** An object schema. Doors with typed input (MCP, the companion) parse by it. */
  readonly input: GenericSchema;
}

/** The call of an operation. */
export interface Call {
  actor: Actor;
  /** Aborted when the caller leaves. */
  signal: AbortSignal;
  /** Tells a caller that waits that the call goes on. */
  progress?(message: string): void;
}

/** The outcome of a call. */
export interface Outcome {
  /** The answer, an object, as JSON text. */
  json: string;
  /** The device answered that it, or its owner, refused or failed. */
  failed?: true;
}

/** A row that can be carried out. `Input` is the output of its schema. */
export interface Operation<Input = unknown> extends OperationRow {
  /** The JSON schema that a device advertises for a tool of its own, in place of `input`. */
  readonly advertised?: Readonly<Record<string, unknown>>;
  /** True if it can be offered now, to this session: its device is connected, for example. */
  isAvailable?(session: Session): boolean;
  /** @throws RelayError */
  run(input: Input, call: Call): Promise<Outcome>;
}
