import type { LinkState } from '../lib/companion/link/state.ts';
import type { OutgoingReply, ReceivedMessage, Surface } from '../lib/companion/messages.ts';
import type { SafetySettings } from '../lib/companion/safety-settings.ts';
import type { ActivityEntry, Question } from '../lib/companion/types.ts';
import type { Answer, OpenQuestion } from './companion-ask.ts';

/** One command that was answered, as it is shown; `took` is milliseconds. */
export type CommandRow = Pick<ActivityEntry, 'requestId' | 'method' | 'path' | 'summary' | 'decision' | 'status'> & {
  took: number;
};

/** What `svc companion run` shows, in whichever form. */
export interface View {
  state(state: LinkState): void;
  command(row: CommandRow): void;
  asked(question: OpenQuestion): void;
  answered(question: Question, answer: Answer): void;
  message(message: ReceivedMessage, surface: Surface): void;
  /** All messages that had waited are here. */
  backlog(count: number): void;
  /** The relay has an answer of this phone. */
  replied(reply: OutgoingReply): void;
  subscribed(isSubscribed: boolean): void;
  settings(settings: SafetySettings): void;
  notice(text: string): void;
  /** Leaves the terminal as it was. */
  close(): void;
}
