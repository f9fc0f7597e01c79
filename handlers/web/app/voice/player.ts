import { type ReadonlySignal, signal } from '@preact/signals';

/** Seconds of sound that are scheduled ahead, so that a busy page does not stutter. */
const AHEAD = 1;
/** Seconds before the first of several sounds, in which the next ones arrive. */
const LEAD = 0.08;
/** Volume of the agent during a possible interruption, and the seconds of the transition. */
const DUCKED = 0.2;
const FADE = 0.03;
/** Samples for measuring the loudness: two frames of the microphone, since both clocks differ. */
const MEASURED = 1024;
/** Seconds that may be queued. Providers speak faster than anybody listens, and a page cannot stop reading its socket. */
const MAX_WAITING = 300;

export interface PlayerDeps {
  /** Expected sample rate. Sound of another rate is converted. */
  rate: number;
  /** The piece with this number was heard to its end. */
  onPlayed(id: number): void;
}

export type Player = ReturnType<typeof createPlayer>;

interface Piece {
  id: number;
  buffer: AudioBuffer;
}

/**
 * Plays pieces of sound one after the other, without gaps. Must be created by a tap, since browsers stay silent otherwise.
 */
export function createPlayer({ rate, onPlayed }: PlayerDeps) {
  const context = createContext(rate);
  const waiting: Piece[] = [];
  const sounding = new Set<AudioBufferSourceNode>();
  const gain = context.createGain();
  gain.connect(context.destination);
  const meter = context.createAnalyser();
  meter.fftSize = MEASURED;
  const measured = new Float32Array(MEASURED);
  const isPlaying = signal(false);
  /** End of the last scheduled piece, on the clock of the context. */
  let end = 0;
  let secondsWaiting = 0;
  void context.resume();

  function advance(): void {
    for (let piece = waiting[0]; piece && end - context.currentTime < AHEAD; piece = waiting[0]) {
      waiting.shift();
      secondsWaiting -= piece.buffer.duration;
      start(piece);
    }
    isPlaying.value = sounding.size > 0;
  }

  function start({ id, buffer }: Piece): void {
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(gain);
    source.connect(meter);
    source.onended = () => {
      sounding.delete(source);
      onPlayed(id);
      advance();
    };
    sounding.add(source);
    const at = Math.max(end, context.currentTime + (sounding.size === 1 ? LEAD : 0));
    source.start(at);
    end = at + buffer.duration;
  }

  /** Makes the agent quieter, or restores its volume. */
  function duck(isQuieter: boolean): void {
    gain.gain.setTargetAtTime(isQuieter ? DUCKED : 1, context.currentTime, FADE / 3);
  }

  return {
    duck,

    /** Root mean square of the present playback, as if it were not made quieter. */
    loudness(): number {
      meter.getFloatTimeDomainData(measured);
      return Math.sqrt(measured.reduce((sum, sample) => sum + sample * sample, 0) / MEASURED);
    },

    /** True if something is audible, or about to be. */
    isPlaying: isPlaying as ReadonlySignal<boolean>,

    /** Queues 16-bit little-endian mono. Returns false if too much is queued. */
    play(id: number, pcm: Uint8Array, pieceRate: number): boolean {
      const samples = pcm.length >> 1;
      if (samples === 0 || context.state === 'closed') return true;
      if (secondsWaiting > MAX_WAITING) return false;
      const buffer = context.createBuffer(1, samples, pieceRate);
      const view = new DataView(pcm.buffer, pcm.byteOffset, pcm.byteLength);
      const channel = buffer.getChannelData(0);
      for (let at = 0; at < samples; at++) channel[at] = view.getInt16(at * 2, true) / 32_768;
      waiting.push({ id, buffer });
      secondsWaiting += buffer.duration;
      advance();
      return true;
    },

    /** Stops at once, and drops the queue. */
    clear(): void {
      waiting.length = 0;
      secondsWaiting = 0;
      for (const source of sounding) {
        source.onended = null;
        source.stop();
        source.disconnect();
      }
      sounding.clear();
      end = 0;
      isPlaying.value = false;
      duck(false);
    },

    close(): void {
      this.clear();
      if (context.state !== 'closed') void context.close();
    },
  };
}

/** A context of the exact rate joins pieces without a click, but not every device supports every rate. */
function createContext(sampleRate: number): AudioContext {
  try {
    return new AudioContext({ sampleRate });
  } catch {
    return new AudioContext();
  }
}
