import { MAX_DOCUMENT } from '../../lib/dashboard/pages/document.ts';
import { manifestOf, pageOf, readDraft, readExpectedDigest, readPageId } from '../../lib/dashboard/pages/entry.ts';
import type { PageStore } from '../../lib/dashboard/pages/store.ts';
import type { PluginRoute } from './plugin-routes.ts';

/** Bytes: a document that is not compact, and what is around it. */
const MAX_BODY = 4 * MAX_DOCUMENT;

/** The routes of the mobile page store (contract 07 §4.4). */
export const mobileRoutes = (pages: PageStore): PluginRoute[] => [
  ['GET', '/mobile/manifest', async () => manifestOf(await pages.list())],
  ['GET', '/mobile/pages/:id', async ({ params: { id = '' } }) => pageOf(await pages.get(id))],
  ['GET', '/mobile/plugins', async () => ({ plugins: await pages.list() })],
  ['GET', '/mobile/plugins/:id', ({ params: { id = '' } }) => pages.get(id)],
  [
    'PUT',
    '/mobile/plugins/:id/draft',
    async ({ params: { id = '' }, body }) => {
      const checked = readPageId(id);
      return pages.draft(checked, readDraft(await body(MAX_BODY)));
    },
  ],
  [
    'POST',
    '/mobile/plugins/:id/promote',
    async ({ params: { id = '' }, body }) => pages.promote(id, readExpectedDigest(await body())),
  ],
  [
    'POST',
    '/mobile/plugins/:id/remove',
    async ({ params: { id = '' }, body }) => ({
      ok: true,
      id: await pages.remove(id, readExpectedDigest(await body())),
    }),
  ],
];
