import { useComputed, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { ageText, useNow } from '../shared/ages.ts';
import { Button, Chip, inPage, Notice, TextField } from '../shared/components.tsx';
import { FreezeBanner, FreezeButton } from '../shared/freeze.tsx';
import { useT } from '../shared/i18n.ts';
import { Shell } from '../shared/shell.tsx';
import { VersionNotice } from '../shared/version-notice.tsx';
import { useConsole } from './context.ts';
import { useFreeze } from './parts.tsx';
import { screens } from './screens.ts';

/** The whole page: screens, with the state of the relay above them. */
export function ConsoleShell() {
  const { relay, isAway } = useConsole();
  const { pending, health, freeze } = relay;
  useEffect(() => pending.watch(), [pending]);
  useEffect(() => health.watch(), [health]);
  useEffect(() => freeze.watch(), [freeze]);
  const waiting = useComputed(() => pending.state.value.value?.requests.length ?? 0);
  const refusal = useRefusal();
  const frozen = useFreeze();
  return (
    <div class={refusal !== undefined ? 'locked' : isAway.value ? 'away' : undefined}>
      <Shell
        screens={screens}
        banner={<FreezeBanner {...frozen} mayEnd />}
        status={
          <>
            <FeedChip />
            {refusal === undefined && <FreezeButton {...frozen} />}
          </>
        }
        notices={<Notices />}
        badges={{ pair: waiting }}
      />
    </div>
  );
}

/** Why the relay does not accept this browser as its operator's; undefined while it does. */
function useRefusal(): string | undefined {
  const { relay } = useConsole();
  const state = relay.feed.state.value;
  return state.kind === 'refused' ? state.reason : relay.refusal.value;
}

/** Shows whether the relay reports events: its stream sends something every 15 s, and counts as lost after 45. */
function FeedChip() {
  const t = useT();
  const { kind } = useConsole().relay.feed.state.value;
  // A stream outlives the token that opened it.
  switch (useRefusal() === undefined ? kind : 'refused') {
    case 'live':
      return <Chip tone="good">{t('Live')}</Chip>;
    case 'connecting':
      return <Chip>{t('Connecting')}</Chip>;
    case 'lost':
      return <Chip tone="bad">{t('Relay away')}</Chip>;
    case 'refused':
      return <Chip tone="warn">{t('Locked')}</Chip>;
  }
}

function Notices() {
  const { relay } = useConsole();
  const state = relay.feed.state.value;
  const refusal = useRefusal();
  if (refusal !== undefined) return <Locked reason={refusal} />;
  if (state.kind === 'lost') return <Away since={state.since} />;
  return (
    <div class="notices">
      <VersionNotice version={relay.health.state.value.value?.version} />
    </div>
  );
}

function Away({ since }: { since: number }) {
  const t = useT();
  const now = useNow();
  const { relay } = useConsole();
  return (
    <div class="notices">
      <Notice
        tone="bad"
        action={
          <Button icon="refresh" onClick={relay.feed.wake}>
            {t('Try now')}
          </Button>
        }
      >
        {t('The relay has not answered for {age}. This is its last known state; the page reconnects automatically.', {
          age: ageText(now.value - since, t),
        })}
      </Notice>
    </div>
  );
}

/** Requests a credential of the operator, if the relay cannot know it. */
function Locked({ reason }: { reason: string }) {
  const t = useT();
  const { relay, credential, api } = useConsole();
  const typed = useSignal('');
  return (
    <div class="notices">
      <form
        class="card"
        onSubmit={inPage(() => {
          const text = typed.value.trim();
          if (text === '') return;
          credential.value = text;
          typed.value = '';
          relay.restart();
        })}
      >
        <h2>{t('The relay does not know this browser as its operator')}</h2>
        <p>{t(reason)}</p>
        <TextField
          label={t('Operator token or key')}
          hint={t('It stays in the memory of this page, and is gone when you close or reload it.')}
          of={typed}
          type="password"
          autocomplete="off"
        />
        <dl class="facts">
          <dt>{t('Relay at the edge')}</dt>
          <dd>
            <code>svc relay operator-token --relay {new URL(api.base).origin}</code>
          </dd>
          <dt>{t('Relay on this machine')}</dt>
          <dd>
            <code>cat ~/.svc/svc-relay/operator-key</code>
          </dd>
        </dl>
        <div class="actions">
          <Button type="submit" kind="primary" icon="lock">
            {t('Unlock')}
          </Button>
        </div>
      </form>
    </div>
  );
}
