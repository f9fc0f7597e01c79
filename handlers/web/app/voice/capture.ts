import { withMicrophone } from './microphone.ts';
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

/** Captures the microphone in frames, until it is closed. @throws Error worded for people */
export const startCapture = ({ hear, lost }: CaptureDeps): Promise<Capture> =>
  withMicrophone(async ({ stream, context, close }) => {
    await context.audioWorklet.addModule(__WORKLET__);
    const node = new AudioWorkletNode(context, PROCESSOR, { channelCount: 1, channelCountMode: 'explicit' });
    node.port.onmessage = ({ data }: MessageEvent<Int16Array>) => hear(data);
    // It plays nothing, but some browsers run only nodes that lead to the loudspeaker.
    context.createMediaStreamSource(stream).connect(node).connect(context.destination);
    for (const track of stream.getTracks()) track.onended = lost;
    void context.resume();
    return { rate: Math.min(SPEECH_RATE, context.sampleRate), close };
  });
