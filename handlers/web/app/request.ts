import { type Cancel, systemClock } from '../../../lib/kit/clock.ts';
import { withTimeout } from '../../../lib/kit/timeouts.ts';
import { newUuid } from '../../../lib/kit/uuid.ts';
import type { Message } from '../../../lib/socket/envelope.ts';
import type { Port } from './session.ts';

interface Waiting {
  /** Milliseconds for the answer, and the sentence for people if none comes. */
  timeout: number;
  silence: string;
  signal?: AbortSignal;
}

/** Sends a message, and resolves with its answer: the first message with its id. @throws Error worded for people */
export async function requestOn(
  port: Pick<Port, 'send' | 'onMessage'>,
  type: string,
  { silence, ...timing }: Waiting,
): Promise<Message> {
  const id = newUuid();
  let stop: Cancel = () => {};
  const answer = new Promise<Message>((resolve) => {
    stop = port.onMessage((message) => message.id === id && resolve(message));
  });
  try {
    if (!port.send(type, {}, id)) throw new Error('The relay does not answer.');
    return await withTimeout({ clock: systemClock, ...timing }, answer, () => {
      throw new Error(silence);
    });
  } finally {
    stop();
  }
}
