import { useSignal } from '@preact/signals';
import { sizeText, timeText } from '../../shared/ages.ts';
import { Button, Dialog, Empty, inPage, Notice, TextField } from '../../shared/components.tsx';
import { useI18n } from '../../shared/i18n.ts';
import { LoadedView, useLoad } from '../../shared/load.tsx';
import { useApp } from '../context.ts';
import { Folders, RecentFiles } from '../files/browse.tsx';
import { createFiles, type Files, type Transfer } from '../files/files.ts';
import { FileName } from '../files/name.tsx';
import { Pick } from '../files/pick.tsx';
import { createMedia, type MediaPlace } from '../media/media.ts';
import { MediaView } from '../media/view.tsx';

interface Opened {
  place: MediaPlace;
  name: string;
}

/** Sends files to the agent's machine, and shows those there. */
export default function FilesScreen() {
  const { t, language } = useI18n();
  const app = useApp();
  const files = app.retained(createFiles);
  const opened = useSignal<Opened | null>(null);
  const path = useSignal('');
  const current = files.sentFiles.value.filter(({ expiresAt }) => expiresAt > Date.now());
  const send = (chosen: readonly File[]) => {
    for (const file of chosen) files.send(file);
  };
  const openPath = ({ path, name }: { path: string; name: string }) => {
    opened.value = { place: { path }, name };
  };
  return (
    <div class="screen">
      <div class="row">
        <Pick icon="upload" text={t('Send files')} isMultiple onFiles={send} />
        <Pick icon="camera" text={t('Take a picture')} accept="image/*" capture onFiles={send} />
      </div>
      {files.transfers.value.map((transfer) => (
        <TransferView key={transfer.id} transfer={transfer} files={files} />
      ))}
      <section class="card" aria-labelledby="sent">
        <h2 id="sent">{t('Sent from this browser')}</h2>
        {current.length === 0 ? (
          <Empty icon="files">{t('Nothing yet. The relay keeps a file for a day.')}</Empty>
        ) : (
          <ul class="list">
            {current.map(({ token, name, size, at, expiresAt }) => (
              <li key={token} class="item">
                <span class="text">
                  <FileName name={name} />
                  <span class="small soft">
                    {sizeText(size)} · {timeText(at, language)} ·{' '}
                    {t('kept until {time}', { time: timeText(expiresAt, language) })}
                  </span>
                </span>
                <Button
                  onClick={() => {
                    opened.value = { place: { token }, name };
                  }}
                >
                  {t('Open')}
                </Button>
                <Button
                  icon="trash"
                  label={t('Forget {name} here', { name })}
                  onClick={() => void files.forget(token)}
                />
              </li>
            ))}
          </ul>
        )}
      </section>
      <RecentFiles onFile={openPath} />
      <Folders onFile={openPath} />
      <form
        class="card"
        onSubmit={inPage(() => {
          const whole = path.value.trim();
          if (whole !== '') opened.value = { place: { path: whole }, name: whole.split('/').at(-1) || whole };
        })}
      >
        <TextField
          label={t('File on the machine of the relay')}
          hint={t('Its whole path, as the agent names it.')}
          of={path}
          placeholder="/home/…"
          autocapitalize="off"
          autocorrect="off"
          spellcheck={false}
        />
        <Button type="submit" icon="download" disabled={path.value.trim() === ''}>
          {t('Open')}
        </Button>
      </form>
      {opened.value && (
        <FileDialog
          {...opened.value}
          onClose={() => {
            opened.value = null;
          }}
        />
      )}
    </div>
  );
}

function TransferView({ transfer, files }: { transfer: Transfer; files: Files }) {
  const { t } = useI18n();
  const { id, name, size, sent, state, error } = transfer;
  if (state === 'failed' || state === 'cancelled') {
    return (
      <Notice
        tone={state === 'failed' ? 'bad' : undefined}
        action={
          <>
            <Button icon="refresh" label={t('Send {name} again', { name })} onClick={() => files.retry(id)} />
            <Button icon="close" kind="plain" label={t('Close')} onClick={() => files.dismiss(id)} />
          </>
        }
      >
        {state === 'failed' ? `${name}: ${t(error ?? '')}` : t('{name} was not sent: you cancelled it.', { name })}
      </Notice>
    );
  }
  return (
    <div class="card">
      <div class="row apart">
        <span class="grow">{name}</span>
        <span class="small soft">
          {state === 'waiting' ? t('Waits for the others') : `${sizeText(sent)} / ${sizeText(size)}`}
        </span>
        <Button icon="close" onClick={() => files.cancel(id)}>
          {t('Cancel')}
        </Button>
      </div>
      <progress max={Math.max(1, size)} value={sent} aria-label={name} />
    </div>
  );
}

function FileDialog({ place, name, onClose }: Opened & { onClose(): void }) {
  const { t } = useI18n();
  const media = useApp().retained(createMedia);
  const loaded = useLoad((signal) => media.look(place, name, signal));
  return (
    <Dialog title={name} cancelText={t('Close')} onClose={onClose}>
      <LoadedView {...loaded}>{(medium) => <MediaView medium={medium} />}</LoadedView>
    </Dialog>
  );
}
