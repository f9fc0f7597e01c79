import type { Clock } from '../../kit/clock.ts';
import type { Log } from '../../log.ts';
import type { AutoDisable } from '../auto-disable.ts';
import type { Capability } from '../capabilities.ts';
import type { Device } from '../device.ts';
import type { EventRing } from '../events.ts';
import type { Confirm, FetchMedia, PhoneCommand, SettingsStore, Upload } from '../types.ts';

/** What gates and handlers work with. */
export interface Environment {
  device: Device;
  settings: SettingsStore;
  clock: Clock;
  log: Log;
  /** The safety manager; without one nothing destructive happens. */
  confirm?: Confirm;
  upload?: Upload;
  fetchMedia?: FetchMedia;
  /** Limit of one capture attempt, ms. */
  captureTimeoutMs: number;
  events: EventRing;
  autoDisable: AutoDisable;
  /** Runs one capture at a time. */
  serially<T>(task: () => Promise<T>): Promise<T>;
  /** Aborted when the phone is closed. */
  closed: AbortSignal;
}

/** One command on its way through the pipeline. */
export interface Call {
  command: PhoneCommand;
  route: Route;
  args: Record<string, unknown>;
  /** On the monotonic clock, ms. */
  receivedAt: number;
  /** `confirmed` when a person allowed it, `trusted` when a trusted verb made the question unnecessary. */
  consent: 'none' | 'trusted' | 'confirmed';
  /** The destructive text that was allowed, so that nobody is asked twice. */
  allowedText: string | null;
  env: Environment;
}

/** Gives the body of a 200, or throws a `CommandFailure`. */
export type Handler = (call: Call) => Record<string, unknown> | Promise<Record<string, unknown>>;

/** One row of the command table. */
export interface Route {
  method: 'GET' | 'POST';
  path: string;
  /** null for the exempt ones. */
  capability: Capability | null;
  run: Handler;
  /** Answers right after the capability gate: `/ping` and `/setup`. */
  ungated?: boolean;
  /** Runs while the master toggle is off. */
  bypassesMaster?: boolean;
  /** Runs whatever is in the foreground. */
  bypassesBlocklist?: boolean;
  /** Needs no wake and no unlocked screen. */
  readOnly?: boolean;
  /** Not in the phone's log. */
  quiet?: boolean;
  /** Leaves the companion, which comes back by itself when nothing follows (contract 03 §8.8). */
  leaves?: boolean;
  /** What the destructive gate reads; null when there is nothing to read. */
  destructiveText?: (call: Call) => Promise<string | null>;
  /** One line for the log and for questions, without typed or private text. */
  summary?: (args: Record<string, unknown>) => string;
}

/** Why a command does not run: one arm per reason (contract 03 §8.1). */
export type Refusal =
  | { kind: 'unknown-command' }
  | { kind: 'method-not-allowed' }
  | { kind: 'sideload-only'; flavor: string }
  | { kind: 'capability-denied'; capability: Capability }
  | { kind: 'capability-expired'; capability: Capability }
  | { kind: 'policy-unbound'; capability: Capability }
  | { kind: 'policy-unavailable'; capability: Capability }
  | { kind: 'policy-invalid'; capability: Capability }
  | { kind: 'accessibility-off' }
  | { kind: 'bridge-disabled' }
  | { kind: 'blocked-package'; package: string }
  | { kind: 'blocked-share-target'; package: string }
  | { kind: 'denied'; detail: string }
  | { kind: 'no-safety-manager' }
  | { kind: 'keyguard-blocked' };

export type Verdict = { kind: 'pass' } | Refusal;

/** One step of the pipeline. */
export type Gate = (call: Call) => Verdict | Promise<Verdict>;

export const PASS: Verdict = { kind: 'pass' };

/** A handler's way to end a command with something else than 200. */
export class CommandFailure extends Error {
  readonly status: number;
  readonly body: Record<string, unknown>;

  constructor(status: number, error: string, more: Record<string, unknown> = {}) {
    super(error);
    this.name = 'CommandFailure';
    this.status = status;
    this.body = { error, ...more };
  }
}

/** A refusal that is found inside a handler: target packages and routes that always ask. */
export class Refused extends Error {
  readonly refusal: Refusal;

  constructor(refusal: Refusal) {
    super(refusal.kind);
    this.name = 'Refused';
    this.refusal = refusal;
  }
}
