import type { Tuning } from '../tuning.ts';
import type { Dialect } from './realtime.ts';

const SAMPLE_RATE = 24_000;
const TRANSCRIBER = 'gpt-realtime-whisper';

const truncationOf = (value: NonNullable<Tuning['truncation']>) =>
  typeof value === 'number' ? { type: 'retention_ratio', retention_ratio: value } : value;

/** OpenAI Realtime (contract 06 §9). */
export const openai: Dialect = {
  provider: 'openai_realtime',
  label: 'OpenAI',
  sampleRate: SAMPLE_RATE,
  session: ({ model, voice, instructions, tuning = {} }, tools) => ({
    type: 'realtime',
    model,
    instructions,
    output_modalities: ['audio'],
    audio: {
      input: {
        format: { type: 'audio/pcm', rate: SAMPLE_RATE },
        turn_detection: null,
        transcription: {
          model: TRANSCRIBER,
          ...(tuning.transcriptionLanguage && { language: tuning.transcriptionLanguage }),
        },
        ...(tuning.noiseReduction && { noise_reduction: { type: tuning.noiseReduction } }),
      },
      output: { format: { type: 'audio/pcm' }, voice, ...(tuning.speed && { speed: tuning.speed }) },
    },
    ...(tuning.truncation && { truncation: truncationOf(tuning.truncation) }),
    tools,
    tool_choice: 'auto',
  }),
};
