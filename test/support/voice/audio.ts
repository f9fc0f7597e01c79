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
