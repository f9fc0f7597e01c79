import { type Signal, useSignal } from '@preact/signals';
import type { ComponentType } from 'preact';
import { useEffect } from 'preact/hooks';
import { useNow } from '../shared/ages.ts';
import { Button, Loading, Notice, ToastList } from '../shared/components.tsx';
import { useT } from '../shared/i18n.ts';
import { hrefOf, useRouter } from '../shared/router.ts';
import { Shell } from '../shared/shell.tsx';
import { VersionNotice } from '../shared/version-notice.tsx';
import { useApp } from './context.ts';
import { offered } from './offered.ts';
import { screens } from './screens.ts';
import { ConnectionChip } from './status.tsx';

/** Milliseconds between looks for grants that have ended. */
const GRANT_CHECK = 2000;

export interface AppShellProps {
  /** The code of a pairing link, until it was used. */
  code: Signal<string | null>;
  /** Whether this browser keeps the pairing. */
  isKept: boolean;
}

/** The whole page: the pairing while there is none, else the screens. */
export function AppShell({ code, isKept }: AppShellProps) {
  const { session, inbox } = useApp();
  const now = useNow(GRANT_CHECK);
  if (!session.pairing.value || code.value !== null) return <PairPage code={code} isKept={isKept} />;
  return (
    <Shell
      screens={offered(screens, session, now.value)}
      status={<ConnectionChip />}
      notices={<PageNotices />}
      badges={{ inbox: inbox.unread }}
    />
  );
}

/** Loaded only where there is something to pair. */
function PairPage(props: AppShellProps) {
  const loaded = useSignal<{ Pair: ComponentType<AppShellProps> } | null>(null);
  useEffect(() => {
    void import('./pair.tsx').then(({ Pair }) => {
      loaded.value = { Pair };
    });
  }, [loaded]);
  const Pair = loaded.value?.Pair;
  return (
    <main>
      {Pair ? <Pair {...props} /> : <Loading />}
      <ToastList />
    </main>
  );
}

/** What concerns every screen: another version of the relay, and what the relay says to people. */
function PageNotices() {
  const t = useT();
  const { session, shares } = useApp();
  const { screen } = useRouter().place.value;
  const version = session.relayVersion.value;
  const { notice } = session;
  return (
    <>
      <VersionNotice version={session.isOnline.value ? version : undefined} />
      {shares.pending.value && screen !== 'shared' && (
        <Notice
          action={
            <a class="button" href={hrefOf('shared')}>
              {t('Open')}
            </a>
          }
        >
          {t('What another app has shared waits here.')}
        </Notice>
      )}
      {notice.value !== '' && (
        <Notice
          tone="warn"
          action={<Button kind="plain" icon="close" label={t('Close')} onClick={session.dismissNotice} />}
        >
          {notice.value}
        </Notice>
      )}
    </>
  );
}
