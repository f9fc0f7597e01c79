const ALIASES: Record<string, string> = {
  github: 'copilot',
  'github-copilot': 'copilot',
  'github-models': 'copilot',
  'github-model': 'copilot',
  'lm-studio': 'lmstudio',
  ollama: 'ollama-cloud',
};

/** The one name of a provider: lower case, aliases resolved (contract 07 §3). */
export function providerKey(provider: string): string {
  const key = provider.trim().toLowerCase();
  return Object.hasOwn(ALIASES, key) ? (ALIASES[key] as string) : key;
}

/** A model's name without the path before it, in lower case. */
export const modelKey = (model: string): string => model.slice(model.lastIndexOf('/') + 1).toLowerCase();
