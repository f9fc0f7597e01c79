import { computed, effect, signal } from '@preact/signals';
import { render } from 'preact';
import { createApi } from '../shared/api.ts';
import { createToasts, ProvideToasts } from '../shared/components.tsx';
import { createI18n, type LoadTable, ProvideI18n } from '../shared/i18n.ts';
import { createRouter, ProvideRouter } from '../shared/router.ts';
import { AppShell } from './app.tsx';
import { type App, ProvideApp } from './context.ts';
import { createInbox } from './inbox/inbox.ts';
import { registerWorker, renewForWorker } from './install.ts';
import { describeBrowser, takeCode } from './launch.ts';
import { createLock } from './lock/lock.ts';
import { createNotices } from './notices/notices.ts';
import { openPageStore } from './page-store.ts';
import { openPairingStore } from './pairing-store.ts';
import { createSession, type Session } from './session.ts';
import { applyLook, languageOf, openSettings } from './settings.ts';
import { createShares } from './share/shares.ts';
import { until } from './until.ts';
// Small parts of several screens, which would each be a chunk and a request of their own.
import '../../../lib/media/sealed-type.ts';
import './devices/max-name.ts';
import './keyboard.ts';
import './flag.ts';

/** Sentences of the app in other languages, one file per area. */
const TABLES: readonly LoadTable[] = [
  () => import('../shared/locales/app.ts'),
  () => import('../shared/locales/chat.ts'),
  () => import('../shared/locales/devices.ts'),
  () => import('../shared/locales/files.ts'),
  () => import('../shared/locales/settings.ts'),
  () => import('../shared/locales/lock.ts'),
  () => import('../shared/locales/inbox.ts'),
  () => import('../shared/locales/profiles.ts'),
  () => import('../shared/locales/terminal.ts'),
  () => import('../shared/locales/voice.ts'),
];

/** Assembles the app and renders it. Before anything else, it removes the code of a pairing link from the address. */
async function main(): Promise<void> {
  const code = signal(takeCode());
  addEventListener('hashchange', () => {
    code.value = takeCode() ?? code.value;
  });
  const base = new URL('../', location.href).href.replace(/[?#].*$/, '');
  const settings = openSettings();
  const lock = createLock(settings);
  const i18n = createI18n(TABLES);
  const toasts = createToasts();
  const router = createRouter('home');
  effect(() => applyLook(settings.values));
  effect(() => {
    // If a language cannot be loaded, the page keeps its language.
    i18n.choose(languageOf(settings.values.language.value)).catch(() => {});
  });
  const store = await openPairingStore(base);
  const session = createSession({
    store,
    base,
    deviceName: () => settings.values.device_name.value || describeBrowser(),
  });
  const api = createApi({
    base,
    target: () => session.target.value,
    async credentials({ method, path, isLarge }): Promise<Record<string, string>> {
      const token = session.token();
      const dpop = await session.proofFor({ method, path, fresh: isLarge });
      return token === null ? {} : { authorization: `Bearer ${token}`, ...(dpop !== undefined && { dpop }) };
    },
    renew: ({ authorization, dpop }, response) =>
      session.renew(authorization?.slice('Bearer '.length) ?? null, { response, proof: dpop }),
    onSilence: () => session.suspect(),
  });
  renewForWorker((used) => session.renew(used));
  // Registered late, since it fetches every file of the app and would compete with the connection.
  const worker = whenSettled(session).then(() => registerWorker(store.pairing()?.mailbox?.url));
  const pageStore = openPageStore(base);
  // The page may have been closed before everything was erased. A pairing that could not be read now may still exist.
  if (!store.pairing() && store.isKept) await pageStore.clear();
  const notices = createNotices({
    api,
    pageStore,
    worker,
    open: ({ screen, argument }) => router.go(screen, argument),
  });
  const inbox = createInbox({ session, api, base, pageStore, onSeen: (ids) => void notices.close(ids) });
  const shares = createShares(base);
  await inbox.opened;
  session.port('proactive').onOnline(() => {
    if (inbox.isOffered.value) void notices.renew();
  });
  const stores = createStores((make) => make(app));
  const app: App = { session, api, settings, lock, base, inbox, notices, shares, pageStore, retained: stores.retained };
  const isPaired = computed(() => session.pairing.value !== null);
  effect(() => {
    if (isPaired.value && i18n.language) void notices.speak(i18n.t);
  });
  effect(() => {
    if (!isPaired.value) return;
    const loaded = whenSettled(session).then(() => import('./analytics.ts'));
    // Without a network, there are no figures until the next start.
    void loaded.then(({ createAnalytics }) => isPaired.value && app.retained(createAnalytics)).catch(() => {});
  });
  let wasPaired = isPaired.value;
  effect(() => {
    if (wasPaired && !isPaired.value) {
      stores.clear();
      inbox.clear();
      shares.forTerminal.value = '';
      settings.set('last_session', '');
      void Promise.all([pageStore.clear(), shares.clear()]);
      // A browser that refuses keeps showing its notifications.
      void notices.clear().catch(() => {});
    }
    wasPaired = isPaired.value;
  });
  if (store.pairing()) session.start();
  render(
    <ProvideI18n value={i18n}>
      <ProvideToasts value={toasts}>
        <ProvideRouter value={router}>
          <ProvideApp value={app}>
            <AppShell code={code} isKept={store.isKept} />
          </ProvideApp>
        </ProvideRouter>
      </ProvideToasts>
    </ProvideI18n>,
    document.getElementById('page') as HTMLElement,
  );
}

/** Resolves once the relay has answered or will not for now, or if nothing waits for it. */
async function whenSettled({ proof, isAway, pairing }: Session): Promise<void> {
  const isSettled = computed(() => proof.value !== null || isAway.value || pairing.value === null);
  await until(isSettled, Boolean);
  // Render first.
  await new Promise((resolve) => setTimeout(resolve));
}

/** Caches the result of each function until the pairing ends. */
function createStores(create: (make: (app: App) => unknown) => unknown) {
  const made = new Map<(app: App) => unknown, unknown>();
  const retained = <T,>(make: (app: App) => T): T => {
    if (!made.has(make)) made.set(make, create(make));
    return made.get(make) as T;
  };
  return {
    retained,
    clear(): void {
      for (const store of made.values()) (store as { close?(): void }).close?.();
      made.clear();
    },
  };
}

void main();
