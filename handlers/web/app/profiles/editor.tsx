import { useSignal } from '@preact/signals';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';
import { utf8Length } from '../../../../lib/kit/text.ts';
import { sizeText } from '../../shared/ages.ts';
import { ApiError } from '../../shared/api.ts';
import { Button, Notice, useToast } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { LoadedView, messageOf, useLoad } from '../../shared/load.tsx';
import { hrefOf } from '../../shared/router.ts';
import { useApp } from '../context.ts';
import { BackLink } from './back-link.tsx';
import { createDocuments, type Document, type DocumentName, type Draft } from './documents.ts';

/** Bytes of the largest document that the relay accepts. */
const MAX_BYTES = 1024 * 1024;

interface EditorProps {
  name: DocumentName;
}

/** Editor of a profile's document. Typed text is stored in this browser until it is saved or discarded. */
export function Editor({ name }: EditorProps) {
  const t = useT();
  const documents = useApp().retained(createDocuments);
  const { state, reload } = useLoad(async (signal) => {
    const [document, draft] = await Promise.all([documents.read(name, signal), documents.draft(name)]);
    if (draft?.content !== document.content) return { document, draft };
    // It was saved, but the answer was lost.
    await documents.keepDraft(name, undefined);
    return { document, draft: undefined };
  });
  return (
    <div class="screen editor">
      <BackLink
        href={hrefOf('profiles', name.profile)}
        label={t('Back to {name}', { name: name.profile })}
        title={name.memory ?? 'SOUL.md'}
      />
      <LoadedView state={state} reload={reload}>
        {({ document, draft }) =>
          document.truncated ? <TooLong document={document} /> : <Writer name={name} found={document} stored={draft} />
        }
      </LoadedView>
    </div>
  );
}

/** Saving the beginning that the relay sends would truncate the file. */
function TooLong({ document }: { document: Document }) {
  const t = useT();
  return (
    <>
      <Notice tone="warn">{t('This document is too long to be edited here. This is its beginning.')}</Notice>
      <pre class="version">{document.content}</pre>
    </>
  );
}

function Writer({ name, found, stored }: EditorProps & { found: Document; stored: Draft | undefined }) {
  const t = useT();
  const toast = useToast();
  const id = useId();
  const documents = useApp().retained(createDocuments);
  /** As last loaded or saved. */
  const saved = useSignal<Document>(found);
  const draft = useSignal<Draft>(stored ?? found);
  const isBusy = useSignal(false);
  const removeToast = useRef<() => void>(undefined);
  /** Another editor's version, while it is compared with the draft. */
  const theirs = useSignal<Document | null>(stored && stored.etag !== found.etag ? found : null);
  /** Shown beside the draft while it is being merged. */
  const beside = useSignal<Document | null>(null);
  const isChanged = draft.value.content !== saved.value.content;
  const size = utf8Length(draft.value.content);

  function write(next: Draft): void {
    draft.value = next;
    void documents.keepDraft(name, next.content === saved.value.content ? undefined : next);
  }

  function settle(document: Document): void {
    saved.value = document;
    theirs.value = null;
    beside.value = null;
    write(document);
  }

  async function save(next: Draft): Promise<void> {
    if (isBusy.value) return;
    isBusy.value = true;
    // The result of the last attempt does not apply to this one.
    removeToast.current?.();
    try {
      const result = await documents.save(name, next);
      if (result.kind === 'conflict') {
        theirs.value = result.theirs;
        return;
      }
      // Text typed meanwhile stays a draft on top of the saved version.
      const { content } = draft.value;
      settle({ content: next.content, etag: result.etag, truncated: false });
      if (content !== next.content) write({ content, etag: result.etag });
      removeToast.current = toast(t('Saved.'));
    } catch (error) {
      removeToast.current = toast(explain(error));
    } finally {
      isBusy.value = false;
    }
  }

  function explain(error: unknown): string {
    const status = error instanceof ApiError ? error.status : 0;
    if (status === 412) return t('Not saved: there is a file of this name that cannot be shown. Your text stays here.');
    if (status === 413) return t('Not saved: a document has at most 1 MB.');
    if (status === 404) return t('Not saved: this profile is gone. Your text stays here.');
    if (status === 403) return t('Not saved: the file lies outside of the profile.');
    return t('Not saved: {reason} Your text stays here.', { reason: t(messageOf(error)) });
  }

  // Before the first key, which the browser would handle.
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.key !== 's') return;
      event.preventDefault();
      if (theirs.value === null && draft.value.content !== saved.value.content) void save(draft.value);
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);

  if (theirs.value) {
    const other = theirs.value;
    return (
      <Conflict
        mine={draft.value.content}
        theirs={other}
        isBusy={isBusy.value}
        onMine={() => {
          write({ content: draft.value.content, etag: other.etag });
          void save(draft.value);
        }}
        onTheirs={() => settle(other)}
        onEdit={() => {
          saved.value = other;
          beside.value = other;
          theirs.value = null;
          write({ content: draft.value.content, etag: other.etag });
        }}
      />
    );
  }

  return (
    <>
      {saved.value.etag === null && <p class="soft small">{t('This file does not exist yet. Saving creates it.')}</p>}
      <div class={beside.value ? 'versions' : ''}>
        <div class="field">
          <label for={id} class={beside.value ? '' : 'off-screen'}>
            {beside.value ? t('Mine') : t('Text')}
          </label>
          <textarea
            id={id}
            class="input document"
            value={draft.value.content}
            onInput={(event) => write({ content: event.currentTarget.value, etag: draft.value.etag })}
          />
        </div>
        {beside.value && <Version title={t('Theirs')} document={beside.value} against={draft.value.content} />}
      </div>
      <div class="row apart">
        <span class={`small ${size > MAX_BYTES ? 'bad' : 'soft'}`} role="status">
          {isChanged ? t('Not saved yet: kept in this browser, {size}', { size: sizeText(size) }) : sizeText(size)}
        </span>
        <div class="actions">
          <Button disabled={!isChanged || isBusy.value} onClick={() => settle(saved.value)}>
            {t('Discard')}
          </Button>
          <Button
            kind="primary"
            disabled={!isChanged || isBusy.value || size > MAX_BYTES}
            onClick={() => void save(draft.value)}
          >
            {t('Save')}
          </Button>
        </div>
      </div>
    </>
  );
}

interface ConflictProps {
  mine: string;
  theirs: Document;
  isBusy: boolean;
  onMine(): void;
  onTheirs(): void;
  onEdit(): void;
}

/** The document has changed since the draft began: shows both, to choose the one to keep. */
function Conflict({ mine, theirs, isBusy, onMine, onTheirs, onEdit }: ConflictProps) {
  const t = useT();
  return (
    <>
      <Notice tone="warn">
        {theirs.etag === null
          ? t('The file was deleted since you began to write. Nothing was saved.')
          : t('The document was changed elsewhere since you began to write. Nothing was saved.')}
      </Notice>
      <div class="actions">
        <Button kind="primary" disabled={isBusy} onClick={onMine}>
          {t('Keep mine')}
        </Button>
        <Button disabled={isBusy} onClick={onTheirs}>
          {t('Take theirs')}
        </Button>
        <Button disabled={isBusy} onClick={onEdit}>
          {t('Edit mine')}
        </Button>
      </div>
      <div class="versions">
        <Version title={t('Mine')} document={{ content: mine }} against={theirs.content} />
        <Version title={t('Theirs')} document={theirs} against={mine} />
      </div>
    </>
  );
}

interface VersionProps {
  title: string;
  document: Pick<Document, 'content'>;
  /** Text to compare with; lines that are not in it are marked. */
  against: string;
}

function Version({ title, document, against }: VersionProps) {
  const t = useT();
  const id = useId();
  const known = new Set(against.split('\n'));
  return (
    <div class="field">
      <h3 id={id}>{title}</h3>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <section class="version" tabIndex={0} aria-labelledby={id}>
        {document.content === '' && <span class="soft">{t('empty')}</span>}
        {document.content
          .split('\n')
          .map((line, index) => (known.has(line) ? <p key={index}>{line}</p> : <ins key={index}>{line}</ins>))}
      </section>
    </div>
  );
}
