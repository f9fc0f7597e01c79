import * as v from 'valibot';
import type { JsonObject } from '../kit/json.ts';
import { readPageOrigins } from './home-pages.ts';
import type { RecordDeps } from './records.ts';

const PAGES = 'pages';
const HOME_PAGES = 'home-pages';
/** Maximum origins of pages that are devices of home. */
const MAX_PAGES = 256;
const Origins = v.object({ origins: v.array(v.string()) });

export interface EdgePagesDeps extends Omit<RecordDeps, 'clock'> {
  /** A change could not be stored. */
  failed(): void;
}

/** At the edge, origins of pages: those that are devices of home, and home's own. */
export function openEdgePages({ store, records, log, failed }: EdgePagesDeps) {
  /** A session is checked by its own origin; these only distinguish pages of home from strangers. */
  let pages = records.one(PAGES, Origins)?.origins ?? [];
  let homePages = records.one(HOME_PAGES, Origins)?.origins ?? [];

  return {
    isPage: (origin: string): boolean => pages.includes(origin),

    homePages: (): readonly string[] => homePages,

    /** Records the page of a device of home. */
    add(origin: string | undefined): void {
      if (origin === undefined || pages.includes(origin)) return;
      pages = [...pages, origin].slice(-MAX_PAGES);
      void store.setItem(PAGES, { origins: pages }).catch(failed);
    },

    /** Records home's own pages, as sent by home. */
    setHome(body: JsonObject): void {
      const origins = readPageOrigins(body);
      if (!origins) {
        log.warn('home gave addresses for its page that cannot be read');
        return;
      }
      homePages = origins;
      void store.setItem(HOME_PAGES, { origins }).catch(failed);
    },

    /** There is no home any more. */
    async leave(): Promise<void> {
      pages = [];
      homePages = [];
      await Promise.all([PAGES, HOME_PAGES].map((name) => store.removeItem(name)));
    },
  };
}
