import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const PLACES = ['../', '../../'];

export interface OwnPackage {
  version: string;
  /** Absolute path of the package's directory, without a final slash; null when there is none around this program. */
  directory: string | null;
}

/** This package: the same from `cli/` in the source tree as from `dist/cli/`. */
export function ownPackage(): OwnPackage {
  for (const place of PLACES) {
    const directory = new URL(place, import.meta.url);
    try {
      const content = JSON.parse(readFileSync(new URL('package.json', directory), 'utf8'));
      if (content?.name === 'svc-relay' && typeof content.version === 'string') {
        return { version: content.version, directory: fileURLToPath(directory).replace(/\/$/, '') };
      }
    } catch {
      // Not there: the next place.
    }
  }
  return { version: '0.0.0', directory: null };
}

export const version = (): string => ownPackage().version;
