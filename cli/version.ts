import { readFileSync } from 'node:fs';

const PLACES = ['../package.json', '../../package.json'];

/** Version of this package: read from `cli/` in the source tree as from `dist/cli/`. */
export function version(): string {
  for (const place of PLACES) {
    try {
      const content = JSON.parse(readFileSync(new URL(place, import.meta.url), 'utf8'));
      if (content?.name === 'svc-relay' && typeof content.version === 'string') return content.version;
    } catch {
      // Not there: the next place.
    }
  }
  return '0.0.0';
}
