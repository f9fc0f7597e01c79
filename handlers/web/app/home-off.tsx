import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { timeText } from '../shared/ages.ts';
import { Button, Notice } from '../shared/components.tsx';
import { useI18n } from '../shared/i18n.ts';
import { useApp } from './context.ts';
import { createFiles } from './files/files.ts';
import type { Session } from './session.ts';
import { httpBase } from './stored-pairing.ts';

/** Screens that are empty without home. */
const HOME_ONLY = /^(?:chat|terminal|tui|voice|profiles|usage)$/;
/** Those that have nothing to read either: nothing in them can be tapped or typed into. */
const INERT = /^(?:tui|voice|profiles|usage)$/;

/**
 * The notice at the mailbox (contract 12 §3): why, and which features still work. `known` is the mailbox at the start of the
 * page.
 */
export default function HomeOff({ screen, known }: { screen: string; known: string | undefined }) {
  const { t, language } = useI18n();
  const { session, retained } = useApp();
  // Uploads that an earlier page had begun go on, whatever screen is shown.
  useEffect(() => void retained(createFiles), [retained]);
  const isBarred = useIsBarred(session, known);
  useInertScreen(session.isAtMailbox.value && INERT.test(screen));
  const since = session.pairing.value?.home_off_since;
  return (
    <>
      {isBarred && (
        <Notice
          tone="warn"
          action={
            <Button icon="refresh" onClick={() => location.reload()}>
              {t('Reload')}
            </Button>
          }
        >
          {t('This page began before it knew of both home and mailbox. Reload it, so that it can go to either.')}
        </Notice>
      )}
      {session.isAtMailbox.value && (
        <Notice>
          {since === undefined
            ? t('Home cannot be reached from here.')
            : t('Home is off since {time}.', { time: timeText(since * 1000, language) })}{' '}
          {HOME_ONLY.test(screen)
            ? t('This screen works again when home is back.')
            : t('Messages and answers go on; home gets them when it is back.')}
        </Notice>
      )}
    </>
  );
}

/** Makes a screen inert, except for its notices. The focus comes back to it: its user may have been typing. */
function useInertScreen(isInert: boolean): void {
  useEffect(() => {
    const main = document.querySelector('main');
    if (!main || !isInert) return;
    const focused = document.activeElement;
    const set = (value: boolean) => {
      for (const part of main.querySelectorAll<HTMLElement>(':scope > :not(.notice)')) part.inert = value;
    };
    // Elements that the screen adds when it is loaded.
    const observer = new MutationObserver(() => set(true));
    observer.observe(main, { childList: true });
    set(true);
    return () => {
      observer.disconnect();
      set(false);
      const isLost = document.activeElement === document.body;
      if (isLost && focused instanceof HTMLElement && main.contains(focused)) focused.focus({ preventScroll: true });
    };
  }, [isInert]);
}

/** True if the policy with which this page was loaded blocks the other side of its mirror, as reported by the browser. */
function useIsBarred({ pairing }: Session, known: string | undefined): boolean {
  const isBarred = useSignal(false);
  const mailbox = pairing.value?.mailbox?.url;
  useEffect(() => {
    const onViolation = ({ effectiveDirective }: SecurityPolicyViolationEvent) => {
      if (effectiveDirective === 'connect-src') isBarred.value = true;
    };
    document.addEventListener('securitypolicyviolation', onViolation);
    // Checked once, since a page that started with its mailbox has the policy for it.
    if (mailbox !== known) {
      const sides = [mailbox, pairing.peek()?.endpoints[0]?.url].flatMap((url) => (url ? httpBase(url) : []));
      for (const side of sides.filter((side) => new URL(side).origin !== location.origin)) {
        fetch(`${side}health`, { cache: 'no-store', credentials: 'omit' }).catch(() => {});
      }
    }
    return () => document.removeEventListener('securitypolicyviolation', onViolation);
  }, [mailbox, known]);
  return isBarred.value;
}
