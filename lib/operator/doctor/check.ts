import type { ProbeResult } from '../../host/probe.ts';

export type CheckStatus = 'ok' | 'warn' | 'error';

/** One verdict of the doctor. `next` is the way out, for whatever is not `ok`; it is no part of the JSON. */
export interface Check {
  id: string;
  status: CheckStatus;
  /** One line. May hold words of the service that was asked: make it printable before it goes to a terminal. */
  summary: string;
  next?: string;
}

/** The way out where something was not found out in time. */
export const MORE_TIME = 'Run this again with more time, such as --timeout 10.';

export const ok = (id: string, summary: string): Check => ({ id, status: 'ok', summary });
export const warn = (id: string, summary: string, next: string): Check => ({ id, status: 'warn', summary, next });
export const fail = (id: string, summary: string, next: string): Check => ({ id, status: 'error', summary, next });

/** What came back, in a few words: for the sentence that says what is wrong. */
export const outcome = ({ status, error }: ProbeResult): string => error ?? `answered ${status}`;
