import { type Signal, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { timeText } from '../../shared/ages.ts';
import { Button, Empty, Loading, Notice } from '../../shared/components.tsx';
import { useI18n } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';
import { messageOf } from '../../shared/load.tsx';
import { Panes, useWide } from '../../shared/panes.tsx';
import { hrefOf, useRouter } from '../../shared/router.ts';
import { useApp } from '../context.ts';
import { HOME_THREAD, type Item, isUnread, type Thread } from '../inbox/items.ts';
import { useThreadName } from '../inbox/names.ts';
import { ThreadView } from '../inbox/thread.tsx';
import { NoticeHint } from '../notices/switches.tsx';
import { SearchField } from '../search-field.tsx';

/** Results of a search, newest first. */
const MAX_RESULTS = 50;

/** The threads with the agent, the one in the address, or both if they fit. */
export default function Inbox() {
  const { t } = useI18n();
  const { inbox } = useApp();
  const { argument } = useRouter().place.value;
  const isWide = useWide();
  // Loads messages that arrived while the page was hidden and its socket cut.
  useEffect(() => void inbox.catchUp(), [inbox]);
  useInboxKeys();
  // Here, not in the list, which a page that gets narrower hides beside a thread.
  const query = useSignal('');
  const empty = <Empty icon="inbox">{t('Choose a thread.')}</Empty>;
  return (
    <Panes isWide={isWide} list={<ThreadList query={query} />} empty={empty}>
      {argument !== '' && <ThreadView key={argument} thread={argument} isAlone={!isWide} />}
    </Panes>
  );
}

/** Keys for many messages: j and k for the next and the previous thread, e for read, r to reply. */
function useInboxKeys(): void {
  const { inbox } = useApp();
  const router = useRouter();
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (target.closest?.('input, textarea, select, dialog')) return;
      const { screen, argument } = router.place.peek();
      if (screen !== 'inbox') return;
      const threads = inbox.threads.peek().map(({ id }) => id);
      const at = threads.indexOf(argument);
      const step = { j: 1, k: -1 }[event.key];
      if (step !== undefined) {
        const next = threads[at < 0 ? 0 : at + step];
        if (next !== undefined) router.go('inbox', next, { replace: at >= 0 });
      } else if (event.key === 'e') {
        inbox.show(unreadOf(inbox.items.peek(), argument));
      } else if (event.key === 'r') {
        const field = document.querySelector<HTMLTextAreaElement>('.thread textarea');
        field?.focus();
        // Do not type the letter into it.
        if (field) event.preventDefault();
      }
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, [inbox, router]);
}

const unreadOf = (items: readonly Item[], thread: string): string[] =>
  items.filter((item) => item.thread === thread && isUnread(item)).map(({ id }) => id);

function ThreadList({ query }: { query: Signal<string> }) {
  const { t } = useI18n();
  const { inbox, session } = useApp();
  const threads = inbox.threads.value;
  const failure = inbox.error.value;
  const isEmpty = threads.length === 0;
  return (
    <div class="screen">
      {failure !== null && session.isOnline.value && (
        <Notice tone="bad" action={<Button onClick={() => void inbox.catchUp()}>{t('Retry')}</Button>}>
          {t(messageOf(failure))}
        </Notice>
      )}
      <NoticeHint />
      {!isEmpty && <SearchField of={query} label={t('Search messages')} />}
      {query.value.trim() !== '' ? (
        <Results query={query.value} />
      ) : !isEmpty ? (
        <ul class="list" aria-label={t('Threads')}>
          {threads.map((thread) => (
            <ThreadRow key={thread.id} thread={thread} />
          ))}
        </ul>
      ) : !inbox.isLoaded.value && !session.isAway.value ? (
        <Loading />
      ) : (
        <Empty
          icon="inbox"
          action={
            <a class="button" href={hrefOf('inbox', HOME_THREAD)}>
              {t('Write to your agent')}
            </a>
          }
        >
          {t('No messages yet. When your agent writes to you, it shows here.')}
        </Empty>
      )}
    </div>
  );
}

function ThreadRow({ thread }: { thread: Thread }) {
  const { t, language } = useI18n();
  const nameOf = useThreadName();
  const open = useRouter().place.value.argument;
  const { last, unread } = thread;
  const preview = (last.seal === 'unopened' ? t(last.text) : last.text).slice(0, 160);
  return (
    <li>
      <a class="item" href={hrefOf('inbox', thread.id)} aria-current={thread.id === open ? 'true' : undefined}>
        <span class="text">
          <span class="row apart nowrap">
            <b class="cut">{nameOf(thread)}</b>
            <span class="small soft">{timeText(last.ts, language)}</span>
          </span>
          <span class="row apart nowrap">
            <span class="small soft cut">{last.kind === 'reply' ? t('You: {text}', { text: preview }) : preview}</span>
            {unread > 0 && (
              <b class="badge">
                {unread}
                <span class="off-screen"> {t('unread')}</span>
              </b>
            )}
          </span>
        </span>
      </a>
    </li>
  );
}

function Results({ query }: { query: string }) {
  const { t } = useI18n();
  const { inbox } = useApp();
  const wanted = query.trim().toLocaleLowerCase();
  const matches = ({ text, title }: Item) =>
    text.toLocaleLowerCase().includes(wanted) || (title ?? '').toLocaleLowerCase().includes(wanted);
  const found = inbox.items.value.filter(matches).reverse().slice(0, MAX_RESULTS);
  if (found.length === 0) return <Empty icon="search">{t('No message has these words.')}</Empty>;
  return (
    <ul class="list" aria-label={t('Found messages')}>
      {found.map((item) => (
        <Result key={`${item.kind} ${item.id}`} item={item} wanted={wanted} />
      ))}
    </ul>
  );
}

/** Characters before the found words. */
const LEAD = 40;

function Result({ item, wanted }: { item: Item; wanted: string }) {
  const { t, language } = useI18n();
  const { inbox } = useApp();
  const nameOf = useThreadName();
  const thread = inbox.threads.value.find(({ id }) => id === item.thread);
  const at = Math.max(item.text.toLocaleLowerCase().indexOf(wanted) - LEAD, 0);
  const text = `${at > 0 ? '…' : ''}${item.text.slice(at, at + 160)}`;
  return (
    <li>
      <a class="item" href={`${hrefOf('inbox', item.thread)}?at=${encodeURIComponent(item.id)}`}>
        <Icon name={item.kind === 'reply' ? 'send' : 'inbox'} />
        <span class="text">
          <span class="row apart nowrap">
            <b class="cut">{nameOf(thread)}</b>
            <span class="small soft">{timeText(item.ts, language)}</span>
          </span>
          <span class="small soft cut">{item.kind === 'reply' ? t('You: {text}', { text }) : text}</span>
        </span>
      </a>
    </li>
  );
}
