/**
 * Captures the microphone on the browser's audio thread, in frames of 16-bit samples. A separate file, loaded by
 * `capture.ts`, since the pages' policy forbids code from a blob.
 */

import { createResampler } from './resample.ts';
import { FRAME, PROCESSOR, SPEECH_RATE } from './speech.ts';

declare const sampleRate: number;
declare class AudioWorkletProcessor {
  readonly port: MessagePort;
}
declare function registerProcessor(name: string, processor: new () => AudioWorkletProcessor): void;

class Microphone extends AudioWorkletProcessor {
  readonly #resample = createResampler(sampleRate, Math.min(SPEECH_RATE, sampleRate));
  #frame = new Int16Array(FRAME);
  #filled = 0;

  /** One input with one channel; none while disconnected. */
  process([inputs]: Float32Array[][]): boolean {
    const channel = inputs?.[0];
    if (channel) for (const sample of this.#resample(channel)) this.#take(sample);
    return true;
  }

  #take(sample: number): void {
    this.#frame[this.#filled++] = Math.round(Math.max(-1, Math.min(1, sample)) * 32_767);
    if (this.#filled < FRAME) return;
    this.port.postMessage(this.#frame, [this.#frame.buffer]);
    this.#frame = new Int16Array(FRAME);
    this.#filled = 0;
  }
}

registerProcessor(PROCESSOR, Microphone);
