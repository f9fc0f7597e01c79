import { describe, expect, it } from 'vitest';
import { History } from '../../../../lib/voice/agent/history.ts';
import { PendingAudio } from '../../../../lib/voice/agent/pending-audio.ts';

const said = (text: string) => ({ type: 'voice.input_transcript.final', text });
const answered = (delta: string, response_id = 'r1') => ({ type: 'voice.response.delta', delta, response_id });

describe('what another connection is told (contract 06 §6.9)', () => {
  it('is what the client was, oldest first, as far as it was heard', () => {
    const history = new History();
    for (const event of [said('Hi'), answered('Hello,'), answered(' you there.'), said('Read it')]) history.note(event);
    for (const event of [answered('One two three four', 'r2'), said('  ')]) history.note(event);
    expect(history.cut('r2', 0.5)).toBe('One two');
    expect(history.cut('unknown', 0.5)).toBe('');
    history.note({ ...answered('once more', 'r3'), delivery: 'respeak' });
    expect(history.forNewConnection()).toEqual([
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: 'Hello, you there.' },
      { role: 'user', content: 'Read it' },
      { role: 'assistant', content: 'One two' },
    ]);
    history.note(answered('The id is used again', 'r1'));
    expect(history.forNewConnection().at(-1)).toEqual({ role: 'assistant', content: 'The id is used again' });
  });

  it('is the last 14 messages, each of at most 1500 characters', () => {
    const history = new History();
    for (let n = 0; n < 40; n++) history.note(answered('x'.repeat(5000), `r${n}`));
    const messages = history.forNewConnection();
    expect(messages).toHaveLength(14);
    expect(Math.max(...messages.map(({ content }) => content.length))).toBe(1500);
  });
});

describe('audio that a connection may take with it', () => {
  const audio = (bytes: number) => ({ type: 'audio', pcm: new Uint8Array(bytes), sampleRate: 24_000 }) as const;
  const sizes = (pending: PendingAudio) =>
    pending.replay().map((each) => (each.type === 'audio' ? each.pcm.length : each.type));

  it('is the utterance that is being spoken, and those that ended without a connection', () => {
    const pending = new PendingAudio();
    for (const command of [audio(2), { type: 'commit' } as const, audio(4)]) pending.note(command, true);
    for (const command of [audio(6), { type: 'commit' } as const, audio(8)]) pending.note(command, false);
    expect(sizes(pending)).toEqual([4, 6, 'commit', 8]);
    expect(sizes(pending)).toEqual([8]);
    pending.note({ type: 'clear' }, true);
    expect(sizes(pending)).toEqual([]);
  });

  it('has nothing of what was cleared or cancelled', () => {
    const pending = new PendingAudio();
    for (const command of [audio(2), { type: 'commit' } as const, audio(4)]) pending.note(command, false);
    pending.note({ type: 'clear' }, false);
    expect(sizes(pending)).toEqual([2, 'commit']);
    pending.note(audio(2), false);
    pending.note({ type: 'commit' }, false);
    pending.note({ type: 'cancel' }, false);
    expect(sizes(pending)).toEqual([]);
  });

  it('has at most 8 MiB, the latest', () => {
    const pending = new PendingAudio();
    for (let n = 0; n < 40; n++) pending.note(audio(1024 * 1024), true);
    expect(sizes(pending)).toHaveLength(8);
  });
});
