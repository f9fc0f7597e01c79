import { useSignal } from '@preact/signals';
import { Button, Notice, SwitchRow, useToast } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { messageOf } from '../../shared/load.tsx';
import { useApp } from '../context.ts';
import type { NoticeState } from './notices.ts';

/** The obstacle to notifications, and the one step to remove it. */
const OBSTACLES: Readonly<Partial<Record<NoticeState, string>>> = {
  insecure:
    'Notifications need a secure page. Open the relay by its https address, with Tailscale Serve or a certificate (RELAY_SSL_CERT).',
  'not-installed':
    'On an iPhone or iPad, notifications need the app on the home screen: tap Share, then Add to Home Screen, and open it from there.',
  unsupported: 'This browser cannot be notified. Chrome, Edge, Firefox and Safari can, outside of private windows.',
  blocked: 'Notifications are blocked for this page. Allow them in the settings of this site in your browser.',
};

/** The switches for notifications, with this browser's missing requirements. */
export function NoticeSwitches() {
  const t = useT();
  const { notices, inbox } = useApp();
  const toast = useToast();
  const isBusy = useSignal(false);
  const state = notices.state.value;
  const obstacle = OBSTACLES[state];

  async function attempt(work: () => Promise<void>): Promise<void> {
    isBusy.value = true;
    try {
      await work();
    } catch (error) {
      toast(t(messageOf(error)));
    } finally {
      isBusy.value = false;
    }
  }

  if (!inbox.isOffered.value) return null;
  return (
    <section class="card" aria-labelledby="notices">
      <h2 id="notices">{t('Notifications')}</h2>
      {obstacle ? (
        <Notice tone="warn">{t(obstacle)}</Notice>
      ) : (
        <>
          <SwitchRow
            label={t('Call this device')}
            hint={t('When a message was not seen for ten seconds, also with this page closed.')}
            checked={state === 'on'}
            disabled={isBusy.value}
            onChange={(on) => void attempt(on ? notices.turnOn : notices.turnOff)}
          />
          <SwitchRow
            label={t('Show the words')}
            hint={t('Title and beginning of the message, encrypted on their way, but readable on a locked screen.')}
            checked={notices.hasContent.value}
            disabled={isBusy.value || state !== 'on'}
            onChange={(on) => void attempt(() => notices.setContent(on))}
          />
        </>
      )}
    </section>
  );
}

/** A hint in the inbox, while notifications are off and could be on. */
export function NoticeHint() {
  const t = useT();
  const { notices, settings } = useApp();
  const toast = useToast();
  if (notices.state.value !== 'off' || settings.values.knock_hint_seen.value) return null;
  return (
    <Notice
      action={
        <span class="row">
          <Button onClick={() => void notices.turnOn().catch((error) => toast(t(messageOf(error))))}>
            {t('Turn on')}
          </Button>
          <Button
            kind="plain"
            icon="close"
            label={t('Not now')}
            onClick={() => settings.set('knock_hint_seen', true)}
          />
        </span>
      }
    >
      {t('Be called when your agent needs you, also with this page closed.')}
    </Notice>
  );
}
