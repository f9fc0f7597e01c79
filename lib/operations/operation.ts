import type { GenericSchema } from 'valibot';
import type { Session } from '../sessions/session.ts';
import type { Actor } from './actor.ts';

/** Hints for callers of an operation; MCP shows them as annotations (contract 09 §7). */
export interface Hints {
  /** It may undo or overwrite something, or be irreversible. */
  destructive?: true;
  /** A repetition has no further effect. */
  idempotent?: true;
  /** It reaches people or services beyond the owner's own devices. */
  openWorld?: true;
}

/** The description of an operation, common to all doors (contract 09 §9). */
export interface OperationRow {
  /** `phone_send`; names an MCP tool, and the operation in errors. */
  readonly name: string;
  /** A few words for display. */
  readonly title: string;
  /** One or two sentences for a model: what it does, and what it returns. */
  readonly description: string;
  /** The grant that a session needs; null for any session. */
  readonly grant: string | null;
  readonly effect: 'read' | 'act';
  readonly hints?: Hints;
  /** Allowed while the relay is frozen (contract 09 §3). */
  readonly ignoresFreeze?: true;
  /** The domain itself refuses and ends it while the relay is frozen, and records that, so the gate is not needed. */
  readonly isGated?: true;
  /** The answer contains text by others, such as a screen, a notification or a page (contract 09 §7). */
  readonly untrusted?: true;
  /** An object schema. Doors with typed input (MCP, the companion) parse by it. */
  readonly input: GenericSchema;
}

/** The call of an operation. */
export interface Call {
  actor: Actor;
  /** Aborted when the caller disconnects. */
  signal: AbortSignal;
  /** Sends a waiting caller a sign of progress. */
  progress?(message: string): void;
}

/** The outcome of a call. */
export interface Outcome {
  /** The answer, a JSON object, as text. */
  json: string;
  /** The device answered that it failed, or that it or its owner refused. */
  failed?: true;
}

/** A row that can be run. `Input` is the output of its schema. */
export interface Operation<Input = unknown> extends OperationRow {
  /** The JSON schema that a device advertises for its own tool, in place of `input`. */
  readonly advertised?: Readonly<Record<string, unknown>>;
  /** True if it can be offered to this session now, for example because its device is connected. */
  isAvailable?(session: Session): boolean;
  /** @throws RelayError */
  run(input: Input, call: Call): Promise<Outcome>;
}
