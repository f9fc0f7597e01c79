import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { Button, Notice, SwitchRow } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { useApp } from '../context.ts';
import { SettingNumber } from '../settings/fields.tsx';
import { askForPasskey, createPasskey, passkeyObstacle } from './passkey.ts';
import { usePasskey } from './use-passkey.ts';

/** Turns the passkey lock on and off, or explains why this browser has none. */
export function LockCard() {
  const t = useT();
  const { lock, session } = useApp();
  const { isAsking, error, cancel, run } = usePasskey();
  const obstacle = useSignal<string | null | undefined>(undefined);
  const passkey = lock.passkey.value;

  useEffect(() => {
    void passkeyObstacle().then((found) => {
      obstacle.value = found;
    });
  }, [obstacle]);

  const change = (isOn: boolean) =>
    run(async (signal) => {
      if (isOn) lock.use(await createPasskey(session.deviceId, signal));
      else if (passkey !== null) {
        await askForPasskey(passkey, signal);
        lock.use(null);
      }
    });

  return (
    <section class="card" aria-labelledby="lock">
      <h2 id="lock">{t('Passkey lock')}</h2>
      {obstacle.value && passkey === null ? (
        <p class="small soft">{t(obstacle.value)}</p>
      ) : (
        <>
          <SwitchRow
            label={t('Lock with a passkey')}
            hint={t('Ask for your fingerprint, face or screen lock when the page opens and after it was hidden.')}
            checked={passkey !== null}
            disabled={isAsking || obstacle.value === undefined}
            onChange={(isOn) => void change(isOn)}
          />
          {error !== undefined && <Notice tone="bad">{error}</Notice>}
          {isAsking && (
            <div class="row">
              <span class="small soft">{t('Waiting for the passkey')}</span>
              <Button onClick={cancel}>{t('Cancel')}</Button>
            </div>
          )}
          <SettingNumber
            of="lock_after_minutes"
            label={t('Lock when hidden for, minutes')}
            hint={t('0 locks at once.')}
          />
          {passkey !== null && (
            <div class="row">
              <Button icon="lock" onClick={lock.lock}>
                {t('Lock now')}
              </Button>
            </div>
          )}
          <p class="small soft">
            {t(
              'The lock stops somebody who holds your unlocked phone from reading and typing here, and nothing more: the token stays unencrypted in the storage of this browser, and notifications still show what you allow them to, and take a yes or no. If you lose the passkey, sign out on the locked page and pair again.',
            )}
          </p>
        </>
      )}
    </section>
  );
}
