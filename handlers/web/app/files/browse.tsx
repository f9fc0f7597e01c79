import { useSignal } from '@preact/signals';
import { sizeText, timeText } from '../../shared/ages.ts';
import { Button, Empty, Notice, Retry } from '../../shared/components.tsx';
import { useI18n } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';
import { LoadedView, useLoad } from '../../shared/load.tsx';
import { useApp } from '../context.ts';
import { FileName } from './name.tsx';

/** A row of `GET /media/folder` and `GET /media/recent`. */
interface Entry {
  name: string;
  path: string;
  kind: 'file' | 'folder';
  size?: number;
  /** Epoch seconds. */
  modified_at: number;
}

interface Folder {
  /** Absent at the top level, which lists the allowed folders. */
  path?: string;
  parent?: string | null;
  truncated?: boolean;
  entries: Entry[];
}

type OnFile = (file: { path: string; name: string }) => void;

/** The allowed folders on the relay's machine, and the files in them. */
export function Folders({ onFile }: { onFile: OnFile }) {
  const { t } = useI18n();
  const { api } = useApp();
  /** Empty for the top. */
  const path = useSignal('');
  const query = path.value === '' ? '' : `?path=${encodeURIComponent(path.value)}`;
  const loaded = useLoad((signal) => api.call<Folder>(`media/folder${query}`, { signal }), [path.value]);
  return (
    <section class="card" aria-labelledby="folders">
      <h2 id="folders">{t('Folders')}</h2>
      <LoadedView {...loaded}>
        {(folder) => (
          <>
            <Failure {...loaded} />
            {folder.path !== undefined && (
              <div class="row">
                <Button
                  icon="back"
                  label={t('Up')}
                  onClick={() => {
                    path.value = folder.parent ?? '';
                  }}
                />
                <FileName name={folder.path} />
              </div>
            )}
            {folder.entries.length === 0 ? (
              <Empty icon="files">{t('Nothing is in this folder.')}</Empty>
            ) : (
              <Entries
                entries={folder.entries}
                onFolder={(entry) => {
                  path.value = entry.path;
                }}
                onFile={onFile}
              />
            )}
            {folder.truncated && <p class="small soft">{t('The folder holds more. These are the newest.')}</p>}
          </>
        )}
      </LoadedView>
    </section>
  );
}

/** The files that the agent has most recently made or changed. */
export function RecentFiles({ onFile }: { onFile: OnFile }) {
  const { t } = useI18n();
  const { api } = useApp();
  const loaded = useLoad((signal) => api.call<Folder>('media/recent', { signal }));
  return (
    <section class="card" aria-labelledby="recent">
      <div class="row apart">
        <h2 id="recent">{t('Recent files of the agent')}</h2>
        <Button icon="refresh" kind="plain" label={t('Refresh')} onClick={loaded.reload} />
      </div>
      <LoadedView {...loaded}>
        {({ entries }) => (
          <>
            <Failure {...loaded} />
            {entries.length === 0 ? (
              <Empty icon="files">{t('The agent has made no files yet.')}</Empty>
            ) : (
              <Entries entries={entries} onFile={onFile} />
            )}
          </>
        )}
      </LoadedView>
    </section>
  );
}

/** Why the list below is still the one before. */
function Failure({ state, reload }: ReturnType<typeof useLoad>) {
  const { t } = useI18n();
  const { error } = state.value;
  if (error === undefined) return null;
  return (
    <Notice tone="warn" action={<Retry onClick={reload} />}>
      {t(error)}
    </Notice>
  );
}

function Entries({ entries, onFile, onFolder }: { entries: Entry[]; onFile: OnFile; onFolder?(entry: Entry): void }) {
  const { language } = useI18n();
  const folders = entries.filter(({ kind }) => kind === 'folder');
  return (
    <ul class="list entries">
      {[...folders, ...entries.filter(({ kind }) => kind === 'file')].map((entry) => (
        <li key={entry.path}>
          <button
            type="button"
            class="item"
            onClick={() => (entry.kind === 'folder' ? onFolder?.(entry) : onFile(entry))}
          >
            <Icon name={entry.kind === 'folder' ? 'queue' : 'files'} />
            <span class="text">
              <FileName name={entry.name} />
              <span class="small soft">
                {entry.kind === 'file' && `${sizeText(entry.size ?? 0)} · `}
                {timeText(entry.modified_at * 1000, language)}
              </span>
            </span>
            {entry.kind === 'folder' && <Icon name="next" />}
          </button>
        </li>
      ))}
    </ul>
  );
}
