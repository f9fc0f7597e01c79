/** Frames of 20 ms that are loud before somebody counts as speaking, and as interrupting the agent. */
const BEGINS = 5;
const INTERRUPTS = 12;
/** Frames that are quiet before an utterance is over: people pause between words. */
const ENDS = 45;
/** Frames after which an utterance ends although it is not quiet, as beside a vacuum cleaner. */
const LONGEST = 3000;
/** Root mean squares between which speech begins, however quiet or loud the room is. */
const MIN_THRESHOLD = 0.012;
const MAX_THRESHOLD = 0.12;
/** Speech is so many times louder than the room. What the loudspeaker leaves of the agent's voice is louder, too. */
const ABOVE_ROOM = 3;
const ABOVE_AGENT = 6;
/** An utterance goes on while it is this part of the threshold. */
const HYSTERESIS = 0.6;

export type Detector = ReturnType<typeof createDetector>;

/** Tells by the loudness of the microphone when somebody begins to speak, and when they are done. */
export function createDetector() {
  let room = MIN_THRESHOLD / ABOVE_ROOM;
  let loud = 0;
  let quiet = 0;
  let length = 0;
  let isSpeaking = false;

  return {
    /** Takes the root mean square of a frame. `isAgentHeard`: the loudspeaker is on. */
    hear(loudness: number, isAgentHeard: boolean): 'began' | 'ended' | null {
      // Falls at once, and rises in some ten seconds.
      room += (loudness - room) * (loudness < room ? 0.2 : 0.002);
      const factor = isAgentHeard ? ABOVE_AGENT : ABOVE_ROOM;
      const threshold = Math.min(MAX_THRESHOLD, Math.max(MIN_THRESHOLD, room * factor));
      if (!isSpeaking) {
        loud = loudness > threshold ? loud + 1 : 0;
        if (loud < (isAgentHeard ? INTERRUPTS : BEGINS)) return null;
        [isSpeaking, quiet, length] = [true, 0, loud];
        return 'began';
      }
      length++;
      quiet = loudness < threshold * HYSTERESIS ? quiet + 1 : 0;
      if (quiet < ENDS && length < LONGEST) return null;
      [isSpeaking, loud] = [false, 0];
      return 'ended';
    },

    /** Starts over; what it knows of the room stays. */
    reset(): void {
      [isSpeaking, loud] = [false, 0];
    },
  };
}
