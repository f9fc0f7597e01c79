/** Reasoning efforts, in the order of every response (contract 07 §3). */
export const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max', 'ultra'] as const;

export type Effort = (typeof EFFORTS)[number];

/** Where the efforts of a model come from. */
export type EffortSource =
  | 'provider-adapter'
  | 'canonical-fallback'
  | 'models.dev'
  | 'provider-catalog'
  | 'github-catalog';

/** The reasoning efforts that one model takes. Shared between requests, so never changed. */
export interface ModelEfforts {
  readonly efforts: readonly Effort[];
  /** False for the fallback, which lists every effort. */
  readonly exact: boolean;
  readonly source: EffortSource;
}

const SYNONYMS: Record<string, Effort> = { off: 'none', on: 'medium' };

/** The efforts in a list, without duplicates and in canonical order. Other values are dropped. */
export function readEfforts(values: readonly unknown[]): Effort[] {
  const named = new Set<unknown>();
  for (const value of values) {
    if (typeof value !== 'string') continue;
    const word = value.trim().toLowerCase();
    named.add(Object.hasOwn(SYNONYMS, word) ? SYNONYMS[word] : word);
  }
  return EFFORTS.filter((effort) => named.has(effort));
}

const ALIASES: Record<string, string> = {
  github: 'copilot',
  'github-copilot': 'copilot',
  'github-models': 'copilot',
  'github-model': 'copilot',
  'lm-studio': 'lmstudio',
  ollama: 'ollama-cloud',
};

/** Canonical key of a provider: lower case, aliases resolved (contract 07 §3). */
export function providerKey(provider: string): string {
  const key = provider.trim().toLowerCase();
  return Object.hasOwn(ALIASES, key) ? (ALIASES[key] as string) : key;
}

/** A model's name in lower case, without its path. */
export const modelKey = (model: string): string => model.slice(model.lastIndexOf('/') + 1).toLowerCase();
