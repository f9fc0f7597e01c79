import { copilot } from './copilot.ts';
import { lmstudio } from './lmstudio.ts';
import { ollamaCloud } from './ollama-cloud.ts';
import { openaiCodex } from './openai-codex.ts';
import type { Provider } from './provider.ts';

/** THE table of providers that can be queried, by provider key. */
export const providers: ReadonlyMap<string, Provider> = new Map([
  ['lmstudio', lmstudio],
  ['ollama-cloud', ollamaCloud],
  ['copilot', copilot],
  ['openai-codex', openaiCodex],
]);
