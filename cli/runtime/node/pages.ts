import { existsSync } from 'node:fs';
import type { LoadPages } from '../../../lib/web/pages.ts';

/** Relative to this module: in a build they are beside it, the sources use those of the last build. */
const CANDIDATES = ['./pages.js', '../../../dist/cli/pages.js'];

/** Loads the pages for browsers, as built by `cli/pages.mjs`. None without a build. */
export const loadPages: LoadPages = async () => {
  for (const candidate of CANDIDATES) {
    const url = new URL(candidate, import.meta.url);
    if (existsSync(url)) return (await import(/* @vite-ignore */ url.href)).files;
  }
  return [];
};
