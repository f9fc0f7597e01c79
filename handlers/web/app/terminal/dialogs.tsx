import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { Row } from '../../../../lib/terminal/list.ts';
import { ageText, useNow } from '../../shared/ages.ts';
import { Button, Chip, Dialog, Empty, TextField } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { LoadedView, useLoad } from '../../shared/load.tsx';
import { useApp } from '../context.ts';
import { listShells } from './list.ts';

/** Milliseconds after which the list is reloaded. */
const REFRESH = 5_000;

interface ShellsProps {
  /** Name of a shell of this device's own tabs; undefined for any other. */
  nameOf(name: string): string | undefined;
  onAttach(name: string): void;
  onWatch(name: string): void;
  /** Absent if every tab has a shell. */
  onNew?(): void;
  onClose(): void;
}

/** Chooses one of the shells running at home, to use or to watch it. */
export function ShellsDialog({ nameOf, onAttach, onWatch, onNew, onClose }: ShellsProps) {
  const t = useT();
  const { session } = useApp();
  const isOnline = session.isOnline.value;
  const now = useNow();
  const loaded = useLoad((signal) => listShells(session.port('terminal'), signal), [isOnline]);
  useEffect(() => {
    const timer = setInterval(loaded.reload, REFRESH);
    return () => clearInterval(timer);
  }, []);
  return (
    <Dialog
      title={t('Shells at home')}
      cancelText={t('Close')}
      isAway={!isOnline}
      onClose={onClose}
      actions={
        onNew && (
          <Button icon="plus" disabled={!isOnline} onClick={onNew}>
            {t('New shell')}
          </Button>
        )
      }
    >
      <LoadedView {...loaded}>
        {(rows) =>
          rows.length === 0 ? (
            <Empty icon="terminal">{t('No shell is open at home.')}</Empty>
          ) : (
            <ul class="list shells">
              {newestFirst(rows).map((row) => {
                const name = nameOf(row.name) ?? row.name;
                return (
                  <li key={row.name} class="item shell-row">
                    <span class="text">
                      <b>{name}</b>
                      <span class="small soft">{aboutShell(row, now.value, t)}</span>
                      {row.last_line && <code class="small cut">{row.last_line}</code>}
                    </span>
                    {(row.attached ?? 0) > 0 && <Chip>{t('{n} attached', { n: row.attached ?? 0 })}</Chip>}
                    <span class="row">
                      <Button
                        kind="primary"
                        disabled={!isOnline}
                        aria-label={t('Attach {name}', { name })}
                        onClick={() => onAttach(row.name)}
                      >
                        {row.owned_by_client ? t('Show') : t('Attach')}
                      </Button>
                      {!row.owned_by_client && (
                        <Button
                          disabled={!isOnline}
                          aria-label={t('Watch {name}', { name })}
                          onClick={() => onWatch(row.name)}
                        >
                          {t('Watch')}
                        </Button>
                      )}
                    </span>
                  </li>
                );
              })}
            </ul>
          )
        }
      </LoadedView>
    </Dialog>
  );
}

const newestFirst = (rows: readonly Row[]): Row[] => rows.toSorted((a, b) => (b.active_at ?? 0) - (a.active_at ?? 0));

/** Its user, its age, and the time of its last output. */
function aboutShell({ device, created_at: created, active_at: active }: Row, now: number, t: ReturnType<typeof useT>) {
  const age = (seconds: number) => ageText(now - seconds * 1000, t);
  return [
    device,
    created === undefined ? undefined : t('open for {age}', { age: age(created) }),
    active === undefined ? undefined : t('last output {age} ago', { age: age(active) }),
  ]
    .filter((part) => part !== undefined)
    .join(' · ');
}

/** A person's own keys for the row, stored in this browser. */
export function KeysDialog({ keys, onSave, onClose }: { keys: string; onSave(keys: string): void; onClose(): void }) {
  const t = useT();
  const text = useSignal(keys);
  return (
    <Dialog title={t('Own keys')} onClose={onClose} onSubmit={() => onSave(text.value.trim())} submit={t('Save')}>
      <TextField
        label={t('Keys, with spaces between them')}
        hint={t('Such as Ctrl-R, Alt-., F5, or a text like :wq\\n, where \\n is Enter and \\s a space.')}
        of={text}
        maxLength={256}
        autocapitalize="off"
        autocorrect="off"
        spellcheck={false}
      />
    </Dialog>
  );
}

interface PasteProps {
  /** Text of another app, to be reviewed first. */
  shared: string;
  onPaste(text: string): void;
  onClose(): void;
}

/** For shared text, and if the page may not read the clipboard. */
export function PasteDialog({ shared, onPaste, onClose }: PasteProps) {
  const t = useT();
  const text = useSignal(shared);
  return (
    <Dialog title={t('Paste')} onClose={onClose} onSubmit={() => onPaste(text.value)} submit={t('Paste')}>
      <label for="paste-text">
        {shared === ''
          ? t('This browser does not show the clipboard to the page. Paste the text here.')
          : t('Another app has shared this text. A shell may run each of its lines.')}
      </label>
      <textarea
        id="paste-text"
        class="input"
        rows={5}
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
        }}
      />
    </Dialog>
  );
}
