import { computed, signal } from '@preact/signals';
import { render } from 'preact';
import { systemClock } from '../../../lib/kit/clock.ts';
import { createApi } from '../shared/api.ts';
import { createToasts, ProvideToasts } from '../shared/components.tsx';
import { createI18n, type LoadTable, ProvideI18n, preferredLanguage } from '../shared/i18n.ts';
import { createRouter, ProvideRouter } from '../shared/router.ts';
import { ConsoleShell } from './console.tsx';
import { ProvideConsole } from './context.ts';
import { createPairingStore } from './stores/pairing.ts';
import { createRelayStore } from './stores/relay.ts';

/** Sentences of the console in other languages. */
const TABLES: readonly LoadTable[] = [() => import('../shared/locales/console.ts')];

/** Assembles the console and renders it. */
function main(): void {
  const i18n = createI18n(TABLES);
  i18n.choose(preferredLanguage()).catch(() => {});
  const credential = signal<string | null>(null);
  const api = createApi({
    base: new URL('../', location.href).href.replace(/[?#].*$/, ''),
    credentials: () => headersFor(credential.value),
  });
  const relay = createRelayStore({ api, clock: systemClock });
  const pairing = createPairingStore(api, relay);
  const isAway = computed(() => relay.feed.state.value.kind === 'lost');
  relay.feed.start();
  // After a wake-up or a lost network, retry at once.
  addEventListener('online', relay.feed.wake);
  // A browser has six connections to a relay, which hidden tabs must not take from the one in use.
  document.addEventListener('visibilitychange', () => {
    if (document.visibilityState === 'hidden') relay.feed.stop();
    else relay.feed.start();
  });
  render(
    <ProvideI18n value={i18n}>
      <ProvideToasts value={createToasts()}>
        <ProvideRouter value={createRouter('overview')}>
          <ProvideConsole value={{ api, credential, relay, pairing, isAway }}>
            <ConsoleShell />
          </ProvideConsole>
        </ProvideRouter>
      </ProvideToasts>
    </ProvideI18n>,
    document.getElementById('page') as HTMLElement,
  );
}

/**
 * A page has to send `X-Svc-Operator` to be accepted as the operator's (contract 01 §1.3). A token is a JWT, a key is not.
 */
function headersFor(credential: string | null): Record<string, string> {
  const own = { 'x-svc-operator': '1' };
  if (credential === null) return own;
  return credential.split('.').length === 3
    ? { ...own, authorization: `Bearer ${credential}` }
    : { ...own, 'x-svc-operator-key': credential };
}

main();
