import { nextTurn } from '../../../kit/clock.ts';
import { createResampler } from '../../streaming/resample.ts';
import { toneFor } from '../../streaming/stub.ts';
import type { ConnectProvider, ProviderEvent } from './provider.ts';

/**
 * A provider without a network, for tests and for trying the whole path (contract 06 §9): answers an exact text with a tone
 * whose length follows the text, and understands nothing. Does not repeat the text.
 */
export const connectStub: ConnectProvider = async ({ sampleRate, signal }, onEvent) => {
  signal.throwIfAborted();
  const end = new AbortController();
  let speaking: AbortController | undefined;
  let responses = 0;
  signal.addEventListener('abort', () => end.abort());
  end.signal.addEventListener('abort', () => speaking?.abort());

  function report(event: ProviderEvent): void {
    if (!end.signal.aborted) onEvent(event);
  }

  async function speak(text: string): Promise<void> {
    const responseId = `stub-${++responses}`;
    const cancel = new AbortController();
    speaking = cancel;
    report({ type: 'responseStarted', responseId });
    for (const { pcm } of toneFor(text, sampleRate)) {
      // Lets a cancellation happen in between.
      await nextTurn();
      if (cancel.signal.aborted) break;
      report({ type: 'audioDelta', responseId, pcm });
    }
    speaking = undefined;
    const { aborted } = cancel.signal;
    if (!aborted) report({ type: 'audioDone', responseId });
    report({ type: 'responseDone', responseId, status: aborted ? 'cancelled' : 'completed' });
  }

  queueMicrotask(() => report({ type: 'ready', model: 'local-tone' }));
  return {
    sendAudio(pcm, rate) {
      createResampler(rate, sampleRate)(pcm);
    },
    commitAudio() {},
    clearAudio() {},
    sendText() {},
    cancelResponse: () => speaking?.abort(),
    sendToolResult() {},
    appendContext() {},
    truncate() {},
    requestResponse({ exactText } = {}) {
      if (exactText === undefined) report({ type: 'error', message: 'the stub speaks only a given text' });
      else if (speaking) report({ type: 'error', message: 'response already running' });
      else if (!end.signal.aborted) void speak(exactText);
    },
    pause() {},
    resume() {},
    close: () => end.abort(),
  };
};
