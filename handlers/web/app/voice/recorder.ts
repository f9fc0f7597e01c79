import { type ReadonlySignal, signal } from '@preact/signals';

/** A recording under way. */
export interface Recorder {
  /** Loudness now, 0 to 1. */
  readonly level: ReadonlySignal<number>;
  /** Ends it, with what was said. */
  finish(): Promise<Blob>;
  /** Ends it, and drops what was said. */
  cancel(): void;
}

/** In the order of preference: what browsers record and providers take (contract 05 §6). */
const TYPES = ['audio/webm;codecs=opus', 'audio/mp4', 'audio/ogg;codecs=opus'];

/** Speech is quiet: this root mean square fills the meter. */
const LOUD = 0.25;

/** Why the microphone cannot be had, in words for people. */
export class MicrophoneError extends Error {}

/** Records from the microphone, until one of the two ends is called. @throws MicrophoneError */
export async function startRecorder(): Promise<Recorder> {
  const stream = await openMicrophone();
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  const level = signal(0);
  let frame = 0;

  function measure(): void {
    analyser.getFloatTimeDomainData(samples);
    const square = samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length;
    level.value = Math.min(1, Math.sqrt(square) / LOUD);
    frame = requestAnimationFrame(measure);
  }

  const type = TYPES.find((one) => MediaRecorder.isTypeSupported(one));
  const recorder = new MediaRecorder(stream, type ? { mimeType: type } : {});
  const parts: Blob[] = [];
  recorder.ondataavailable = ({ data }) => parts.push(data);
  recorder.start();
  measure();

  function close(): void {
    if (context.state === 'closed') return;
    cancelAnimationFrame(frame);
    for (const track of stream.getTracks()) track.stop();
    void context.close();
  }

  return {
    level,
    finish: () =>
      new Promise((resolve) => {
        recorder.onstop = () => {
          close();
          resolve(new Blob(parts, { type: recorder.mimeType }));
        };
        // The system may have taken the microphone away, which ended it.
        if (recorder.state === 'inactive') recorder.onstop(new Event('stop'));
        else recorder.stop();
      }),
    cancel() {
      if (recorder.state !== 'inactive') recorder.stop();
      close();
    },
  };
}

async function openMicrophone(): Promise<MediaStream> {
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

/** The name of a clip, whose ending tells providers what it is. */
export const clipName = ({ type }: Blob): string =>
  `voice.${type.startsWith('audio/mp4') ? 'm4a' : type.startsWith('audio/ogg') ? 'ogg' : 'webm'}`;
