import { fromBase64 } from '../../../../lib/kit/bytes.ts';
import type { JsonObject } from '../../../../lib/kit/json.ts';
import type { App } from '../context.ts';
import { createPlayer } from './player.ts';
import { openVoiceSocket } from './socket.ts';

/** Settings of voice output (contract 05 §10), as far as they are used. */
interface OutputConfig {
  enabled: boolean;
  provider: string;
  sample_rate: number;
  auth: { xai_env: boolean; xai_oauth: boolean; openai_env: boolean };
}

/** Hertz of the relay's voice output, or null where it cannot speak while it renders. */
export async function outputRate({ api }: App, signal: AbortSignal): Promise<number | null> {
  try {
    const { enabled, provider, sample_rate, auth } = await api.call<OutputConfig>('voice/output/config', { signal });
    const hasKey =
      (provider === 'openai_tts' && auth.openai_env) || (provider === 'xai_tts' && (auth.xai_env || auth.xai_oauth));
    return enabled && hasKey ? sample_rate : null;
  } catch {
    return null;
  }
}

interface Output {
  text: string;
  rate: number;
  over: AbortSignal;
  /** The first sound is on its way to the loudspeaker. */
  onSound(): void;
}

/**
 * Speaks a text while the relay renders it (contract 05 §12). Resolves at the end of the sound, or when it is over; to
 * false when nothing was to be heard, so that the text can be spoken otherwise.
 */
export async function speakOutput(app: App, { text, rate, over, onSound }: Output): Promise<boolean> {
  const request = { method: 'POST', body: {}, signal: over } as const;
  const { websocket_path } = await app.api.call<{ websocket_path: string }>('voice/output/session', request);
  let wasHeard = false;
  const player = createPlayer({
    rate,
    onPlayed: (id) => socket.send({ type: 'client.ack', audio_event_id: id, played_audio_event_id: id }),
  });
  let settle = () => {};
  const rendered = new Promise<void>((resolve) => {
    settle = resolve;
  });
  const socket = openVoiceSocket(app, websocket_path, {
    open() {
      socket.send({ type: 'session.start' });
      socket.send({ type: 'response.create', text });
    },
    message(event) {
      if (event.type === 'voice.audio.delta') play(event);
      else if (event.type === 'voice.response.done' || event.type === 'voice.error') settle();
    },
    close: () => settle(),
  });
  over.addEventListener('abort', settle);

  function play({ audio_event_id, audio_base64, sample_rate }: JsonObject): void {
    const pcm = typeof audio_base64 === 'string' ? fromBase64(audio_base64) : null;
    if (!pcm || typeof audio_event_id !== 'number' || typeof sample_rate !== 'number') return;
    if (!wasHeard) onSound();
    wasHeard = true;
    player.play(audio_event_id, pcm, sample_rate);
  }

  try {
    if (!over.aborted) await rendered;
    if (!over.aborted) await silence(player.isPlaying, over);
    return wasHeard || over.aborted;
  } finally {
    socket.send({ type: 'session.close' });
    socket.close('done');
    player.close();
  }
}

/** Resolves when everything was heard, or it is over. */
function silence(isPlaying: ReturnType<typeof createPlayer>['isPlaying'], over: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    over.addEventListener('abort', () => resolve());
    const stop = isPlaying.subscribe((playing) => {
      if (playing) return;
      queueMicrotask(() => stop());
      resolve();
    });
  });
}
