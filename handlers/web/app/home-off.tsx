import { timeText } from '../shared/ages.ts';
import { Notice } from '../shared/components.tsx';
import { useI18n } from '../shared/i18n.ts';
import { useApp } from './context.ts';

/** Screens that have nothing without home. */
const HOME_ONLY = /^(?:chat|terminal|tui|voice|profiles|usage)$/;

/** At the mailbox (contract 12 §3): why, and what goes on. */
export default function HomeOff({ screen }: { screen: string }) {
  const { t, language } = useI18n();
  const { session } = useApp();
  if (!session.isAtMailbox.value) return null;
  const since = session.pairing.value?.home_off_since;
  return (
    <Notice>
      {since === undefined
        ? t('Home cannot be reached from here.')
        : t('Home is off since {time}.', { time: timeText(since * 1000, language) })}{' '}
      {HOME_ONLY.test(screen)
        ? t('This screen works again when home is back.')
        : t('Messages and answers go on; home gets them when it is back.')}
    </Notice>
  );
}
