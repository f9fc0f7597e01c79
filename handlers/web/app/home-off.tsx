import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { timeText } from '../shared/ages.ts';
import { Button, Notice } from '../shared/components.tsx';
import { useI18n } from '../shared/i18n.ts';
import { useApp } from './context.ts';
import type { Session } from './session.ts';
import { httpBase } from './stored-pairing.ts';

/** Screens that have nothing without home. */
const HOME_ONLY = /^(?:chat|terminal|tui|voice|profiles|usage)$/;

/** At the mailbox (contract 12 §3): why, and what goes on. `known` is the mailbox that there was when the page began. */
export default function HomeOff({ screen, known }: { screen: string; known: string | undefined }) {
  const { t, language } = useI18n();
  const { session } = useApp();
  const isBarred = useIsBarred(session, known);
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

/** True if the policy with which this page came bars it from the other side of its mirror, as the browser says. */
function useIsBarred({ pairing }: Session, known: string | undefined): boolean {
  const isBarred = useSignal(false);
  const mailbox = pairing.value?.mailbox?.url;
  useEffect(() => {
    const onViolation = ({ effectiveDirective }: SecurityPolicyViolationEvent) => {
      if (effectiveDirective === 'connect-src') isBarred.value = true;
    };
    document.addEventListener('securitypolicyviolation', onViolation);
    // Asked for once: a page that began with its mailbox has the policy for it.
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
