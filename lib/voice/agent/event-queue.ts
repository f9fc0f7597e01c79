import type { ProviderEvent } from './provider/provider.ts';

/** Maximum bytes of speech in one event: some seconds. Even, so that samples stay whole. */
const MAX_PIECE = 128 * 1024;

/**
 * A queue for the events of a provider on their way to the state machine. Speech is cut into pieces, and everything waits
 * while the phone's socket is full (`room` as `SessionSocket.room`), because one long delta could exceed the limit of unsent
 * bytes and close the phone's connection. Bounded, because the provider is not read meanwhile. Returns the function that
 * adds an event.
 */
export function createEventQueue(
  room: () => Promise<void> | undefined,
  post: (event: ProviderEvent) => void,
): (event: ProviderEvent) => void {
  const queue: ProviderEvent[] = [];
  let isBusy = false;

  function drain(): void {
    isBusy = true;
    for (let event = queue.shift(); event; event = queue.shift()) {
      post(event);
      const wait = queue.length > 0 && room();
      if (!wait) continue;
      void wait.then(drain);
      return;
    }
    isBusy = false;
  }

  return (event) => {
    if (event.type !== 'audioDelta') queue.push(event);
    else {
      for (let at = 0; at < event.pcm.length; at += MAX_PIECE)
        queue.push({ ...event, pcm: event.pcm.subarray(at, at + MAX_PIECE) });
    }
    if (!isBusy) drain();
  };
}
