import type { Adapter } from './adapter.ts';
import { type AdapterParts, withRules } from './call.ts';
import { createElevenlabsTts } from './elevenlabs-tts.ts';
import { createLocalTts } from './local-tts.ts';
import { createOpenaiTts } from './openai-tts.ts';
import { createOpenaiRealtime, createXaiRealtime } from './realtime.ts';
import { renderStub } from './stub.ts';
import { createXaiTts } from './xai-tts.ts';

/** The adapter of a streaming provider, by its id; undefined for an unknown one. */
export type Adapters = (provider: string) => Adapter | undefined;

/** Every adapter of the registry (contract 05 §13). */
export function createAdapters(parts: AdapterParts): Adapters {
  const adapters = new Map<string, Adapter>([
    ['elevenlabs_tts', createElevenlabsTts(parts)],
    ['local_realtime', createOpenaiRealtime(parts, 'local_realtime')],
    ['local_tts', createLocalTts(parts)],
    ['openai_realtime', createOpenaiRealtime(parts)],
    ['openai_tts', createOpenaiTts(parts)],
    ['stub', renderStub],
    ['xai_realtime', createXaiRealtime(parts)],
    ['xai_tts', createXaiTts(parts)],
  ]);
  for (const [provider, adapter] of adapters) adapters.set(provider, withRules(provider, adapter, parts));
  return (provider) => adapters.get(provider);
}
