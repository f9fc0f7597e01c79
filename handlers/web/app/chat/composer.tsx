import { useEffect, useMemo } from 'preact/hooks';
import { Button, inPage, useToast } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { messageOf } from '../../shared/load.tsx';
import { useApp } from '../context.ts';
import { Pick } from '../files/pick.tsx';
import { isSendKey, isTouch } from '../keyboard.ts';
import { type Conversation, createChats } from './chats.ts';
import { isPicture, MAX_PICTURES, PICTURE_TYPES, stagePicture, withPictures } from './pictures.ts';

/** The field for the next message to the agent, and its pictures. */
export function Composer({
  conversation,
  isStreaming,
  onSent,
}: {
  conversation: Conversation;
  isStreaming: boolean;
  onSent(): void;
}) {
  const t = useT();
  const toast = useToast();
  const app = useApp();
  const chats = app.retained(createChats);
  const { draft, pictures, sending } = conversation;
  const mayAttach = app.session.may('files');
  const isEmpty = draft.value.trim() === '' && pictures.value.length === 0;

  function attach(files: readonly File[]): void {
    const found = files.filter(isPicture);
    if (found.length < files.length) toast(t('Only pictures in PNG, JPEG, WebP or GIF can be sent.'));
    const all = [...pictures.value, ...found];
    if (all.length > MAX_PICTURES) toast(t('At most {n} pictures in one message.', { n: MAX_PICTURES }));
    pictures.value = all.slice(0, MAX_PICTURES);
  }

  async function stage(files: readonly File[], abort: AbortController): Promise<{ name: string; path: string }[]> {
    const staged: { name: string; path: string }[] = [];
    // The relay accepts two at a time, from all tabs of this browser together.
    for (const [index, file] of files.entries()) {
      const path = await stagePicture(app.api, file, abort.signal, (sent) => {
        if (sending.value)
          sending.value = { abort, part: (index + Math.min(1, sent / (file.size * 1.34))) / files.length };
      });
      staged.push({ name: file.name, path });
    }
    return staged;
  }

  async function send(): Promise<void> {
    if (isEmpty || isStreaming || sending.value) return;
    const text = draft.value.trim();
    const abort = new AbortController();
    const files = pictures.value;
    if (files.length > 0) sending.value = { abort, part: 0 };
    try {
      const staged = files.length > 0 ? await stage(files, abort) : [];
      if (chats.send(conversation, withPictures(text, staged))) {
        // The person may have gone on while the pictures were on their way.
        if (draft.value.trim() === text) chats.type(conversation, '');
        pictures.value = pictures.value.filter((picture) => !files.includes(picture));
        onSent();
      } else toast(t('Not sent: the relay does not answer. Your words stay here.'));
    } catch (error) {
      if (!abort.signal.aborted) toast(t(messageOf(error)));
    } finally {
      sending.value = null;
    }
  }

  return (
    <form
      class="composer"
      onSubmit={inPage(() => void send())}
      onDragOver={(event) => {
        if (mayAttach) event.preventDefault();
      }}
      onDrop={(event) => {
        const { files } = event.dataTransfer ?? {};
        if (!mayAttach || !files?.length) return;
        event.preventDefault();
        attach([...files]);
      }}
    >
      {pictures.value.length > 0 && (
        <ul class="attached">
          {pictures.value.map((file, index) => (
            <Attached
              key={`${file.name} ${index}`}
              file={file}
              isBusy={sending.value !== null}
              onRemove={() => {
                pictures.value = pictures.value.filter((other) => other !== file);
              }}
            />
          ))}
        </ul>
      )}
      {sending.value && <progress value={sending.value.part} aria-label={t('Sending the pictures')} />}
      {mayAttach && (
        <Pick icon="camera" label={t('Attach pictures')} accept={PICTURE_TYPES} isMultiple onFiles={attach} />
      )}
      <textarea
        class="input"
        rows={1}
        aria-label={t('Message')}
        placeholder={t('Message')}
        value={draft.value}
        onInput={(event) => {
          chats.type(conversation, event.currentTarget.value);
        }}
        onPaste={(event) => {
          const { files } = event.clipboardData ?? {};
          if (!mayAttach || !files?.length) return;
          event.preventDefault();
          attach([...files]);
        }}
        onKeyDown={(event) => {
          if (!isSendKey(event) || isTouch()) return;
          event.preventDefault();
          void send();
        }}
      />
      {sending.value ? (
        <Button icon="close" onClick={() => sending.value?.abort.abort()}>
          {t('Cancel')}
        </Button>
      ) : isStreaming ? (
        <Button
          kind="danger"
          icon="stop"
          onClick={() => chats.stop(conversation) || toast(t('Not stopped: the relay does not answer.'))}
        >
          {t('Stop')}
        </Button>
      ) : (
        <Button type="submit" kind="primary" icon="send" label={t('Send')} disabled={isEmpty} />
      )}
    </form>
  );
}

function Attached({ file, isBusy, onRemove }: { file: File; isBusy: boolean; onRemove(): void }) {
  const t = useT();
  const url = useMemo(() => URL.createObjectURL(file), [file]);
  useEffect(() => () => URL.revokeObjectURL(url), [url]);
  return (
    <li>
      <img src={url} alt={file.name} />
      <Button icon="close" label={t('Remove {name}', { name: file.name })} disabled={isBusy} onClick={onRemove} />
    </li>
  );
}
