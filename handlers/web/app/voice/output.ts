import { fromBase64 } from '../../../../lib/kit/bytes.ts';
import { deferred } from '../../../../lib/kit/deferred.ts';
import type { JsonObject } from '../../../../lib/kit/json.ts';
import type { App } from '../context.ts';
import { until } from '../until.ts';
import { chosenVoice } from './choice.ts';
import type { BasicConfig } from './offer.ts';
import { createPlayer } from './player.ts';
import { openVoiceSocket } from './socket.ts';

/** Settings of voice output (contract 05 §10), as far as they are used. */
interface OutputConfig {
  enabled: boolean;
  provider: string;
  sample_rate: number;
  auth: { xai_env: boolean; xai_oauth: boolean; openai_env: boolean };
}

/** A session that renders speech: its settings, and how to request speech. */
export interface Rendering {
  path: 'voice/output' | 'voice/realtime';
  /** Body of the session's request. */
  body: JsonObject;
  /** Members of the message that requests speech, besides the text. */
  request: JsonObject;
  /** Hertz. */
  rate: number;
}

/** The relay's voice output with the person's settings, or null if it cannot stream. */
export async function outputOf(app: App, signal: AbortSignal): Promise<Rendering | null> {
  try {
    const [{ enabled, provider, sample_rate: rate, auth }, { tts }] = await Promise.all([
      app.api.call<OutputConfig>('voice/output/config', { signal }),
      app.api.call<BasicConfig>('voice/config', { signal }),
    ]);
    const hasKey: Readonly<Record<string, boolean>> = {
      openai_tts: auth.openai_env,
      xai_tts: auth.xai_env || auth.xai_oauth,
      // An owner's server or program needs no key (contract 05 §18).
      local_tts: true,
    };
    // The rules for spoken files apply here too.
    const isSame = tts.available && provider === `${tts.provider}_tts`;
    return enabled && (hasKey[provider] || isSame)
      ? renderingOf(app, { rate, voice: chosenVoice(app, 'spoken', provider) })
      : null;
  } catch {
    return null;
  }
}

/** Voice output with a voice, in the person's language and at their speed. */
export function renderingOf({ settings }: App, { rate, voice }: { rate: number; voice?: string }): Rendering {
  const { voice_language: language, voice_speed: speed } = settings.values;
  return {
    path: 'voice/output',
    body: { ...(voice !== undefined && { voice }), ...(language.value !== '' && { language: language.value }) },
    request: speed.value === 100 ? {} : { provider_options: { speed: speed.value / 100 } },
    rate,
  };
}

interface Output {
  text: string;
  rendering: Rendering;
  over: AbortSignal;
  /** The first sound is on its way to the loudspeaker. */
  onSound(): void;
}

/**
 * Speaks a text while the relay renders it (contract 05 §12). Resolves at the end of the sound, or when it is over; to false
 * if nothing was audible, so that the text can be spoken in another way.
 */
export async function speakOutput(app: App, { text, rendering, over, onSound }: Output): Promise<boolean> {
  const { path, body, request, rate } = rendering;
  const session = { method: 'POST', body, signal: over } as const;
  const { websocket_path } = await app.api.call<{ websocket_path: string }>(`${path}/session`, session);
  let wasHeard = false;
  const player = createPlayer({
    rate,
    // The lab does not number its audio.
    onPlayed: (id) => id > 0 && socket.send({ type: 'client.ack', audio_event_id: id, played_audio_event_id: id }),
  });
  const rendered = deferred();
  const socket = openVoiceSocket(app, websocket_path, {
    open() {
      socket.send({ type: 'session.start' });
      socket.send({ type: 'response.create', text, ...request });
    },
    message(event) {
      if (event.type === 'voice.audio.delta') play(event);
      else if (event.type === 'voice.response.done' || event.type === 'voice.error') rendered.resolve();
    },
    close: () => rendered.resolve(),
  });
  over.addEventListener('abort', () => {
    rendered.resolve();
    player.clear();
  });

  function play({ audio_event_id, audio_base64, sample_rate }: JsonObject): void {
    const pcm = typeof audio_base64 === 'string' ? fromBase64(audio_base64) : null;
    if (!pcm || typeof sample_rate !== 'number') return;
    if (!wasHeard) onSound();
    wasHeard = true;
    player.play(typeof audio_event_id === 'number' ? audio_event_id : 0, pcm, sample_rate);
  }

  try {
    if (!over.aborted) await rendered.promise;
    await until(player.isPlaying, (isPlaying) => !isPlaying);
    return wasHeard || over.aborted;
  } finally {
    socket.send({ type: 'session.close' });
    socket.close('done');
    player.close();
  }
}
