import type { Api } from '../shared/api.ts';
import { createRequired } from '../shared/context.ts';
import type { Inbox } from './inbox/inbox.ts';
import type { Lock } from './lock/lock.ts';
import type { Notices } from './notices/notices.ts';
import type { PageStore } from './page-store.ts';
import type { Session } from './session.ts';
import type { Settings } from './settings.ts';
import type { Shares } from './share/shares.ts';

/** Context of every screen of the app. */
export interface App {
  session: Session;
  /** The relay's routes with the bearer of this session, which is renewed after it has expired. */
  api: Api;
  settings: Settings;
  lock: Lock;
  inbox: Inbox;
  notices: Notices;
  shares: Shares;
  /** Address of the relay, with a trailing slash. */
  base: string;
  /** Storage that outlives the page, erased when the pairing ends. */
  pageStore: PageStore;
  /**
   * The store that `make` creates, once per pairing: it outlives the screen that first requests it. When the pairing ends,
   * its `close` is called, if any, after which it must not write to `pageStore`.
   */
  retained<T>(make: (app: App) => T): T;
}

/** `const { session, api } = useApp()`. */
export const [ProvideApp, useApp] = createRequired<App>('The app');
