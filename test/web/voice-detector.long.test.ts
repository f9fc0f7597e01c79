import { beforeAll, describe, expect, it } from 'vitest';
import { createDetector } from '../../handlers/web/app/voice/detector.ts';
import { FRAME, SPEECH_RATE } from '../../handlers/web/app/voice/speech.ts';
import { median } from '../support/limits.ts';
import { cough, joined, listen, type Sound, samplesOf, silence, trimmed } from '../support/voice/microphone.ts';
import { canSpeak, spoken } from '../support/voice/speech.ts';

/** Voice of espeak-ng, words a minute, pitch, and what is said. */
const SAID: readonly (readonly [voice: string, speed: number, pitch: number, text: string])[] = [
  ['en', 175, 50, 'Stop, that is enough.'],
  ['en+f2', 150, 50, 'Wait a moment, please.'],
  ['en-us', 200, 40, 'No, I meant the other one.'],
  ['en-us+f4', 170, 60, 'What is on my calendar for Thursday?'],
  ['en-gb+m3', 140, 35, 'Hold on, go back to the first point.'],
  ['en-gb-scotland', 180, 50, 'Could you repeat that more slowly?'],
  ['de', 170, 50, 'Halt, das reicht mir schon.'],
  ['de+f3', 190, 55, 'Wie wird das Wetter morgen in Hamburg?'],
  ['fr', 165, 50, 'Attends, je voulais dire autre chose.'],
  ['fr+f5', 200, 60, "Appelle ma mère, s'il te plaît."],
  ['es', 175, 45, 'Espera, no es eso lo que quería.'],
  ['es+f2', 160, 55, 'Manda un mensaje a mi hermana.'],
  ['en+m1', 220, 50, 'Never mind, send it tomorrow.'],
  ['en+m7', 130, 30, 'Thank you, that will do.'],
  ['it', 180, 50, 'Fermati un attimo, per favore.'],
  ['pt', 170, 50, 'Pare, eu quero outra coisa.'],
  ['nl', 175, 50, 'Wacht even, dat klopt niet.'],
  ['pl', 165, 50, 'Poczekaj chwilę, to nie to.'],
  ['en+croak', 170, 40, 'Turn the lights off in the kitchen.'],
  ['en+f1', 240, 70, 'Skip this and read the next message.'],
  ['sv', 170, 50, 'Vänta lite, jag har en fråga.'],
];

const ANSWER =
  'There are seventeen meetings on Thursday. The longest of them is with Marguerite about the budget of next year, and it ' +
  'begins at nine in the morning. After that you have half an hour for yourself, and then lunch with Peter.';

/** Seconds after the beginning of everything at which somebody says the sentence of this number: not always in a pause. */
const momentOf = (index: number): number => 4 + ((index * 0.37) % 7);

describe.runIf(canSpeak())('the speech detector of the page, with the words of a synthesizer', () => {
  let sentences: Sound[] = [];
  let agent: Sound;
  beforeAll(() => {
    sentences = SAID.map(([voice, speed, pitch, text]) =>
      samplesOf(spoken(text, SPEECH_RATE, { voice, speed, pitch })),
    );
    agent = samplesOf(spoken(ANSWER, SPEECH_RATE, { voice: 'en-us+f2' }));
  });

  it.each([1, 0.5, 0.25])('20 of 21 sentences at level %d interrupt the agent, which is quieter before', (level) => {
    const heard = sentences.map((said, index) => {
      const from = momentOf(index);
      return listen({ said, from, level, agent, seconds: from + 4, seed: index + 1 });
    });
    const interruptions = heard.map((changes) => changes.find(({ change }) => change === 'began'));
    const inTime = interruptions.filter((one) => one !== undefined && one.at > 0);
    expect(inTime.length).toBeGreaterThanOrEqual(20);
    expect(median(inTime.map((one) => one?.at ?? 9))).toBeLessThan(0.7);
    const noticed = heard.map((changes) => changes.find(({ change, at }) => change === 'noticed' && at > 0)?.at ?? 9);
    expect(median(noticed)).toBeLessThan(0.25);
    for (const changes of heard) expect(changes[0]?.change).not.toBe('began');
  });

  it('at most 1 of 20 coughs interrupts it, and it is as loud as before after all others', () => {
    const heard = Array.from({ length: 20 }, (_, index) => {
      const from = momentOf(index);
      return listen({ said: cough(index + 1), from, agent, seconds: from + 3, seed: index + 1 });
    });
    expect(heard.filter((changes) => changes.some(({ change }) => change === 'began')).length).toBeLessThanOrEqual(1);
    for (const changes of heard) expect(changes.at(-1)?.change).not.toBe('noticed');
  });

  it.each([-25, -20, -15])('its own voice at %d dB in the microphone never interrupts it', (echo) => {
    for (const noise of [0.01, 0.001]) {
      const changes = listen({ agent, echo, noise, seconds: 60 }).map(({ change }) => change);
      expect(changes).not.toContain('began');
      // A minute with a few moments in which it is quieter.
      expect(changes.filter((change) => change === 'noticed').length).toBeLessThan(10);
    }
  });

  it.each([1, 0.5, 0.25])('at level %d, a pause of one second does not split a request', (level) => {
    sentences.forEach((first, index) => {
      const second = sentences[(index + 5) % sentences.length] ?? first;
      const said = joined(trimmed(first), silence(1), trimmed(second));
      const seconds = 3 + said.length / SPEECH_RATE + 3;
      const changes = listen({ said, from: 3, level, seconds, seed: index + 1 });
      const requests = changes.filter(({ change }) => change === 'began' || change === 'ended');
      expect([SAID[index]?.[3], requests.map(({ change }) => change)]).toEqual([SAID[index]?.[3], ['began', 'ended']]);
    });
  });

  it('a frame of 20 ms takes the page little time', () => {
    const detector = createDetector(SPEECH_RATE);
    const times: number[] = [];
    for (let at = 0; at + FRAME <= agent.length; at += FRAME) {
      const frame = Int16Array.from(agent.subarray(at, at + FRAME), (sample) => sample * 32_767);
      const before = performance.now();
      detector.hear(frame, 0.1);
      times.push((performance.now() - before) * 1000);
    }
    process.stderr.write(`speech detector: ${median(times).toFixed(0)} µs for a frame\n`);
    expect(median(times)).toBeLessThan(1000);
  });
});
