import { batch, type ReadonlySignal, signal } from '@preact/signals';
import { systemClock } from '../../../../lib/kit/clock.ts';
import { messageOf } from '../../shared/load.tsx';
import { createChats } from '../chat/chats.ts';
import type { Turn } from '../chat/turns.ts';
import type { App } from '../context.ts';
import { until } from '../until.ts';
import { outputOf, type Rendering, speakOutput } from './output.ts';
import { clipName, type Recorder, startRecorder } from './recorder.ts';

/** `opening` while the browser asks for permission to use the microphone. */
export type TalkState = 'idle' | 'opening' | 'listening' | 'transcribing' | 'thinking' | 'speaking';

/** Milliseconds after which a recording ends automatically, far below the relay's limit of 25 MiB. */
const MAX_RECORDING = 5 * 60_000;
/** Code points that the relay speaks per request (contract 05 §7). */
const MAX_SPOKEN = 5000;

export type Talk = ReturnType<typeof createTalk>;

/**
 * A spoken conversation: records, has it transcribed, asks the agent, and speaks its answer (contract 05 §6, §7, §12). One
 * round at a time; another press during an answer interrupts it.
 */
export function createTalk(app: App) {
  const { api } = app;
  const chats = app.retained(createChats);
  const conversation = chats.open(null);
  const state = signal<TalkState>('idle');
  const level = signal(0);
  const error = signal('');
  const isSpeaking = signal(true);
  /** Aborts everything of the present round. */
  let round = new AbortController();
  let recorder: Recorder | null = null;

  function fail(reason: unknown): void {
    batch(() => {
      error.value = typeof reason === 'string' ? reason : messageOf(reason);
      state.value = 'idle';
    });
  }

  /** Ends the recording or the speech. The agent continues. */
  function leave(): void {
    round.abort();
    recorder = null;
    state.value = 'idle';
    level.value = 0;
  }

  function interrupt(): void {
    if (state.value === 'thinking') chats.stop(conversation);
    leave();
  }

  async function listen(): Promise<void> {
    interrupt();
    round = new AbortController();
    const { signal: over } = round;
    error.value = '';
    state.value = 'opening';
    try {
      const opened = await startRecorder();
      if (over.aborted) return opened.cancel();
      recorder = opened;
      const stopLevel = opened.level.subscribe((value) => {
        level.value = value;
      });
      const stopTimer = systemClock.after(MAX_RECORDING, () => void finish());
      over.addEventListener('abort', () => {
        stopLevel();
        stopTimer();
        opened.cancel();
      });
      state.value = 'listening';
    } catch (reason) {
      if (!over.aborted) fail(reason);
    }
  }

  async function finish(): Promise<void> {
    const ended = recorder;
    if (!ended) return;
    recorder = null;
    const { signal: over } = round;
    state.value = 'transcribing';
    // Requested in parallel, to save time.
    const streamed = isSpeaking.value ? outputOf(app, over) : null;
    try {
      const text = await transcribe(await ended.finish(), over);
      level.value = 0;
      if (over.aborted) return;
      if (text === '') return fail('Nothing was heard. Speak closer to the microphone.');
      if (!chats.send(conversation, text)) return fail('The relay does not answer.');
      state.value = 'thinking';
      // An interrupted answer ends too.
      const turns = await until(conversation.turns, (turns) => turns.at(-1)?.state !== 'streaming');
      const answer = turns.at(-1);
      if (over.aborted) return;
      if (answer?.state === 'done' && isSpeaking.value && answer.text.trim() !== '')
        await speak(answer.text, await streamed, over);
      if (!over.aborted) state.value = 'idle';
    } catch (reason) {
      if (!over.aborted) fail(reason);
    }
  }

  async function transcribe(clip: Blob, over: AbortSignal): Promise<string> {
    // It ended before its first sound.
    if (clip.size === 0) return '';
    const form = new FormData();
    form.append('audio', clip, clipName(clip));
    const request = { method: 'POST', raw: form, signal: over } as const;
    return (await api.call<{ text: string }>('voice/transcribe', request)).text.trim();
  }

  /** `rendering`: the relay's voice output, which speaks sooner than a completely rendered file. */
  async function speak(text: string, rendering: Rendering | null, over: AbortSignal): Promise<void> {
    const spoken = [...text.trim()].slice(0, MAX_SPOKEN).join('');
    const onSound = () => {
      state.value = 'speaking';
    };
    if (rendering && (await speakOutput(app, { text: spoken, rendering, over, onSound }).catch(() => false))) return;
    if (!over.aborted) await speakFile(spoken, over);
  }

  async function speakFile(spoken: string, over: AbortSignal): Promise<void> {
    const request = { method: 'POST', body: { text: spoken }, signal: over } as const;
    const response = await api.open('voice/synthesize', request);
    const url = URL.createObjectURL(await response.blob());
    const audio = new Audio(url);
    try {
      if (over.aborted) return;
      state.value = 'speaking';
      await new Promise<void>((resolve, reject) => {
        audio.onended = () => resolve();
        audio.onerror = () => reject(new Error('This browser cannot play the answer.'));
        over.addEventListener('abort', () => resolve());
        audio.play().catch(reject);
      });
    } finally {
      audio.pause();
      URL.revokeObjectURL(url);
    }
  }

  return {
    state: state as ReadonlySignal<TalkState>,
    /** Loudness of the microphone, 0 to 1. */
    level: level as ReadonlySignal<number>,
    /** Why the last round ended early, worded for people. */
    error: error as ReadonlySignal<string>,
    turns: conversation.turns as ReadonlySignal<readonly Turn[]>,
    /** True if answers are spoken. */
    isSpeaking,
    listen,
    finish,
    interrupt,
    leave,
  };
}
