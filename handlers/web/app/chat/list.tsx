import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { SearchHit } from '../../../../lib/chat/history-items.ts';
import { timeText } from '../../shared/ages.ts';
import { ApiError } from '../../shared/api.ts';
import { Button, Chip, Dialog, Empty, SwitchRow, TextField } from '../../shared/components.tsx';
import { useI18n, useT } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';
import { LoadedView, useLoad } from '../../shared/load.tsx';
import { hrefOf } from '../../shared/router.ts';
import { useApp } from '../context.ts';
import { useFlag } from '../flag.ts';
import { SearchField } from '../search-field.tsx';
import { createChats } from './chats.ts';
import { createChatMarks, MAX_NAME } from './marks.ts';

/** The argument of the screen for a new conversation. */
export const NEW = 'new';
/** Milliseconds without a key after which the search starts. */
const PAUSE = 250;
/** Minimum characters that the relay accepts. */
const MIN_QUERY = 2;
const MAX_QUERY = 200;

/** The agent's conversations, and a search through all of their messages. `open` is the id of the one beside them. */
export function ConversationList({ open }: { open: string }) {
  const { t } = useI18n();
  const app = useApp();
  const { query, isKeeping } = app.retained(createChats);
  const wanted = query.value.trim();
  const asked = useSignal(wanted);
  const last = app.settings.values.last_session.value;
  useEffect(() => {
    const timer = setTimeout(() => {
      asked.value = wanted;
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [wanted, asked]);
  const isSearch = (text: string) => [...text].length >= MIN_QUERY;
  return (
    <div class="screen">
      <a class="button primary" href={hrefOf('chat', NEW)}>
        <Icon name="plus" />
        {t('New conversation')}
      </a>
      {last !== '' && open === '' && (
        <a class="button" href={hrefOf('chat', last)}>
          {t('Continue the last conversation')}
        </a>
      )}
      {/* A relay that stores no turns has no search either. */}
      {isKeeping.value !== false && <SearchField of={query} label={t('Search conversations')} maxLength={MAX_QUERY} />}
      {isSearch(wanted) && isSearch(asked.value) ? (
        <Hits key={asked.value} query={asked.value} open={open} />
      ) : (
        <Sessions open={open} />
      )}
    </div>
  );
}

const currentOf = (id: string, open: string) => (id === open ? 'true' : undefined);

function Hits({ query, open }: { query: string; open: string }) {
  const { t, language } = useI18n();
  const app = useApp();
  const { marks } = app.retained(createChatMarks);
  const { titleOf } = app.retained(createChats);
  const isOnline = app.session.isOnline.value;
  const found = useLoad(
    async (signal) => {
      try {
        const { hits } = await app.api.call<{ hits: SearchHit[] }>(`chat/search?${new URLSearchParams({ q: query })}`, {
          signal,
        });
        return hits;
      } catch (error) {
        if (error instanceof ApiError && error.status === 404) throw new Error('This relay is too old to search.');
        throw error;
      }
    },
    [isOnline],
  );
  return (
    <LoadedView {...found}>
      {(hits) =>
        hits.length === 0 ? (
          <Empty icon="search">{t('No conversation has these words.')}</Empty>
        ) : (
          <ul class="list" aria-label={t('Found conversations')}>
            {hits.map(({ session_id: id, title, ts, excerpt }) => (
              <li key={id}>
                <a class="item" href={hrefOf('chat', id)} aria-current={currentOf(id, open)}>
                  <span class="text">
                    <span class="row apart nowrap">
                      <b class="cut">{marks.value[id]?.name || title || titleOf(id) || t('Conversation')}</b>
                      {ts !== null && <span class="small soft">{timeText(ts * 1000, language)}</span>}
                    </span>
                    <span class="small soft">{excerpt}</span>
                  </span>
                </a>
              </li>
            ))}
          </ul>
        )
      }
    </LoadedView>
  );
}

function Sessions({ open }: { open: string }) {
  const { t, language } = useI18n();
  const app = useApp();
  const chats = app.retained(createChats);
  const marks = app.retained(createChatMarks).marks.value;
  const isOnline = app.session.isOnline.value;
  // After a new conversation, the agent's list has one more.
  const sessions = useLoad((signal) => chats.list(signal), [isOnline, open]);
  const all = useFlag();
  return (
    <LoadedView {...sessions}>
      {(list) => {
        if (list.length === 0) {
          return <Empty icon="chat">{t('There is no conversation yet. Begin one above.')}</Empty>;
        }
        const shown = all.isOn ? list : list.filter(({ id }) => !marks[id]?.isHidden);
        const hidden = list.filter(({ id }) => marks[id]?.isHidden).length;
        return (
          <>
            {shown.length > 0 && (
              <ul class="list">
                {shown.map(({ id, title, model, updatedAt }) => (
                  <li key={id}>
                    <a class="item" href={hrefOf('chat', id)} aria-current={currentOf(id, open)}>
                      <span class="text">
                        <span>{marks[id]?.name || title}</span>
                        <span class="small soft">
                          {[model, updatedAt !== null && timeText(updatedAt, language)].filter(Boolean).join(' · ')}
                        </span>
                      </span>
                      {marks[id]?.isHidden && <Chip>{t('Hidden')}</Chip>}
                      <Icon name="next" />
                    </a>
                  </li>
                ))}
              </ul>
            )}
            {hidden > 0 && (
              <Button aria-pressed={all.isOn} onClick={all.toggle}>
                {t('Show hidden conversations ({n})', { n: hidden })}
              </Button>
            )}
          </>
        );
      }}
    </LoadedView>
  );
}

/** Renames a conversation on this device, or hides it in the list. */
export function MarkDialog({ id, name: shown, onClose }: { id: string; name: string; onClose(): void }) {
  const t = useT();
  const { marks, set } = useApp().retained(createChatMarks);
  const mark = marks.value[id];
  const name = useSignal(mark?.name ?? '');
  const hidden = useFlag(mark?.isHidden);
  return (
    <Dialog
      title={t('On this device')}
      onClose={onClose}
      onSubmit={() => {
        void set(id, { name: name.value, isHidden: hidden.isOn });
        onClose();
      }}
      submit={t('Save')}
    >
      <TextField
        label={t('Name')}
        hint={t('Only here. Leave it empty for the original name.')}
        of={name}
        maxLength={MAX_NAME}
        placeholder={shown}
      />
      <SwitchRow label={t('Hide in the list')} checked={hidden.isOn} onChange={hidden.set} />
    </Dialog>
  );
}
