import type { Cancel } from '../../kit/clock.ts';
import type { Message, Payload } from '../../socket/envelope.ts';

export type SendOnChannel = (type: string, payload: Payload) => void;

/** A channel besides `system` and `bridge` that this device takes part in. */
export interface LinkChannel {
  /** The relay is there (`auth.ok`), also after it was gone: what `send` is given leaves until the end is called. */
  online(send: SendOnChannel): Cancel;
  message(message: Message): void;
}
