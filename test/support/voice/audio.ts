import { median } from '../limits.ts';

/** A sine of 440 Hz as mono 16-bit little-endian PCM. */
export function sinePcm(seconds: number, rate: number): Uint8Array {
  const pcm = new Uint8Array(Math.floor(seconds * rate) * 2);
  const view = new DataView(pcm.buffer);
  for (let at = 0; at < pcm.length / 2; at++) {
    view.setInt16(at * 2, Math.round(8000 * Math.sin((2 * Math.PI * 440 * at) / rate)), true);
  }
  return pcm;
}

/** A WAV file of mono 16-bit samples. */
export function wavOf(pcm: Uint8Array, rate: number): Uint8Array<ArrayBuffer> {
  const file = new Uint8Array(44 + pcm.length);
  const view = new DataView(file.buffer);
  const text = (at: number, word: string) => file.set(new TextEncoder().encode(word), at);
  text(0, 'RIFF');
  view.setUint32(4, 36 + pcm.length, true);
  text(8, 'WAVEfmt ');
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * 2, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, 'data');
  view.setUint32(40, pcm.length, true);
  file.set(pcm, 44);
  return file;
}

const MPEG1_KBPS = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
const MPEG2_KBPS = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
const RATES: Record<number, readonly number[]> = {
  3: [44_100, 48_000, 32_000],
  2: [22_050, 24_000, 16_000],
  0: [11_025, 12_000, 8000],
};

/** Walks the Layer III frames of an MP3; `rest` counts bytes that are part of none. */
export function mp3Frames(mp3: Uint8Array) {
  let [frames, seconds, sampleRate, at] = [0, 0, 0, 0];
  for (; at + 4 <= mp3.length; frames++) {
    const [sync, kind, rates] = [mp3[at] ?? 0, mp3[at + 1] ?? 0, mp3[at + 2] ?? 0];
    const version = (kind >> 3) & 3;
    const isLayer3 = sync === 0xff && kind >> 5 === 7 && ((kind >> 1) & 3) === 1;
    const rate = RATES[version]?.[(rates >> 2) & 3];
    const kbps = (version === 3 ? MPEG1_KBPS : MPEG2_KBPS)[rates >> 4];
    if (!isLayer3 || !rate || !kbps) break;
    const samples = version === 3 ? 1152 : 576;
    const length = Math.floor((samples * kbps * 125) / rate) + ((rates >> 1) & 1);
    if (at + length > mp3.length) break;
    at += length;
    seconds += samples / rate;
    sampleRate = rate;
  }
  return { frames, seconds, sampleRate, rest: mp3.length - at };
}

const BURST_RATE = 48_000;

/** A WAV for a false microphone, which plays it over and over: a voice-like hum of 440 Hz, and then silence. */
export function burstsWav(seconds: { hum: number; silence: number }): Uint8Array<ArrayBuffer> {
  const hum = Math.round(seconds.hum * BURST_RATE);
  const pcm = new Uint8Array((hum + Math.round(seconds.silence * BURST_RATE)) * 2);
  const view = new DataView(pcm.buffer);
  for (let at = 0; at < hum; at++) {
    const time = at / BURST_RATE;
    // Browsers filter out what hums steadily.
    const strength = 0.35 + 0.25 * Math.sin(2 * Math.PI * 6 * time);
    view.setInt16(at * 2, Math.round(32_767 * strength * Math.sin(2 * Math.PI * 440 * time)), true);
  }
  return wavOf(pcm, BURST_RATE);
}

/**
 * Hertz of the loud parts of 16-bit samples, by the times that they cross zero: the median of tenths of a second, as the
 * false microphone of a busy machine stutters.
 */
export function pitchOf(pcm: Uint8Array, rate: number): number {
  const view = new DataView(pcm.buffer, pcm.byteOffset, pcm.byteLength);
  const samples = Array.from({ length: pcm.length >> 1 }, (_, at) => view.getInt16(at * 2, true));
  const window = Math.round(rate / 10);
  const pitches: number[] = [];
  for (let start = 0; start + window <= samples.length; start += window) {
    const part = samples.slice(start, start + window);
    if (Math.max(...part) < 2000) continue;
    const crossings = part.filter((sample, at) => at > 0 && sample < 0 !== (part[at - 1] ?? 0) < 0).length;
    pitches.push((crossings * rate) / window / 2);
  }
  return median(pitches);
}
