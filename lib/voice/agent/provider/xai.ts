import type { Dialect } from './realtime.ts';

/** xAI Grok Realtime (contract 06 §9). */
export const xai: Dialect = {
  provider: 'xai_realtime',
  label: 'xAI',
  ignoresTruncation: true,
  session({ voice, instructions, sampleRate }, tools) {
    const format = { type: 'audio/pcm', rate: sampleRate };
    return { voice, instructions, audio: { input: { format }, output: { format } }, turn_detection: null, tools };
  },
  exactText: (text) => ({
    type: 'conversation.item.create',
    item: {
      type: 'force_message',
      role: 'assistant',
      interruptible: true,
      content: [{ type: 'output_text', text }],
    },
  }),
};
