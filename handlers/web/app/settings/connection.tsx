import { useSignal } from '@preact/signals';
import { timeText } from '../../shared/ages.ts';
import { Button, SwitchRow, useToast } from '../../shared/components.tsx';
import { useI18n, useT } from '../../shared/i18n.ts';
import { messageOf } from '../../shared/load.tsx';
import { useApp } from '../context.ts';
import { lifetimeOptions, limitSession } from '../lifetime.ts';
import { PlainHttp } from '../tier.tsx';
import { SettingChoice } from './fields.tsx';

/** The address of the relay, the session of this browser, and plain http. */
export function Connection() {
  const { t, language } = useI18n();
  const app = useApp();
  const { session, settings, base } = app;
  const toast = useToast();
  const seconds = settings.values.pair_ttl_seconds.value;
  const pairing = session.pairing.value;

  async function shorten(): Promise<void> {
    try {
      await limitSession(app, seconds);
      toast(t('This session is now limited.'));
    } catch (error) {
      toast(t(messageOf(error)));
    }
  }

  return (
    <section class="card" aria-labelledby="connection">
      <h2 id="connection">{t('Connection')}</h2>
      <dl class="facts">
        <dt>{t('Relay URL')}</dt>
        <dd>
          <code>{base}</code>
        </dd>
        <dt>{t('Relay session token')}</dt>
        <dd>
          <code>{pairing?.session_token.slice(0, 8)}…</code>{' '}
          {pairing?.expires_at
            ? t('until {time}', { time: timeText(pairing.expires_at * 1000, language) })
            : t('without end')}
        </dd>
      </dl>
      <p class="small soft">
        {t(
          'This page came from the relay. The token is kept in the storage of this browser, because a page has no access to a hardware keystore.',
        )}
      </p>
      {pairing?.mailbox && (
        <p class="small soft">
          {pairing.box?.home && pairing.box.public_key
            ? t(
                'While home is off, messages wait at its edge. This browser can open sealed ones: they stay sealed there as long as all of your devices can.',
              )
            : isSecureContext
              ? t(
                  'While home is off, messages wait at its edge. They are not sealed: this browser and home have no keys for that yet.',
                )
              : t(
                  'While home is off, messages wait at its edge. They are not sealed: over plain http, this browser has no key for that.',
                )}
        </p>
      )}
      <SettingChoice
        of="pair_ttl_seconds"
        label={t('Lifetime of a session')}
        hint={t('Used when this browser pairs. The host sets the longest lifetime; a page can only shorten it.')}
        options={lifetimeOptions(t)}
      />
      <div class="row">
        <Button disabled={seconds <= 0} onClick={() => void shorten()}>
          {t('Limit this session to it')}
        </Button>
      </div>
      <PlainConnections />
    </section>
  );
}

/** The consent to plain http, which can be withdrawn. */
function PlainConnections() {
  const t = useT();
  const { settings } = useApp();
  const isAsked = useSignal(false);
  const { insecure_ack_seen: seen, insecure_reason: reason, all_insecure_pair_ack_seen: consent } = settings.values;

  function forget(): void {
    settings.set('insecure_ack_seen', false);
    settings.set('insecure_reason', '');
    settings.set('all_insecure_pair_ack_seen', false);
  }

  const keys = settings.values.settings_details.value && (
    <p class="small soft">
      <code>insecure_ack_seen: {String(seen.value)}</code> · <code>insecure_reason: {reason.value || '–'}</code> ·{' '}
      <code>all_insecure_pair_ack_seen: {String(consent.value)}</code>
    </p>
  );
  if (isSecureContext) {
    return (
      <>
        <p class="small soft">
          {t(
            'Plain connections: this page was loaded over a protected one and cannot use another, so there is nothing to allow.',
          )}
        </p>
        {keys}
      </>
    );
  }
  return (
    <>
      <SwitchRow
        label={t('Allow plain connections')}
        hint={t('When off, this browser asks again before it pairs over plain http. The relay is not affected.')}
        checked={seen.value || isAsked.value}
        onChange={(isOn) => {
          isAsked.value = isOn;
          if (!isOn) forget();
        }}
      />
      {isAsked.value && !seen.value && <PlainHttp />}
      {keys}
    </>
  );
}
