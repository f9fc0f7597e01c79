import { shareOf, storeShare } from '../share/stored-share.ts';
import type { WorkerScope } from './scope.ts';

/**
 * Receives content that other apps share with the installed one: the system posts it as a form (`share_target` of the
 * manifest). It is stored in this browser, and the app opens a screen where a person decides what to do with it. Any website
 * can post such a form, so nothing is sent on without that decision.
 */
export function serveShares(scope: WorkerScope, app: string): void {
  const base = new URL('../', app).href;

  async function take(request: Request): Promise<Response> {
    const isKept = await request
      .formData()
      .then((form) => storeShare(base, shareOf(form)))
      .then(
        () => true,
        () => false,
      );
    return Response.redirect(`${app}#/shared${isKept ? '' : '?lost=1'}`, 303);
  }

  scope.addEventListener('fetch', (event) => {
    const { method, url } = event.request;
    if (method === 'POST' && url === `${app}share`) event.respondWith(take(event.request));
  });
}
