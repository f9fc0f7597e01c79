import type { Config } from '../../config.ts';
import { fromBase64 } from '../../kit/bytes.ts';
import type { JsonObject } from '../../kit/json.ts';
import { cutText, startedEvent } from '../output/render.ts';
import { createRenderSessions, type RenderKind, type RenderSessionsDeps, type VoiceSession } from '../session.ts';
import { type RealtimeSettings, voiceOutput } from '../settings.ts';
import { LAB_RULES } from '../socket/rules.ts';
import type { EventBody } from '../socket/types.ts';

const DEFAULT_RATE = 24_000;
/** Spoken if a client sends no text. */
const SAMPLE_SENTENCE = 'Hello, this is a short test of the realtime voice lab.';
const DEV_CHECK = 'voice_realtime_dev_check';

/** Any provider, any number of renders, no resume. */
const labKind = (logsTranscripts: boolean): RenderKind<RealtimeSettings> => ({
  name: 'the realtime voice lab',
  path: '/voice/realtime',
  protocol: 'svc.voice.realtime.v0',
  use: 'any',
  prefix: 'realtime',
  rules: LAB_RULES,
  loggedAs: 'voice.session',
  ready: () => ({}),
  settings: ({ settings }) => ({ ...voiceOutput.defaults, ...settings }),
  // A session's speech is logged only at debug level (contract 05 §15).
  logged: (event) =>
    event.type === 'voice.transcript.final' && !logsTranscripts
      ? { ...event, text: `<${String(event.text).length} characters>` }
      : event,
  behave,
});

export interface VoiceLabDeps extends RenderSessionsDeps<RealtimeSettings> {
  config: Pick<Config, 'voiceResumeTtlMs' | 'logLevel'>;
}

/** The realtime lab, to try providers with (contract 05 §14). */
export const createVoiceLab = (deps: VoiceLabDeps) =>
  createRenderSessions(labKind(deps.config.logLevel === 'DEBUG'), deps);

function behave(session: VoiceSession<RealtimeSettings>): (message: JsonObject) => void {
  let inputBytes = 0;

  /** Counts the audio but does not use it, since the lab renders text. */
  function append({ audio_base64: text, sample_rate: rate }: JsonObject): void {
    const audio = typeof text === 'string' && text !== '' ? fromBase64(text) : null;
    if (!audio) {
      session.refuse('input_audio.append needs audio_base64 in valid base64');
      return;
    }
    inputBytes += audio.length;
    session.publish({
      type: 'voice.input_audio.received',
      byte_count: audio.length,
      total_bytes: inputBytes,
      sample_rate: Number.isInteger(rate) && (rate as number) > 0 ? (rate as number) : DEFAULT_RATE,
    });
  }

  function create(message: JsonObject): void {
    if (session.isBusy) {
      session.refuse('response already running');
      return;
    }
    const given = [message.text, message.prompt].find((value) => typeof value === 'string' && value.trim() !== '');
    session.render(message, {
      text: cutText((given as string | undefined) ?? SAMPLE_SENTENCE),
      defaultMode: 'conversation',
      before: (request) => [
        startedEvent(session.voice.provider, request, { input_audio_bytes: inputBytes }),
        ...(request.toolScaffold ? scaffold(inputBytes) : []),
      ],
      activityAfter: 'idle',
    });
  }

  return (message) => {
    if (message.type === 'input_audio.append') append(message);
    else if (message.type === 'response.create') create(message);
    else session.refuseType(message);
  };
}

/** A fake tool call, to try how a client shows one. */
const scaffold = (input_audio_bytes: number): EventBody[] => [
  { type: 'voice.tool.requested', name: DEV_CHECK, arguments: { input_audio_bytes } },
  { type: 'voice.tool.completed', name: DEV_CHECK, result: 'scaffold-only' },
];
