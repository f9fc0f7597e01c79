import type { LinkState } from '../lib/companion/link/state.ts';
import type { Question, SafetySettings } from '../lib/companion/types.ts';
import type { Answer, OpenQuestion } from './companion-ask.ts';

/** One command that was answered, as it is shown. */
export interface CommandRow {
  requestId: string;
  method: string;
  path: string;
  /** What was asked; never what was typed. */
  summary: string;
  /** `executed`, `confirmed`, or why not. */
  decision: string;
  status: number;
  /** Milliseconds. */
  took: number;
}

/** What `svc companion run` shows, in whichever form. */
export interface View {
  state(state: LinkState): void;
  command(row: CommandRow): void;
  asked(question: OpenQuestion): void;
  answered(question: Question, answer: Answer): void;
  settings(settings: SafetySettings): void;
  notice(text: string): void;
  /** Leaves the terminal as it was. */
  close(): void;
}
