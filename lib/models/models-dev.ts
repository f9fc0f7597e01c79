import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import { isObject } from '../kit/json.ts';
import { readObject } from '../profiles/secrets.ts';
import type { Answer } from './answer.ts';

const FILE = 'models_dev_cache.json';
/** The whole list is over a megabyte, and grows. */
const LIMIT = 8 * 1024 * 1024;

/** How the list calls a provider that has another key here. */
const FILED_AS: Record<string, string> = { copilot: 'github-copilot' };

const WITHOUT_REASONING: Answer = { efforts: [], exact: true, source: 'models.dev' };

/** The agent's copy of the models.dev list, as far as it says which models do not reason. */
export interface ModelsDev {
  /** Looks at the file, and reads it anew when it is another one. What cannot be read says nothing. */
  read(): Promise<(provider: string, model: string) => Answer | undefined>;
}

export function createModelsDev(host: Host | undefined, root: string): ModelsDev {
  const path = `${root}/${FILE}`;
  let stamp = '';
  let plain: ReadonlySet<string> = new Set();

  const lookUp = (models: ReadonlySet<string>) => (provider: string, model: string) => {
    const filed = Object.hasOwn(FILED_AS, provider) ? (FILED_AS[provider] as string) : provider;
    return models.has(idOf(filed, model)) ? WITHOUT_REASONING : undefined;
  };

  return {
    async read() {
      if (!host) return () => undefined;
      const facts = await unlessUnreadable(host.files.stat(path));
      const found = facts?.kind === 'file' ? `${facts.modified} ${facts.size}` : '';
      if (found === stamp) return lookUp(plain);
      plain = found === '' ? new Set() : withoutReasoning(await readObject(host.files, path, LIMIT));
      stamp = found;
      return lookUp(plain);
    },
  };
}

const idOf = (provider: string, model: string): string => JSON.stringify([provider, model]).toLowerCase();

function withoutReasoning(list: Record<string, unknown>): Set<string> {
  const plain = new Set<string>();
  for (const [provider, entry] of Object.entries(list)) {
    const models = isObject(entry) && isObject(entry.models) ? entry.models : {};
    for (const [id, model] of Object.entries(models)) {
      if (isObject(model) && model.reasoning === false) plain.add(idOf(provider, id));
    }
  }
  return plain;
}
