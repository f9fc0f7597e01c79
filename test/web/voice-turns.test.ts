import { expect, it } from 'vitest';
import { EMPTY_VIEW, type LiveView, withEvent } from '../../handlers/web/app/voice/live-turns.ts';
import { wordsOf } from '../../handlers/web/app/voice/live-words.ts';
import type { JsonObject } from '../../lib/kit/json.ts';

/** The view after these events of the relay. */
const after = (...events: JsonObject[]): LiveView => events.reduce(withEvent, EMPTY_VIEW);

const started = { type: 'voice.response.started', response_id: 'r1' };
const said = { type: 'voice.response.delta', response_id: 'r1', delta: 'The first half' };
const done = { type: 'voice.response.done', response_id: 'r1' };

it('06 §6.9: an answer that its provider did not finish is shown as cut off', () => {
  const stateOf = (end: JsonObject) => after(started, said, end).turns.map(({ text, state }) => [text, state]);
  expect(stateOf({ ...done, incomplete: true, reason: 'max_output_tokens' })).toEqual([['The first half', 'cut']]);
  expect(stateOf({ ...done, cancelled: true, incomplete: true })).toEqual([['The first half', 'stopped']]);
  expect(stateOf(done)).toEqual([['The first half', 'done']]);
});

it('06 §6.9: while the relay dials its provider again, the conversation stays as it is', () => {
  const lost = after(started, said, { type: 'voice.provider.reconnecting', reason: 'session_expired' });
  expect([lost.isRedialling, lost.isBusy, lost.turns.length]).toEqual([true, true, 1]);
  const found = withEvent(lost, { type: 'voice.provider.reconnected', gap_ms: 12 });
  expect({ ...lost, isRedialling: false }).toEqual(found);
});

it('06 §1: notices end nothing, and what ends the conversation is said in words', () => {
  expect(wordsOf({ message: 'OpenAI Realtime error: Cancellation failed: no active response' })).toBe(null);
  expect(wordsOf({ message: 'gone', error_code: 'provider_disconnected' })).toMatch(/has gone/);
  expect(wordsOf({ message: 'the provider could not answer' })).toBe('The provider could not answer');
});

it('what a conversation has used is the last sum that the relay has sent, and nothing without one', () => {
  const usage = { input_audio_tokens: 20_000, output_audio_tokens: 14_000 };
  const counted = after({ ...done, usage, at_ms: 720_000 });
  expect(counted.cost).toEqual({ minutes: 12, audioTokens: 34_000 });
  expect(withEvent(counted, { ...done, response_id: 'r2', at_ms: 730_000 }).cost).toEqual(counted.cost);
  for (const odd of [undefined, null, 7, 'many', {}, { input_audio_tokens: 'many' }])
    expect(after({ ...done, usage: odd as never, at_ms: 1 }).cost).toBe(null);
});
