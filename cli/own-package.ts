import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { RelayBuild } from '../lib/host/node/relay-lock.ts';

/** The file of a copy that says which directory it was copied from. */
export const COPIED_FROM = 'copied-from';

/** Relative to this module. */
const CANDIDATES = ['../', '../../'];

export interface OwnPackage {
  version: string;
  /** The build that runs; null in the source tree. */
  build?: RelayBuild | null;
  /** Absolute path of the package's directory, without a trailing slash; null when package.json is not found. */
  directory: string | null;
  /** True if this runs from a copy of that directory (`own-copy.ts`). */
  isCopy?: boolean;
}

/** This package, whether it runs from `cli/` in the source tree or from a folder in `dist/`. */
export function ownPackage(): OwnPackage {
  for (const candidate of CANDIDATES) {
    const directory = new URL(candidate, import.meta.url);
    try {
      const content = JSON.parse(readFileSync(new URL('package.json', directory), 'utf8'));
      if (content?.name === 'svc-relay' && typeof content.version === 'string') {
        const original = originOf(directory);
        return {
          version: content.version,
          build: ownBuild(),
          directory: original ?? fileURLToPath(directory).replace(/\/$/, ''),
          isCopy: original !== undefined,
        };
      }
    } catch {
      // Try the next one.
    }
  }
  return { version: '0.0.0', build: ownBuild(), directory: null };
}

function originOf(directory: URL): string | undefined {
  try {
    return readFileSync(new URL(COPIED_FROM, directory), 'utf8');
  } catch {
    return undefined;
  }
}

/** `cli/build.mjs` writes it into the folder of each build. */
function ownBuild(): RelayBuild | null {
  try {
    return JSON.parse(readFileSync(new URL('about.json', import.meta.url), 'utf8')) as RelayBuild;
  } catch {
    return null;
  }
}

/** `1.0.0 (249eabe)`, or with the day of a build that was made outside a repository. */
export function buildText(version: string, build?: RelayBuild | null): string {
  if (!build) return version;
  return `${version} (${build.commit ?? new Date(build.built_at * 1000).toISOString().slice(0, 10)})`;
}
