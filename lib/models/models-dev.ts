import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import { isObject } from '../kit/json.ts';
import { readObject } from '../profiles/secrets.ts';
import type { ModelEfforts } from './efforts.ts';

const FILE = 'models_dev_cache.json';
/** The list is larger than a megabyte, and grows. */
const MAX_FILE = 8 * 1024 * 1024;

/** Provider keys that the list spells differently. */
const LISTED_AS: Record<string, string> = { copilot: 'github-copilot' };

const WITHOUT_REASONING: ModelEfforts = { efforts: [], exact: true, source: 'models.dev' };

/** The agent's copy of the models.dev list, which says which models do not reason. */
export function createModelsDev(host: Host | undefined, root: string) {
  const path = `${root}/${FILE}`;
  let stamp = '';
  let plain: ReadonlySet<string> = new Set();

  const lookupIn = (models: ReadonlySet<string>) => (provider: string, model: string) => {
    const listed = Object.hasOwn(LISTED_AS, provider) ? (LISTED_AS[provider] as string) : provider;
    return models.has(idOf(listed, model)) ? WITHOUT_REASONING : undefined;
  };

  return {
    /** Rereads the file if it has changed, and returns a lookup. If the file is unreadable, no model is found. */
    async read(): Promise<(provider: string, model: string) => ModelEfforts | undefined> {
      if (!host) return () => undefined;
      const facts = await unlessUnreadable(host.files.stat(path));
      const found = facts?.kind === 'file' ? `${facts.modified} ${facts.size}` : '';
      if (found === stamp) return lookupIn(plain);
      plain = found === '' ? new Set() : withoutReasoning(await readObject(host.files, path, MAX_FILE));
      stamp = found;
      return lookupIn(plain);
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
