import { useLayoutEffect } from 'preact/hooks';
import { Button, Notice, Question } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';
import { useApp } from '../context.ts';
import { useFlag } from '../flag.ts';
import { askForPasskey } from './passkey.ts';
import { signOut } from './sign-out.ts';
import { usePasskey } from './use-passkey.ts';

/** Replaces everything while the page is locked. */
export default function LockPage() {
  const t = useT();
  const app = useApp();
  const { lock } = app;
  const { isAsking, error, cancel, run } = usePasskey();
  const lost = useFlag();
  const leaving = useFlag();

  // With the content, not after the next paint: a hidden page paints nothing, and its title may name a conversation.
  useLayoutEffect(() => {
    document.title = 'svc';
  }, []);

  const unlock = () =>
    run(async (signal) => {
      await askForPasskey(lock.passkey.value ?? '', signal);
      lock.open();
    });

  async function leave(): Promise<void> {
    leaving.on();
    await signOut(app);
    location.reload();
  }

  return (
    <div class="screen">
      <h1 class="row">
        <Icon name="lock" />
        {t('Locked')}
      </h1>
      <p class="soft">{t('Confirm with the passkey of this device to see this page.')}</p>
      {error !== undefined && <Notice tone="bad">{error}</Notice>}
      <div class="row">
        <Button kind="primary" icon="lock" disabled={isAsking} onClick={() => void unlock()}>
          {isAsking ? t('Waiting for the passkey') : t('Unlock')}
        </Button>
        {isAsking && <Button onClick={cancel}>{t('Cancel')}</Button>}
      </div>
      <div class="row">
        <Button kind="plain" onClick={lost.on}>
          {t('The passkey is lost')}
        </Button>
      </div>
      {lost.isOn && (
        <Question
          title={t('Sign out of this browser?')}
          confirm={t('Sign out')}
          isBusy={leaving.isOn}
          onConfirm={() => void leave()}
          onClose={lost.off}
        >
          <p>
            {t(
              'This ends the session and deletes the pairing, messages, conversations and drafts stored in this browser. Pair it again with a new code from the host: svc pair --web',
            )}
          </p>
        </Question>
      )}
    </div>
  );
}
