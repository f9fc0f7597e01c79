/** How hard a model may be told to think, in the order of every answer (contract 07 §3). */
export const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max', 'ultra'] as const;

export type Effort = (typeof EFFORTS)[number];

const SYNONYMS: Record<string, Effort> = { off: 'none', on: 'medium' };

/** The efforts that a list names, each once and in the order of the vocabulary. What is no effort is left out. */
export function readEfforts(values: readonly unknown[]): Effort[] {
  const named = new Set<unknown>();
  for (const value of values) {
    if (typeof value !== 'string') continue;
    const word = value.trim().toLowerCase();
    named.add(Object.hasOwn(SYNONYMS, word) ? SYNONYMS[word] : word);
  }
  return EFFORTS.filter((effort) => named.has(effort));
}
