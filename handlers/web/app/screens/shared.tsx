import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { sizeText } from '../../shared/ages.ts';
import { Button, Choice, Empty, Notice } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { useRouter } from '../../shared/router.ts';
import { createChats } from '../chat/chats.ts';
import { isPicture, MAX_PICTURES } from '../chat/pictures.ts';
import { useApp } from '../context.ts';
import { createFiles } from '../files/files.ts';
import { HOME_THREAD } from '../inbox/items.ts';
import { useThreadName } from '../inbox/names.ts';

/** Content shared by another app, and its possible destinations. Nothing is sent without a tap. */
export default function Shared() {
  const t = useT();
  const app = useApp();
  const { session, shares } = app;
  const router = useRouter();
  const isLost = router.place.value.query.has('lost');
  const { may } = session;
  const isTaken = useRef(false);
  const share = shares.pending.value;
  if (!share) {
    return (
      <div class="screen">
        {isLost ? (
          <Notice tone="warn">
            {t('What was shared did not arrive: the app was not ready yet. Share it once more.')}
          </Notice>
        ) : (
          <Empty icon="upload">{t('Nothing waits here. Share something with this app from another one.')}</Empty>
        )}
      </div>
    );
  }
  const { text, files, refused } = share;

  function sendFiles(): void {
    const { send } = app.retained(createFiles);
    for (const file of files) send(file);
    void shares.used('files');
    router.go('files');
  }

  /** Begins a conversation with the text, once. The pictures go with the next message, limited to the first ones. */
  async function ask(pictures: File[] = []): Promise<void> {
    if (isTaken.current) return;
    isTaken.current = true;
    await app.retained(createChats).prepare(text, pictures.slice(0, MAX_PICTURES));
    void (pictures.length > 0 ? shares.discard() : shares.used('text'));
    router.go('chat', 'new');
  }

  function paste(): void {
    shares.forTerminal.value = text;
    void shares.used('text');
    router.go('terminal');
  }

  return (
    <div class="screen">
      {refused.length > 0 && (
        <Notice tone="warn">
          {t('Too much at once, so these are missing: {names}', { names: refused.join(', ') })}
        </Notice>
      )}
      {files.length > 0 && (
        <section class="card" aria-labelledby="shared-files">
          <h2 id="shared-files">{t('Files')}</h2>
          <ul class="list">
            {files.map(({ name, type, size }, index) => (
              <li key={index} class="item">
                <span class="text">
                  <span>{name}</span>
                  <span class="small soft">{[type, sizeText(size)].filter(Boolean).join(' · ')}</span>
                </span>
              </li>
            ))}
          </ul>
          {may('files') ? (
            <Button kind="primary" icon="upload" onClick={sendFiles}>
              {t("Send to the relay's machine")}
            </Button>
          ) : (
            <NotAllowed />
          )}
          {may('files') && may('chat') && files.some(isPicture) && (
            <Button icon="chat" onClick={() => void ask(files.filter(isPicture))}>
              {t('Ask the agent about the pictures')}
            </Button>
          )}
        </section>
      )}
      {text !== '' && (
        <section class="card" aria-labelledby="shared-text">
          <h2 id="shared-text">{t('Text')}</h2>
          <p class="written excerpt">{text}</p>
          {may('chat') && (
            <Button kind="primary" icon="chat" onClick={() => void ask()}>
              {t('New conversation')}
            </Button>
          )}
          {may('phone') && <Reply text={text} />}
          {may('terminal') && (
            <Button icon="terminal" onClick={paste}>
              {t('Paste into the terminal')}
            </Button>
          )}
          {!may('chat') && !may('phone') && !may('terminal') && <NotAllowed />}
        </section>
      )}
      <Button icon="trash" onClick={() => void shares.discard()}>
        {t('Discard')}
      </Button>
    </div>
  );
}

const NotAllowed = () => {
  const t = useT();
  return <Notice tone="warn">{t('This device may not send that. Pair it again to allow it.')}</Notice>;
};

/** Appends the text to the draft of a thread. */
function Reply({ text }: { text: string }) {
  const t = useT();
  const { inbox, shares } = useApp();
  const router = useRouter();
  const nameOf = useThreadName();
  const threads = inbox.threads.value;
  const options = threads.some(({ id }) => id === HOME_THREAD)
    ? threads
    : [{ id: HOME_THREAD, title: null }, ...threads];
  const chosen = useSignal(options[0]?.id ?? HOME_THREAD);
  return (
    <>
      {options.length > 1 && (
        <Choice
          label={t('Thread')}
          value={chosen.value}
          options={options.map((thread) => [thread.id, nameOf(thread)])}
          onChange={(id) => {
            chosen.value = id;
          }}
        />
      )}
      <Button
        icon="inbox"
        onClick={() => {
          const draft = inbox.drafts.value[chosen.value] ?? '';
          inbox.draft(chosen.value, draft === '' ? text : `${draft}\n${text}`);
          void shares.used('text');
          router.go('inbox', chosen.value);
        }}
      >
        {t('Reply with it in the inbox')}
      </Button>
    </>
  );
}
