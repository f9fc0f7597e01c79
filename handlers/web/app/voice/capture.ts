import { openMicrophone } from './microphone.ts';
import { PROCESSOR, SPEECH_RATE } from './speech.ts';

/** Set by the build: the file of `worklet.ts`. */
declare const __WORKLET__: string;

/** An open microphone. */
export interface Capture {
  /** Hertz of its frames. */
  rate: number;
  close(): void;
}

export interface CaptureDeps {
  /** Called with a frame of 16-bit samples. */
  hear(frame: Int16Array): void;
  /** The system has taken the microphone away. */
  lost(): void;
}

/** Captures the microphone in frames, until it is closed. @throws MicrophoneError */
export async function startCapture({ hear, lost }: CaptureDeps): Promise<Capture> {
  const stream = await openMicrophone();
  const context = new AudioContext();

  function close(): void {
    for (const track of stream.getTracks()) {
      track.onended = null;
      track.stop();
    }
    if (context.state !== 'closed') void context.close();
  }

  try {
    await context.audioWorklet.addModule(__WORKLET__);
    const node = new AudioWorkletNode(context, PROCESSOR, { channelCount: 1, channelCountMode: 'explicit' });
    node.port.onmessage = ({ data }: MessageEvent<Int16Array>) => hear(data);
    // It plays nothing, but some browsers run only nodes that lead to the loudspeaker.
    context.createMediaStreamSource(stream).connect(node).connect(context.destination);
    for (const track of stream.getTracks()) track.onended = lost;
    void context.resume();
    return { rate: Math.min(SPEECH_RATE, context.sampleRate), close };
  } catch (error) {
    close();
    throw error;
  }
}
