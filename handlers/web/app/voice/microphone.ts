/** An open microphone, and the context for its sound. */
export interface Microphone {
  stream: MediaStream;
  context: AudioContext;
  /** Frees both. */
  close(): void;
}

/**
 * Opens the microphone, with echo cancellation, for a use that has to close it at its end. Frees it if the use cannot begin.
 * @throws Error worded for people
 */
export async function withMicrophone<T>(use: (microphone: Microphone) => T | Promise<T>): Promise<T> {
  const stream = await requestStream();
  let context: AudioContext | undefined;

  function close(): void {
    for (const track of stream.getTracks()) {
      track.onended = null;
      track.stop();
    }
    if (context && context.state !== 'closed') void context.close();
  }

  try {
    context = new AudioContext();
    return await use({ stream, context, close });
  } catch (error) {
    close();
    throw error;
  }
}

async function requestStream(): Promise<MediaStream> {
  try {
    return await navigator.mediaDevices.getUserMedia({ audio: { echoCancellation: true, noiseSuppression: true } });
  } catch (error) {
    const name = error instanceof DOMException ? error.name : '';
    if (name === 'NotAllowedError') {
      throw new Error('This page may not use the microphone. Allow it in the settings of the browser.');
    }
    if (name === 'NotFoundError') throw new Error('This device has no microphone.');
    throw new Error('The microphone cannot be used now: another program may hold it.');
  }
}
