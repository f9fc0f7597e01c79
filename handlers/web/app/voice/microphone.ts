/** Why the microphone is unavailable, worded for people. */
class MicrophoneError extends Error {}

/** The microphone, with echo cancellation. The caller has to stop its tracks. @throws MicrophoneError */
export async function openMicrophone(): Promise<MediaStream> {
  try {
    return await navigator.mediaDevices.getUserMedia({ audio: { echoCancellation: true, noiseSuppression: true } });
  } catch (error) {
    const name = error instanceof DOMException ? error.name : '';
    if (name === 'NotAllowedError') {
      throw new MicrophoneError('This page may not use the microphone. Allow it in the settings of the browser.');
    }
    if (name === 'NotFoundError') throw new MicrophoneError('This device has no microphone.');
    throw new MicrophoneError('The microphone cannot be used now: another program may hold it.');
  }
}
