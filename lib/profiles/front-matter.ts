import { type Mapping, parseMapping } from '../kit/yaml.ts';

/**
 * What a file says about itself in YAML between a leading `---` and the next line that begins so; an empty mapping when
 * it says nothing that can be understood (contract 07 §1.5).
 */
export function frontMatter(text: string): Mapping {
  if (!text.startsWith('---')) return {};
  const end = /\r?\n---/.exec(text);
  if (!end) return {};
  const parsed = parseMapping(text.slice(3, end.index));
  return parsed.ok ? parsed.mapping : {};
}
