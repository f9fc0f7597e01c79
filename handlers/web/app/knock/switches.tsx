import { useSignal } from '@preact/signals';
import { Button, Notice, SwitchRow, useToast } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { messageOf } from '../../shared/load.tsx';
import { useApp } from '../context.ts';
import type { KnockState } from './knocks.ts';

/** The obstacle to notifications, and the one step to remove it. */
const OBSTACLES: Readonly<Partial<Record<KnockState, string>>> = {
  insecure:
    'Notifications need a secure page. Open the relay by its https address, with Tailscale Serve or a certificate (RELAY_SSL_CERT).',
  'not-installed':
    'On an iPhone or iPad, notifications need the app on the home screen: tap Share, then Add to Home Screen, and open it from there.',
  unsupported: 'This browser cannot be notified. Chrome, Edge, Firefox and Safari can, outside of private windows.',
  blocked: 'Notifications are blocked for this page. Allow them in the settings of this site in your browser.',
};

/** The switches for notifications, with this browser's missing requirements. */
export function KnockSwitches() {
  const t = useT();
  const { knocks, inbox } = useApp();
  const toast = useToast();
  const isBusy = useSignal(false);
  const state = knocks.state.value;
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
    <section class="card" aria-labelledby="knocks">
      <h2 id="knocks">{t('Notifications')}</h2>
      {obstacle ? (
        <Notice tone="warn">{t(obstacle)}</Notice>
      ) : (
        <>
          <SwitchRow
            label={t('Call this device')}
            hint={t('When a message was not seen for ten seconds, also with this page closed.')}
            checked={state === 'on'}
            disabled={isBusy.value}
            onChange={(on) => void attempt(on ? knocks.turnOn : knocks.turnOff)}
          />
          <SwitchRow
            label={t('Show the words')}
            hint={t('Title and beginning of the message, encrypted on their way, but readable on a locked screen.')}
            checked={knocks.hasContent.value}
            disabled={isBusy.value || state !== 'on'}
            onChange={(on) => void attempt(() => knocks.setContent(on))}
          />
        </>
      )}
    </section>
  );
}

/** A hint in the inbox, while notifications are off and could be on. */
export function KnockHint() {
  const t = useT();
  const { knocks, settings } = useApp();
  const toast = useToast();
  if (knocks.state.value !== 'off' || settings.values.knock_hint_seen.value) return null;
  return (
    <Notice
      action={
        <span class="row">
          <Button onClick={() => void knocks.turnOn().catch((error) => toast(t(messageOf(error))))}>
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
