import { useSignal } from '@preact/signals';
import { useEffect, useId, useMemo } from 'preact/hooks';
import { sizeText, timeText } from '../../shared/ages.ts';
import { Button, Dialog, Empty, Field, Notice } from '../../shared/components.tsx';
import { useI18n } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';
import { LoadedView, useLoad } from '../../shared/load.tsx';
import { useApp } from '../context.ts';
import { createFiles, type Files, type OpenedFile, type Transfer } from '../files/files.ts';

type Place = { token: string; name: string } | { path: string };

/** Sends files to the agent's machine, and shows those that are there. */
export default function FilesScreen() {
  const { t, language } = useI18n();
  const app = useApp();
  const files = app.kept(createFiles);
  const opened = useSignal<Place | null>(null);
  const path = useSignal('');
  const kept = files.kept.value.filter(({ expiresAt }) => expiresAt > Date.now());
  return (
    <div class="screen">
      <div class="row">
        <Pick files={files} icon="upload" text={t('Send files')} />
        <Pick files={files} icon="camera" text={t('Take a picture')} accept="image/*" capture />
      </div>
      {files.transfers.value.map((transfer) => (
        <TransferView key={transfer.id} transfer={transfer} files={files} />
      ))}
      <section class="card" aria-labelledby="sent">
        <h2 id="sent">{t('Sent from this browser')}</h2>
        {kept.length === 0 ? (
          <Empty icon="files">{t('Nothing yet. The relay keeps a file for a day.')}</Empty>
        ) : (
          <ul class="list">
            {kept.map(({ token, name, size, at, expiresAt }) => (
              <li key={token} class="item">
                <span class="text">
                  <span>{name}</span>
                  <span class="small soft">
                    {sizeText(size)} · {timeText(at, language)} ·{' '}
                    {t('kept until {time}', { time: timeText(expiresAt, language) })}
                  </span>
                </span>
                <Button
                  onClick={() => {
                    opened.value = { token, name };
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
      <form
        class="card"
        onSubmit={(event) => {
          event.preventDefault();
          if (path.value.trim() !== '') opened.value = { path: path.value.trim() };
        }}
      >
        <Field label={t('File on the machine of the relay')} hint={t('Its whole path, as the agent names it.')}>
          {(control) => (
            <input
              {...control}
              class="input"
              value={path.value}
              placeholder="/home/…"
              autocapitalize="off"
              autocorrect="off"
              spellcheck={false}
              onInput={(event) => {
                path.value = event.currentTarget.value;
              }}
            />
          )}
        </Field>
        <Button type="submit" icon="download" disabled={path.value.trim() === ''}>
          {t('Open')}
        </Button>
      </form>
      {opened.value && (
        <FileDialog
          place={opened.value}
          files={files}
          onClose={() => {
            opened.value = null;
          }}
        />
      )}
    </div>
  );
}

interface PickProps {
  files: Files;
  icon: 'upload' | 'camera';
  text: string;
  accept?: string;
  capture?: boolean;
}

/** A button that chooses files and sends them. */
function Pick({ files, icon, text, accept, capture }: PickProps) {
  const id = useId();
  return (
    <span class="pick">
      <input
        id={id}
        class="off-screen"
        type="file"
        multiple={!capture}
        accept={accept}
        capture={capture ? 'environment' : undefined}
        onChange={({ currentTarget }) => {
          for (const file of currentTarget.files ?? []) files.send(file);
          // The same file may be chosen again.
          currentTarget.value = '';
        }}
      />
      <label for={id} class="button primary">
        <Icon name={icon} /> {text}
      </label>
    </span>
  );
}

function TransferView({ transfer, files }: { transfer: Transfer; files: Files }) {
  const { t } = useI18n();
  const { id, name, size, sent, state, error } = transfer;
  if (state !== 'sending') {
    return (
      <Notice
        tone={state === 'failed' ? 'bad' : undefined}
        action={<Button icon="close" kind="plain" label={t('Close')} onClick={() => files.dismiss(id)} />}
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
          {sizeText(sent)} / {sizeText(size)}
        </span>
        <Button icon="close" onClick={() => files.cancel(id)}>
          {t('Cancel')}
        </Button>
      </div>
      <progress max={Math.max(1, size)} value={sent} aria-label={name} />
    </div>
  );
}

function FileDialog({ place, files, onClose }: { place: Place; files: Files; onClose(): void }) {
  const { t } = useI18n();
  const loaded = useLoad((signal) => files.open(place, signal));
  return (
    <Dialog title={'name' in place ? place.name : place.path} cancelText={t('Close')} onClose={onClose}>
      <LoadedView {...loaded}>{(file) => <FileView file={file} />}</LoadedView>
    </Dialog>
  );
}

/** A picture, blurred until somebody asks for it where the agent has marked it; else what there is to download. */
function FileView({ file }: { file: OpenedFile }) {
  const { t } = useI18n();
  const isShown = useSignal(!file.isSensitive);
  const url = useMemo(() => URL.createObjectURL(file.blob), [file.blob]);
  useEffect(() => () => URL.revokeObjectURL(url), [url]);
  const isPicture = /^image\/(?!svg)/.test(file.type);
  return (
    <>
      {isPicture && <img class={isShown.value ? 'shown' : 'shown blurred'} src={url} alt={file.name} />}
      {!isShown.value && (
        <Notice
          tone="warn"
          action={
            <Button
              onClick={() => {
                isShown.value = true;
              }}
            >
              {t('Show')}
            </Button>
          }
        >
          {t('The agent has marked this file as sensitive.')}
        </Notice>
      )}
      <p class="small soft">
        {file.type} · {sizeText(file.blob.size)}
      </p>
      <a class="button" href={url} download={file.name}>
        <Icon name="download" /> {t('Download')}
      </a>
    </>
  );
}
