import { useSignal } from '@preact/signals';
import type { FreezeState } from '../../../lib/operations/freeze-state.ts';
import { timeText } from './ages.ts';
import type { Api } from './api.ts';
import { Button, Notice, Question } from './components.tsx';
import { useI18n, useT } from './i18n.ts';
import { useCall } from './load.tsx';

interface FreezeProps {
  api: Api;
  freeze: FreezeState | null;
  /** True if the relay does not answer, so that changes are disabled. */
  isAway?: boolean;
  /** Called after the relay has done it. */
  onDone?(): void;
}

/** Stops the agent on every device with one tap (contract 09 §3). Hidden while it is stopped. */
export function FreezeButton({ api, freeze, isAway, onDone, withText = false }: FreezeProps & { withText?: boolean }) {
  const t = useT();
  const { isBusy, run } = useCall(api);
  if (freeze) return null;
  const name = t('Freeze the agent on every device');
  return (
    <Button
      icon="freeze"
      kind={withText ? 'danger' : 'plain'}
      label={withText ? undefined : name}
      disabled={isBusy || isAway}
      onClick={async () => {
        const done = t('Frozen: the agent can act on no device.');
        if (await run('relay/freeze', { method: 'POST' }, done)) onDone?.();
      }}
    >
      {withText ? name : undefined}
    </Button>
  );
}

/** The first line of every page while the relay is frozen. Unfreezing takes two taps. */
export function FreezeBanner({ freeze, ...rest }: FreezeProps & { mayEnd: boolean }) {
  return freeze && <Frozen freeze={freeze} {...rest} />;
}

function Frozen({
  api,
  freeze: { since, by, reason },
  isAway,
  mayEnd,
  onDone,
}: FreezeProps & { freeze: FreezeState; mayEnd: boolean }) {
  const { t, language } = useI18n();
  const { isBusy, run } = useCall(api);
  const isAsking = useSignal(false);
  const close = () => {
    isAsking.value = false;
  };

  async function end(): Promise<void> {
    if (!(await run('relay/freeze', { method: 'DELETE' }, t('No longer frozen.')))) return;
    close();
    onDone?.();
  }

  const facts = {
    by: by === 'operator' ? t('the operator') : by,
    // Not the age, since an alert that changes every second would be read out every second.
    time: timeText(since * 1000, language),
    reason: reason ?? '',
  };
  return (
    <div class="banner">
      <Notice
        tone="bad"
        action={
          mayEnd && (
            <Button
              disabled={isAway}
              onClick={() => {
                isAsking.value = true;
              }}
            >
              {t('End the freeze')}
            </Button>
          )
        }
      >
        <b>
          {reason === null
            ? t('Frozen by {by} since {time}', facts)
            : t('Frozen by {by} since {time}: {reason}', facts)}
        </b>
        {' · '}
        {t('The agent can act on no device.')}{' '}
        {!mayEnd && t('It ends with svc unfreeze, or on a device with the grant bridge.')}
      </Notice>
      {isAsking.value && (
        <Question
          title={t('End the freeze?')}
          confirm={t('End the freeze')}
          isBusy={isBusy}
          isAway={isAway}
          onConfirm={() => void end()}
          onClose={close}
        >
          <p>{t('The agent may act on devices again at once.')}</p>
        </Question>
      )}
    </div>
  );
}
