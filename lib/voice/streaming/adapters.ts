import type { Adapter } from './adapter.ts';
import { type AdapterDeps, withRules } from './call.ts';
import { createElevenlabsTts } from './elevenlabs-tts.ts';
import { createLocalTts } from './local-tts.ts';
import { createOpenaiTts } from './openai-tts.ts';
import { createOpenaiRealtime, createXaiRealtime } from './realtime.ts';
import { renderStub } from './stub.ts';
import { createXaiTts } from './xai-tts.ts';

/** The adapter of a streaming provider, by its id; undefined for an unknown one. */
export type Adapters = (provider: string) => Adapter | undefined;

/** Every adapter of the registry (contract 05 §13). */
export function createAdapters(deps: AdapterDeps): Adapters {
  const adapters = new Map<string, Adapter>([
    ['elevenlabs_tts', createElevenlabsTts(deps)],
    ['local_realtime', createOpenaiRealtime(deps, 'local_realtime')],
    ['local_tts', createLocalTts(deps)],
    ['openai_realtime', createOpenaiRealtime(deps)],
    ['openai_tts', createOpenaiTts(deps)],
    ['stub', renderStub],
    ['xai_realtime', createXaiRealtime(deps)],
    ['xai_tts', createXaiTts(deps)],
  ]);
  for (const [provider, adapter] of adapters) adapters.set(provider, withRules(provider, adapter, deps));
  return (provider) => adapters.get(provider);
}
