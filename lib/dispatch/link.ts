import type { Session } from '../sessions/session.ts';

/** The socket of a client that is sent commands. */
export interface Link {
  readonly id: string;
  readonly session: Session;
  readonly isOpen: boolean;
  sendFrame(frame: string): void;
}
