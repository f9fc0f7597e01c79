import { useEffect } from 'preact/hooks';
import { ageText, timeText } from '../../shared/ages.ts';
import { Button, Chip, Loading, Notice, Retry } from '../../shared/components.tsx';
import { type I18n, useI18n, useT } from '../../shared/i18n.ts';
import { Icon, type IconName } from '../../shared/icons.tsx';
import { hrefOf } from '../../shared/router.ts';
import { useApp } from '../context.ts';
import { createOverview, type Overview } from '../overview.ts';
import { offered } from '../screens.ts';
import { TierNotice } from '../tier.tsx';

/** The state of the connection, and counts of waiting items. */
export default function Home() {
  const { t, language } = useI18n();
  const app = useApp();
  const { session } = app;
  const overview = app.retained(createOverview);
  const state = overview.current.value;
  const isOnline = session.isOnline.value;
  const addresses = session.pairing.value?.addresses ?? [];
  const offline = state
    ? t('Offline. What you see is from {time}.', { time: timeText(state.at, language) })
    : t('The relay does not answer.');
  useEffect(overview.refresh, [overview]);
  return (
    <div class="screen">
      <Introduction />
      {session.isAway.value && (
        <Notice tone="bad" action={<Retry onClick={session.retry} />}>
          {session.isClockWrong.value
            ? t(
                "The clock of the relay's machine may be wrong. This browser stays paired: once that clock is set right, it connects again.",
              )
            : offline}
        </Notice>
      )}
      {session.isAway.value && !session.isClockWrong.value && addresses.length > 0 && (
        <Notice tone="warn">
          {t(
            "The relay may have another address now: open the app there. To pair it there, type on the relay's machine: svc pair --web",
          )}{' '}
          {addresses.map((address) => (
            <a key={address} class="link" href={address}>
              {new URL(address).host}
            </a>
          ))}
        </Notice>
      )}
      {isOnline && state && (
        <div class="row">
          <AgentChip state={state} />
        </div>
      )}
      {state ? <Counts state={state} /> : isOnline && <Loading />}
      {state && (
        <section class="card" aria-labelledby="about-relay">
          <h2 id="about-relay">{t('Relay')}</h2>
          <dl class="facts">
            <dt>{t('Address')}</dt>
            <dd>{new URL(app.base).host}</dd>
            <dt>{t('Version')}</dt>
            <dd>{state.version}</dd>
            <dt>{t('Running for')}</dt>
            <dd>{ageText(state.uptimeSeconds * 1000, t)}</dd>
          </dl>
        </section>
      )}
      <TierNotice />
    </div>
  );
}

/** Shown once after the first pairing. */
function Introduction() {
  const t = useT();
  const { settings } = useApp();
  if (settings.values.onboarding_complete.value) return null;
  return (
    <Notice action={<Button onClick={() => settings.set('onboarding_complete', true)}>{t('Got it')}</Button>}>
      {t(
        'This browser is paired. Talk to the agent under Chat, answer its messages under Inbox, use a shell under Terminal. Settings has notifications, the lock, and what a browser cannot do.',
      )}
    </Notice>
  );
}

/** The agent's gateway, as last seen by the relay. */
function AgentChip({ state: { agent } }: { state: Overview }) {
  const { t } = useI18n();
  if (agent === 'fresh') return <Chip tone="good">{t('Agent running')}</Chip>;
  if (agent === 'missing' || agent === 'legacy') return <Chip>{t('Agent: no sign of life yet')}</Chip>;
  return <Chip tone="warn">{t('Agent: {state}', { state: agent })}</Chip>;
}

/** Counts of waiting items, each a link to its screen. */
function Counts({ state }: { state: Overview }) {
  const { t } = useI18n();
  const { session, inbox } = useApp();
  const paths = offered(session).map(({ path }) => path);
  return (
    <ul class="cards">
      {paths.includes('inbox') && (
        <Count
          screen="inbox"
          icon="inbox"
          text={inbox.isLoaded.value ? unreadText(inbox.unread.value, t) : t('Inbox')}
        />
      )}
      {state.shells !== null && (
        <Count
          screen={paths.includes('terminal') ? 'terminal' : undefined}
          argument="shells"
          icon="terminal"
          text={t('Open shells')}
          count={state.shells}
        />
      )}
      <Count
        screen={paths.includes('files') ? 'files' : undefined}
        icon="files"
        text={t('Files on the relay')}
        count={state.files}
      />
    </ul>
  );
}

function unreadText(count: number, t: I18n['t']): string {
  if (count === 0) return t('No unread messages');
  return count === 1 ? t('1 unread message') : t('{n} unread messages', { n: count });
}

interface CountProps {
  /** Target of the link. */
  screen?: string;
  argument?: string;
  icon: IconName;
  text: string;
  count?: number;
}

function Count({ screen, argument, icon, text, count }: CountProps) {
  const content = (
    <>
      <Icon name={icon} />
      <span class="text">{text}</span>
      {count !== undefined && <strong>{count}</strong>}
      {screen && <Icon name="next" />}
    </>
  );
  return (
    <li class="card slim">
      {screen ? (
        <a class="item" href={hrefOf(screen, argument)}>
          {content}
        </a>
      ) : (
        <span class="item">{content}</span>
      )}
    </li>
  );
}
