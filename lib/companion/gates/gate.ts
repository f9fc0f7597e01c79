import type { Clock } from '../../kit/clock.ts';
import type { Log } from '../../log.ts';
import type { AutoDisable } from '../auto-disable.ts';
import type { Device } from '../device.ts';
import type { EventRing } from '../events.ts';
import type { Capability, SettingsStore } from '../safety-settings.ts';
import type { Confirm, FetchMedia, PhoneCommand, Upload } from '../types.ts';
import type { Refusal } from './refusals.ts';

/** Context of gates and handlers. */
export interface Environment {
  device: Device;
  settings: SettingsStore;
  clock: Clock;
  log: Log;
  /** The safety manager; without it, everything that needs a confirmation is refused. */
  confirm?: Confirm;
  /** Without it `/screenshot` answers 503. */
  upload?: Upload;
  /** Without it attachments cannot be fetched. */
  fetchMedia?: FetchMedia;
  /** Limit of one capture attempt, ms. */
  captureTimeoutMs: number;
  events: EventRing;
  autoDisable: AutoDisable;
  /** Runs screen captures one at a time. */
  serially<T>(task: () => Promise<T>): Promise<T>;
  /** Aborted when the phone is closed. */
  closed: AbortSignal;
}

/** One command on its way through the safety pipeline. */
export interface CommandCall {
  command: PhoneCommand;
  route: CommandRoute;
  args: Record<string, unknown>;
  /** Monotonic ms. */
  receivedAt: number;
  /** Milliseconds after `receivedAt` for which the relay waits; absent for the usual 30 s. */
  relayWaits?: number;
  /** `confirmed` when a person allowed it, `trusted` when trusted verbs made the question unnecessary. */
  consent: 'none' | 'trusted' | 'confirmed';
  /** The destructive text that was already allowed, so that nobody is asked twice. */
  allowedText: string | null;
  env: Environment;
}

/** Returns the body of a 200, or throws a `CommandFailure`. */
export type Handler = (call: CommandCall) => Record<string, unknown> | Promise<Record<string, unknown>>;

/** One row of the command table. */
export interface CommandRoute {
  method: 'GET' | 'POST';
  path: string;
  /** null for exempt routes. */
  capability: Capability | null;
  run: Handler;
  /** Answers right after the capability gate: `/ping` and `/setup`. */
  ungated?: boolean;
  /** Runs even while the master toggle is off. */
  bypassesMaster?: boolean;
  /** Runs regardless of the foreground app. */
  bypassesBlocklist?: boolean;
  /** Runs without waking or unlocking the screen. */
  readOnly?: boolean;
  /** Not written to the activity log. */
  quiet?: boolean;
  /** Leaves the companion app, so auto-return applies (contract 03 §8.8). */
  leaves?: boolean;
  /** The text that the destructive gate checks; null for a command without text. */
  destructiveText?: (call: CommandCall) => Promise<string | null>;
  /** One line for the log and for questions, without typed or private text. */
  summary?: (args: Record<string, unknown>) => string;
}

export type Verdict = { kind: 'pass' } | Refusal;

export const PASS: Verdict = { kind: 'pass' };

/** One step of the safety pipeline (contract 03 §8.1). */
export type SafetyGate = (call: CommandCall) => Verdict | Promise<Verdict>;

/** Runs the gates in order and returns the first refusal. */
export async function firstRefusal(gates: readonly SafetyGate[], call: CommandCall): Promise<Verdict> {
  for (const gate of gates) {
    const verdict = await gate(call);
    if (verdict.kind !== 'pass') return verdict;
  }
  return PASS;
}

/** Thrown by a handler to answer with a status other than 200. */
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

/** Thrown when a handler finds a refusal itself: blocked target packages, routes that always ask. */
export class Refused extends Error {
  readonly refusal: Refusal;

  constructor(refusal: Refusal) {
    super(refusal.kind);
    this.name = 'Refused';
    this.refusal = refusal;
  }
}

/** @throws Refused unless the verdict is a pass. */
export function throwIfRefused(verdict: Verdict): void {
  if (verdict.kind !== 'pass') throw new Refused(verdict);
}
