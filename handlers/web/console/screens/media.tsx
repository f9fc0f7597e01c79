import { ageText, sizeText, timeText, useNow } from '../../shared/ages.ts';
import { Button, Empty } from '../../shared/components.tsx';
import { useI18n, useT } from '../../shared/i18n.ts';
import { useConsole } from '../context.ts';
import { ResourceView, useAction } from '../parts.tsx';
import type { MediaRow } from '../stores/answers.ts';

/** The files that devices can fetch by token. */
export default function Media() {
  const t = useT();
  const { relay } = useConsole();
  return (
    <div class="screen">
      <p class="soft">{t('Pictures, recordings and uploads that devices can fetch for a day.')}</p>
      <ResourceView of={relay.media}>
        {(rows) =>
          rows.length === 0 ? (
            <Empty icon="files">{t('There are no files. What the agent shows, or a phone sends, appears here.')}</Empty>
          ) : (
            <ul class="list">
              {rows.map((row) => (
                <li key={row.token}>
                  <File row={row} />
                </li>
              ))}
            </ul>
          )
        }
      </ResourceView>
    </div>
  );
}

function File({ row }: { row: MediaRow }) {
  const { t, language } = useI18n();
  const now = useNow(15_000);
  const { isAway } = useConsole();
  const { isBusy, run } = useAction();
  const facts = [
    row.content_type,
    row.size === null ? '' : sizeText(row.size),
    timeText(row.created_at * 1000, language),
    t('for another {age}', { age: ageText(row.expires_at * 1000 - now.value, t) }),
    row.last_accessed === null ? t('never fetched') : '',
  ].filter(Boolean);
  return (
    <div class="item wraps">
      <span class="text">
        <span dir="auto">{row.file_name}</span>
        <span class="small soft">{facts.join(' · ')}</span>
      </span>
      <Button
        icon="lock"
        disabled={isBusy || isAway.value}
        onClick={() =>
          void run(
            `media/${row.token}/sensitive`,
            { method: 'POST', body: {} },
            t('Devices blur {name} now until it is tapped.', { name: row.file_name }),
          )
        }
      >
        {t('Blur')}
      </Button>
    </div>
  );
}
