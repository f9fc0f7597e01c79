import { type ReadonlySignal, signal } from '@preact/signals';
import { type Microphone, withMicrophone } from './microphone.ts';
import { meterOf } from './speech.ts';

/** A recording under way. */
export type Recorder = ReturnType<typeof record>;

/** In order of preference: formats that browsers record and providers accept (contract 05 §6). */
const TYPES = ['audio/webm;codecs=opus', 'audio/mp4', 'audio/ogg;codecs=opus'];

/** Records from the microphone, until one of the two ends is called. @throws Error worded for people */
export const startRecorder = (): Promise<Recorder> => withMicrophone(record);

function record({ stream, context, close: free }: Microphone) {
  const type = TYPES.find((one) => MediaRecorder.isTypeSupported(one));
  const recorder = new MediaRecorder(stream, type ? { mimeType: type } : {});
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  const level = signal(0);
  let frame = 0;

  function measure(): void {
    analyser.getFloatTimeDomainData(samples);
    const square = samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length;
    level.value = meterOf(Math.sqrt(square));
    frame = requestAnimationFrame(measure);
  }

  function close(): void {
    cancelAnimationFrame(frame);
    free();
  }

  const parts: Blob[] = [];
  recorder.ondataavailable = ({ data }) => parts.push(data);
  recorder.start();
  measure();

  return {
    /** Loudness now, 0 to 1. */
    level: level as ReadonlySignal<number>,
    /** Ends the recording, and returns it. */
    finish: () =>
      new Promise<Blob>((resolve) => {
        recorder.onstop = () => {
          close();
          resolve(new Blob(parts, { type: recorder.mimeType }));
        };
        // The system may have taken the microphone away, which ended the recording.
        if (recorder.state === 'inactive') recorder.onstop(new Event('stop'));
        else recorder.stop();
      }),
    /** Ends the recording, and drops it. */
    cancel(): void {
      if (recorder.state !== 'inactive') recorder.stop();
      close();
    },
  };
}

/** The name of a clip, whose extension tells providers its format. */
export const clipName = ({ type }: Blob): string =>
  `voice.${type.startsWith('audio/mp4') ? 'm4a' : type.startsWith('audio/ogg') ? 'ogg' : 'webm'}`;
