import { fromBase64 } from '../../../kit/bytes.ts';
import type { JsonObject } from '../../../kit/json.ts';
import { MiB } from '../../../kit/units.ts';
import { MAX_RATE, MIN_RATE } from '../../limits.ts';
import { dropDrains } from './floor.ts';
import { cancelActive, request } from './response.ts';
import type { Step } from './step.ts';

/** The user's half of region P: microphone audio, utterances and text turns (contract 06 §6.1). */

const MAX_CHUNK = MiB;
const MAX_UNCOMMITTED = 32 * MiB;
const DEFAULT_RATE = 24_000;
const MAX_TEXT = 5000;
/** Maximum utterances that wait for their transcripts. */
const MAX_AWAITING = 8;

export function append(step: Step, message: JsonObject): void {
  const { turn } = step.state;
  const { audio_base64: text, sample_rate: rate = DEFAULT_RATE, chunk_id: chunk = turn.lastChunkId + 1 } = message;
  const pcm = typeof text === 'string' ? fromBase64(text) : null;
  const id = Number.isSafeInteger(chunk) ? (chunk as number) : turn.lastChunkId + 1;
  if (typeof text !== 'string' || text === '') step.error('input_audio.append missing audio_base64');
  else if (!pcm) step.error('input_audio.append audio_base64 is not valid base64');
  else if (id <= turn.lastChunkId) acknowledge(step, id, pcm.length, rate, true);
  else if (typeof rate !== 'number' || !Number.isInteger(rate) || rate < MIN_RATE || rate > MAX_RATE)
    step.error(`input_audio.append sample_rate must be ${MIN_RATE} to ${MAX_RATE}`);
  else if (pcm.length % 2 !== 0) step.error('input_audio.append audio is not whole 16-bit samples');
  else if (pcm.length > MAX_CHUNK) step.error('input_audio.append audio is larger than 1 MiB');
  else if (turn.uncommitted + pcm.length > MAX_UNCOMMITTED)
    step.error('input_audio.append has more than 32 MiB of uncommitted audio');
  else {
    turn.lastChunkId = id;
    turn.uncommitted += pcm.length;
    turn.totalBytes += pcm.length;
    turn.micAt = step.at;
    if (turn.input === 'idle') {
      turn.input = 'listening';
      turn.playedBefore = step.playback.played;
    }
    step.provider({ type: 'audio', pcm, sampleRate: rate });
    acknowledge(step, id, pcm.length, rate, false);
  }
}

function acknowledge(step: Step, id: number, bytes: number, rate: unknown, isDuplicate: boolean): void {
  step.emit({
    type: 'voice.input_audio.received',
    input_chunk_id: id,
    byte_count: bytes,
    total_bytes: step.state.turn.totalBytes,
    sample_rate: typeof rate === 'number' ? rate : DEFAULT_RATE,
    ...(isDuplicate && { duplicate: true }),
  });
}

/** Ends the utterance. Without audio it is ignored: clients repeat a commit after a resume. */
export function commit(step: Step): void {
  const { turn } = step.state;
  if (turn.uncommitted === 0) return;
  turn.uncommitted = 0;
  turn.input = 'awaiting_transcript';
  turn.awaiting = Math.min(turn.awaiting + 1, MAX_AWAITING);
  step.provider({ type: 'commit' });
  // A new connection gets the utterance first.
  if (step.state.link.phase === 'up') step.setTimer('transcript', step.config.transcriptWait);
}

export function clear(step: Step): void {
  const { turn } = step.state;
  turn.uncommitted = 0;
  if (turn.input === 'listening') turn.input = turn.awaiting > 0 ? 'awaiting_transcript' : 'idle';
  step.provider({ type: 'clear' });
}

export function textTurn(step: Step, message: JsonObject): void {
  const { text } = message;
  if (typeof text !== 'string' || text.trim() === '') {
    step.error('response.create missing text');
    return;
  }
  const cut = text.trim().slice(0, MAX_TEXT).toWellFormed();
  step.emit({ type: 'voice.input_transcript.final', text: cut, source: 'client_text' });
  step.provider({ type: 'text', text: cut });
  step.raise({ type: 'userTurn' });
}

/** A transcript. If its utterance was already answered without it, it is only shown. */
export function transcriptFinal(step: Step, text: string): void {
  step.emit({ type: 'voice.input_transcript.final', text });
  if (!settleUtterance(step)) return;
  step.raise(text.trim() === '' ? { type: 'noise' } : { type: 'userTurn' });
}

export function transcriptFailed(step: Step): void {
  if (settleUtterance(step)) step.raise({ type: 'userTurn' });
}

/** No transcript came in time: one request for all waiting utterances. */
export function transcriptTimedOut(step: Step): void {
  const { turn } = step.state;
  if (turn.awaiting === 0) return;
  turn.awaiting = 1;
  settleUtterance(step);
  step.raise({ type: 'userTurn' });
}

/** Utterances without a transcript are lost with their connection, so the user is asked to repeat them. */
export function forgetUtterances(step: Step): void {
  const { turn } = step.state;
  step.clearTimer('transcript');
  if (turn.awaiting === 0) return;
  turn.awaiting = 0;
  if (turn.input === 'awaiting_transcript') turn.input = turn.uncommitted > 0 ? 'listening' : 'idle';
  request(step, { kind: 'user', prompt: { type: 'repeat' } });
}

/** Counts an utterance as handled. False if none was waiting. */
function settleUtterance(step: Step): boolean {
  const { turn } = step.state;
  if (turn.awaiting === 0) return false;
  turn.awaiting--;
  if (turn.awaiting > 0) return true;
  step.clearTimer('transcript');
  if (turn.input === 'awaiting_transcript') turn.input = turn.uncommitted > 0 ? 'listening' : 'idle';
  return true;
}

/** Asks the provider to answer the user. A delivery that bypassed the provider is mentioned to it, once. */
export function requestAnswer(step: Step): void {
  const { turn, delivery } = step.state;
  turn.isSuppressing = false;
  turn.isCut = false;
  const { remembered } = delivery;
  delivery.remembered = null;
  request(step, { kind: 'user', prompt: remembered && { type: 'delivered', ...remembered } });
}

/**
 * `response.cancel`: the provider stops, and all requests to it are withdrawn (contract 06 §6.6). The caller notifies the
 * client.
 */
export function cancelTurn(step: Step): void {
  const { turn } = step.state;
  if (!turn.active) step.provider({ type: 'cancel' });
  step.provider({ type: 'clear' });
  turn.queue = [];
  turn.uncommitted = 0;
  turn.awaiting = 0;
  turn.input = 'idle';
  step.clearTimer('transcript');
  dropDrains(step);
  cancelActive(step, { isSilent: true });
}

/** True if the user is speaking or waits for an answer. */
export const isTurnActive = ({ state: { turn, floor } }: Step): boolean =>
  turn.input !== 'idle' || turn.active !== null || turn.queue.length > 0 || floor.drains.length > 0;
