import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { isTime } from '../../../../lib/kit/clock.ts';
import { trimmedText } from '../../../../lib/kit/json.ts';
import { timeText } from '../../shared/ages.ts';
import { Button, Choice, Empty, Notice } from '../../shared/components.tsx';
import { useI18n, useT } from '../../shared/i18n.ts';
import { LoadedView, useLoad } from '../../shared/load.tsx';
import { useApp } from '../context.ts';
import { useFlag } from '../flag.ts';
import { isSensitive } from '../sensitive.ts';

/** A notification as a phone sends it (contract 02 §6); any member may be missing. */
interface Posted {
  package_name?: unknown;
  title?: unknown;
  text?: unknown;
  sub_text?: unknown;
  posted_at?: unknown;
}

interface Row {
  app: string;
  title: string;
  text: string;
  /** Epoch ms; null if the phone did not report it. */
  at: number | null;
}

const LIMIT = 100;
/** Milliseconds between reads, since no event reports new ones. */
const PERIOD = 15_000;

const rowOf = ({ package_name, title, text, sub_text, posted_at }: Posted): Row => ({
  app: trimmedText(package_name),
  title: trimmedText(title),
  text: trimmedText(text) || trimmedText(sub_text),
  at: isTime(posted_at) ? posted_at : null,
});

/** The key that a phone sends names a slot, which a later notification reuses. */
const keyOf = (row: Row): string => JSON.stringify(row);

/** The notifications of the paired phones in the relay's memory, newest first. */
export default function Notifications() {
  const t = useT();
  const { api, session } = useApp();
  const isOnline = session.isOnline.value;
  const app = useSignal('');
  const { state, reload } = useLoad(
    async (signal) => {
      const answer = await api.call<{ notifications: Posted[] }>(`notifications/recent?limit=${LIMIT}`, { signal });
      // A phone that reconnects sends some of them again.
      return [...new Map(answer.notifications.map(rowOf).map((row) => [keyOf(row), row])).values()];
    },
    [isOnline],
  );
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible' && isOnline) reload();
    }, PERIOD);
    return () => clearInterval(timer);
  }, [isOnline]);
  return (
    <div class="screen">
      <LoadedView state={state} reload={reload}>
        {(rows) => {
          const apps = [...new Set(rows.map((row) => row.app))].filter(Boolean).toSorted();
          const chosen = apps.includes(app.value) ? app.value : '';
          return (
            <>
              {state.value.error !== undefined && <Notice tone="warn">{t(state.value.error)}</Notice>}
              <div class="row line bottom">
                <div class="grow">
                  <Choice
                    label={t('App')}
                    value={chosen}
                    options={[['', t('All apps')], ...apps.map((name) => [name, name] as const)]}
                    onChange={(value) => {
                      app.value = value;
                    }}
                  />
                </div>
                <Button icon="refresh" label={t('Refresh')} onClick={reload} />
              </div>
              <Rows rows={rows.filter((row) => chosen === '' || row.app === chosen)} />
            </>
          );
        }}
      </LoadedView>
    </div>
  );
}

function Rows({ rows }: { rows: readonly Row[] }) {
  const t = useT();
  if (rows.length === 0) {
    return (
      <Empty icon="bell">
        {t(
          'No phone has shared a notification since the relay was started. Turn on its notification companion to see them here.',
        )}
      </Empty>
    );
  }
  return (
    <ul class="list">
      {rows.map((row) => (
        <li key={keyOf(row)}>
          <NotificationRow row={row} />
        </li>
      ))}
    </ul>
  );
}

function NotificationRow({ row: { app, title, text, at } }: { row: Row }) {
  const { t, language } = useI18n();
  return (
    <article class="note">
      <p class="row apart soft small">
        <span class="grow">{app || t('An app without a name')}</span>
        {at !== null && <time dateTime={new Date(at).toISOString()}>{timeText(at, language)}</time>}
      </p>
      {title !== '' && <Veiled text={title} isTitle />}
      {text !== '' && <Veiled text={text} />}
    </article>
  );
}

/** Text that may contain a code or a password is blurred until tapped. */
function Veiled({ text, isTitle = false }: { text: string; isTitle?: boolean }) {
  const t = useT();
  const shown = useFlag(!isSensitive(text));
  if (shown.isOn) return isTitle ? <h2>{text}</h2> : <p>{text}</p>;
  return (
    <button type="button" class="veil" onClick={shown.on}>
      <span class="blurred" aria-hidden="true">
        {text}
      </span>
      <span class="small">{t('Hidden: tap to show')}</span>
    </button>
  );
}
