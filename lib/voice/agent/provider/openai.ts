import type { ConnectProvider } from './provider.ts';
import { createRealtimeProvider, type RealtimeProviderParts } from './realtime.ts';

const SAMPLE_RATE = 24_000;
const TRANSCRIBER = 'gpt-realtime-whisper';

/** OpenAI Realtime (contract 06 §9), and servers of the owner that take its requests (05 §18). */
export const createOpenaiProvider = (
  parts: RealtimeProviderParts,
  { provider, label } = { provider: 'openai_realtime', label: 'OpenAI' },
): ConnectProvider =>
  createRealtimeProvider(
    {
      provider,
      label,
      sampleRate: SAMPLE_RATE,
      session: ({ model, voice, instructions }, tools) => ({
        type: 'realtime',
        model,
        instructions,
        output_modalities: ['audio'],
        audio: {
          input: {
            format: { type: 'audio/pcm', rate: SAMPLE_RATE },
            turn_detection: null,
            transcription: { model: TRANSCRIBER },
          },
          output: { format: { type: 'audio/pcm' }, voice },
        },
        tools,
        tool_choice: 'auto',
      }),
    },
    parts,
  );
