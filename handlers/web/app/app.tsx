import type { Signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { useNow } from '../shared/ages.ts';
import { Button, Notice, ToastList } from '../shared/components.tsx';
import { FreezeBanner, FreezeButton } from '../shared/freeze.tsx';
import { useT } from '../shared/i18n.ts';
import { hrefOf, useRouter } from '../shared/router.ts';
import { Lazy, Shell } from '../shared/shell.tsx';
import { VERSION } from '../shared/version.ts';
import { VersionNotice } from '../shared/version-notice.tsx';
import { useApp } from './context.ts';
import { useThreadName } from './inbox/names.ts';
import type { LinkCode } from './launch.ts';
import { offered } from './screens.ts';
import { ConnectionChip } from './status.tsx';

/** Milliseconds between checks for expired grants. */
const GRANT_CHECK = 2000;

export interface AppShellProps {
  /** The code of a pairing link, until it is used. */
  code: Signal<LinkCode | null>;
  /** True if this browser stores the pairing. */
  isKept: boolean;
}

/** The whole page: the pairing screen until the browser is paired, then the app's screens. */
export function AppShell({ code, isKept }: AppShellProps) {
  const t = useT();
  const nameOf = useThreadName();
  const { session, inbox, lock } = useApp();
  const now = useNow(GRANT_CHECK);
  if (lock.isLocked.value && session.pairing.value) {
    return (
      <main>
        <Lazy load={loadLock} />
      </main>
    );
  }
  if (!session.pairing.value || code.value !== null) {
    return (
      <>
        <main>
          <Lazy load={loadPair} {...{ code, isKept }} />
        </main>
        <ToastList />
      </>
    );
  }
  return (
    <Shell
      screens={offered(session, now.value)}
      banner={<Freeze />}
      status={
        <>
          <ConnectionChip />
          <FreezeSwitch />
        </>
      }
      notices={<PageNotices />}
      badges={{ inbox: inbox.unread }}
      destinations={() => [
        ...inbox.threads.value.map((thread) => ({
          title: nameOf(thread),
          hint: t('Inbox'),
          href: hrefOf('inbox', thread.id),
        })),
        ...session.profiles.value.map(({ name }) => ({
          title: name,
          hint: t('Profiles'),
          href: hrefOf('profiles', name),
        })),
      ]}
    />
  );
}

function FreezeSwitch() {
  const { session, api } = useApp();
  return <FreezeButton api={api} freeze={session.freeze.value} isAway={!session.isOnline.value} />;
}

/** The notice while the relay is frozen. Only a session with the grant `bridge` may end it. */
function Freeze() {
  const { session, api } = useApp();
  const mayEnd = session.may('bridge');
  return <FreezeBanner {...{ api, mayEnd }} freeze={session.freeze.value} isAway={!session.isOnline.value} />;
}

const loadLock = () => import('./lock/page.tsx');
const loadHomeOff = () => import('./home-off.tsx');
const loadPair = () => import('./pair.tsx');

/** Notices on every screen: another version of the relay, and the relay's messages to people. */
function PageNotices() {
  const t = useT();
  const { session, settings, shares } = useApp();
  const { screen } = useRouter().place.value;
  const version = session.relayVersion.value;
  const { notice } = session;
  // Loaded while home is reachable: without a service worker, nothing can be loaded when it is off.
  const known = useRef(session.pairing.value?.mailbox?.url);
  const hasMailbox = session.pairing.value?.mailbox && (session.isOnline.value || session.isAway.value);
  const seen = settings.values.last_seen_version.value;
  useEffect(() => {
    if (seen === '') settings.set('last_seen_version', VERSION);
  }, [seen, settings]);
  return (
    <>
      {seen !== '' && seen !== VERSION && (
        <Notice
          action={
            <Button
              kind="plain"
              icon="close"
              label={t('Close')}
              onClick={() => settings.set('last_seen_version', VERSION)}
            />
          }
        >
          {t('This page was updated from version {before} to {version}.', { before: seen, version: VERSION })}
        </Notice>
      )}
      <VersionNotice version={session.isOnline.value ? version : undefined} />
      {hasMailbox && <Lazy isQuiet load={loadHomeOff} {...{ screen, known: known.current }} />}
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
