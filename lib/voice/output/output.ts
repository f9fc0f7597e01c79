import { createRenderSessions, type RenderKind, type RenderSessionsDeps } from '../session.ts';
import type { OutputSettings } from '../settings.ts';
import { OUTPUT_RULES } from '../socket/rules.ts';
import { cutText, startedEvent } from './render.ts';

const OUTPUT_MODE = { output_mode: 'streaming_tts_renderer' };

/** Sessions of voice output: one render, heard over any number of consecutive sockets (contract 05 §12). */
const OUTPUT: RenderKind<OutputSettings> = {
  name: 'voice output',
  path: '/voice/output',
  protocol: 'svc.voice.output.v0',
  use: 'output',
  prefix: 'voice-output',
  rules: OUTPUT_RULES,
  loggedAs: 'voice.output.session',
  ready: ({ resumeTtl }) => ({ ...OUTPUT_MODE, resume_supported: true, resume_ttl_ms: resumeTtl }),
  settings: ({ settings }) => settings,
  behave: (session) => (message) => {
    const { activity } = session;
    const text = [message.text, message.prompt].find((value) => typeof value === 'string' && value.trim() !== '');
    if (message.type !== 'response.create') session.refuseType(message);
    else if (activity !== 'idle') session.refuse(`response already ${activity === 'busy' ? 'running' : 'completed'}`);
    else if (typeof text !== 'string') session.refuse('response.create missing text');
    else {
      session.render(message, {
        text: cutText(text),
        defaultMode: 'verbatim',
        before: (request) => [startedEvent(session.voice.provider, request, OUTPUT_MODE)],
        failed: { fallback_enabled: session.scope.settings.fallbackEnabled, fallback_provider: 'legacy_svc_tts' },
        done: OUTPUT_MODE,
        activityAfter: 'done',
      });
    }
  },
};

/** Streaming voice output (contract 05 §12). */
export const createVoiceOutput = (deps: RenderSessionsDeps<OutputSettings>) => createRenderSessions(OUTPUT, deps);
