import { type ReadonlySignal, signal } from '@preact/signals';
import { newUuid } from '../../../../lib/kit/uuid.ts';
import { ApiError } from '../../shared/api.ts';
import { messageOf } from '../../shared/load.tsx';
import type { App } from '../context.ts';
import { openCopies } from '../media/copies.ts';
import type { Session } from '../session.ts';
import { httpBase } from '../stored-pairing.ts';
import { type Draft, openDrafts } from './drafts.ts';

/** A file that this browser has sent to the relay, which stores it until it expires. */
export interface SentFile {
  token: string;
  name: string;
  type: string;
  size: number;
  /** Epoch ms. */
  at: number;
  /** Epoch ms. */
  expiresAt: number;
}

/** A file in transfer. */
export interface Transfer {
  id: string;
  name: string;
  size: number;
  /** Bytes sent. */
  sent: number;
  state: 'waiting' | 'sending' | 'cancelled' | 'failed';
  error?: string;
}

const MAX_KEPT = 200;
/** Milliseconds that a relay keeps a file by default. */
const DAY = 86_400_000;
/** Concurrent uploads, fewer than the relay allows per device (contract 04 §3.5). */
const MAX_AT_ONCE = 3;

/** Sentences for the statuses of an upload; 507 is that of a proxy or a platform. */
const REFUSALS: Readonly<Record<number, string>> = {
  0: 'The connection broke before the whole file had arrived.',
  401: 'The relay no longer knows this browser.',
  403: 'This device may not send files.',
  408: 'The connection was too slow for the file.',
  413: 'The file is larger than the relay accepts.',
  429: 'Too many files are on their way already. Try again in a moment.',
  500: 'The relay could not store the file.',
  503: 'The relay accepts no files right now. Try again in a moment.',
  507: "The relay's machine has no room for the file.",
};

const UNSEALED =
  'It was not sent: this browser cannot seal it for home. It waits here, and is sent when it can be, or when home is back.';

/** In place of a file that would have gone to the edge in plain. */
class Unsealed extends Error {}
/** The link has gone to the other side: what was made for one does not go to the other. */
class Moved extends Error {}

export type Files = ReturnType<typeof createFiles>;

/**
 * True if what is sent now goes to a sealed mailbox (contract 12 §4), or may: without a connection, to anything but home. As
 * replies, files go plain over plain http, which has no cryptography, and until home has given its key.
 */
function isSealedAt({ state, pairing, target }: Session): boolean {
  const { box, endpoints = [] } = pairing.peek() ?? {};
  if (!isSecureContext || box?.home === undefined) return false;
  const link = state.peek();
  if (link.name === 'online') return !!link.endpoint.mailbox;
  return !endpoints.some(({ url }) => httpBase(url) === target.peek());
}

/**
 * Files to and from the relay (contract 04 §3). Uploads go on while another screen is shown; those for the sealed mailbox also
 * after a reload.
 */
export function createFiles(app: App) {
  const { api, pageStore, session } = app;
  const sentFiles = signal<readonly SentFile[]>([]);
  const transfers = signal<readonly Transfer[]>([]);
  /** Files of the listed transfers, so that they can be sent again. */
  const sources = new Map<string, Draft>();
  const aborts = new Map<string, AbortController>();
  const copies = openCopies(pageStore);
  const drafts = openDrafts(pageStore);
  /** Drafts that are sent once more with the next connection. */
  const interrupted = new Set<string>();

  let isClosed = false;

  void pageStore.read<SentFile[]>('files').then((stored) => {
    sentFiles.value = [...sentFiles.value, ...(stored ?? [])];
  });
  if (isSecureContext) void drafts.ids().then((ids) => ids.forEach((id) => void adopt(id)));
  const stopOnline = session.port('system').onOnline(() => {
    for (const id of interrupted) change(id, { state: 'waiting' });
    interrupted.clear();
    proceed();
  });

  /** Goes on with a draft of an earlier page, or of a tab that was closed. */
  async function adopt(id: string): Promise<void> {
    const draft = await drafts.adopt(id);
    if (!draft || isClosed || sources.has(id)) return;
    sources.set(id, draft);
    const { file, stopped } = draft;
    const state = stopped === undefined ? 'waiting' : stopped === '' ? 'cancelled' : 'failed';
    transfers.value = [...transfers.value, { id, name: file.name, size: file.size, sent: 0, state, error: stopped }];
    if (stopped === UNSEALED) interrupted.add(id);
    proceed();
  }

  function change(id: string, next: Partial<Transfer> | null): void {
    transfers.value = transfers.value.flatMap((transfer) =>
      transfer.id !== id ? [transfer] : next === null ? [] : [{ ...transfer, ...next }],
    );
  }

  /** Changes the list, in which another tab may have stored files too. */
  async function changeSent(change: (files: readonly SentFile[]) => readonly SentFile[]): Promise<void> {
    if (isClosed) return;
    sentFiles.value = change(sentFiles.value);
    const all = await pageStore.change<readonly SentFile[]>('files', (stored = []) => change(stored));
    if (!isClosed) sentFiles.value = all;
  }

  /** Starts waiting files, up to the limit. A file that is tried again starts once its failure has been stored. */
  function proceed(): void {
    if (isClosed) return;
    for (const { id, state } of transfers.value) {
      const draft = sources.get(id);
      if (state === 'waiting' && draft && !aborts.has(id) && aborts.size < MAX_AT_ONCE) void send(id, draft);
    }
  }

  async function keepDraft(id: string, draft: Draft): Promise<void> {
    sources.set(id, draft);
    await drafts.put(id, draft);
  }

  /** The file as the mailbox gets it, which is kept before it is sent. @throws Unsealed */
  async function sealed(id: string, { file, sealed: before }: Draft, signal: AbortSignal) {
    const { home = '', uploads } = session.pairing.peek()?.box ?? {};
    if (before?.home === home) return before;
    await drafts.claim(id);
    await keepDraft(id, { file });
    try {
      if (!uploads) throw new Error('home opens no sealed files');
      const { sealFile } = await import('./seal.ts');
      const made = { ...(await sealFile(app, file, signal)), home };
      await keepDraft(id, { file, sealed: made });
      return made;
    } catch (cause) {
      throw signal.aborted ? cause : new Unsealed(UNSEALED, { cause });
    }
  }

  /** True if home has an upload that was made at the mailbox, or takes it over. */
  const isAtHome = (token: string, signal: AbortSignal): Promise<boolean> =>
    api.open(`media/${token}`, { method: 'HEAD', signal }).then(
      () => true,
      (error) => {
        const { status = 0, retryAfter } = error as Partial<ApiError>;
        if (status === 404 || status === 410) return false;
        if (status === 503 && retryAfter !== undefined) return true;
        throw error;
      },
    );

  /** Resolves with the token that a file has got, and its end, epoch ms. */
  async function upload(id: string, draft: Draft, signal: AbortSignal): Promise<[token: string, expiresAt: number]> {
    const { file } = draft;
    const target = session.target.peek();
    const own = isSealedAt(session) ? await sealed(id, draft, signal) : undefined;
    // The mailbox may have got it, and its answer was lost.
    if (!own && draft.sealed && (await isAtHome(draft.sealed.token, signal))) {
      return [draft.sealed.token, Date.now() + DAY];
    }
    const form = new FormData();
    form.append('file', own?.file ?? file);
    const { token, expires_at } = await api.call<{ token: string; expires_at: number }>('media/upload', {
      method: 'POST',
      // Sent again after a lost answer, it is stored once. A sealed file has a token of its own.
      ...(!own && { headers: { 'idempotency-key': id } }),
      // Asked for whenever it is sent, with new credentials, too: by then the link may have gone to the other side.
      get raw() {
        if (session.target.peek() !== target) throw new Moved();
        return form;
      },
      signal,
      onProgress: (sent) => change(id, { sent: Math.min(sent, file.size) }),
    });
    // Home takes it under no other.
    if (own && token !== own.token) throw new Error('The mailbox took another file.');
    const isAtMailbox = own !== undefined || session.isAtMailbox.peek();
    if (isAtMailbox && !isClosed) await copies.add(token, file, expires_at * 1000);
    return [token, expires_at * 1000];
  }

  async function send(id: string, draft: Draft): Promise<void> {
    const abort = new AbortController();
    aborts.set(id, abort);
    change(id, { state: 'sending', sent: 0, error: undefined });
    try {
      if (draft.stopped !== undefined) await keepDraft(id, { ...draft, stopped: undefined });
      const [token, expiresAt] = await upload(id, draft, abort.signal);
      const { name, type, size } = draft.file;
      sources.delete(id);
      change(id, null);
      const sent = { token, name, type, size, at: Date.now(), expiresAt };
      await changeSent((files) => [sent, ...files.filter((other) => other.token !== token)].slice(0, MAX_KEPT));
      await drafts.remove(id);
    } catch (error) {
      if (error instanceof Moved) change(id, { state: 'waiting' });
      else await stop(id, abort.signal.aborted ? undefined : error);
    } finally {
      aborts.delete(id);
      proceed();
    }
  }

  /** A file was not sent, or a person has cancelled it. */
  async function stop(id: string, error?: unknown): Promise<void> {
    const { status } = error instanceof ApiError ? error : { status: undefined };
    const text = error && ((status !== undefined && REFUSALS[status]) || messageOf(error));
    change(id, text ? { state: 'failed', error: String(text) } : { state: 'cancelled' });
    const draft = sources.get(id);
    if (!draft || !isSecureContext || !(await drafts.read(id))) return;
    // The person may have dismissed it meanwhile.
    if (!sources.has(id)) return;
    // A broken connection stops none.
    if (status === 0 || error instanceof Unsealed) interrupted.add(id);
    if (status !== 0) await keepDraft(id, { ...draft, stopped: String(text ?? '') });
  }

  return {
    sentFiles: sentFiles as ReadonlySignal<readonly SentFile[]>,
    transfers: transfers as ReadonlySignal<readonly Transfer[]>,
    /** Sends a file, after others if necessary. */
    send(file: File): void {
      const id = newUuid();
      sources.set(id, { file });
      transfers.value = [...transfers.value, { id, name: file.name, size: file.size, sent: 0, state: 'waiting' }];
      proceed();
    },
    /** Sends a cancelled or failed file again. */
    retry(id: string): void {
      interrupted.delete(id);
      change(id, { state: 'waiting', sent: 0 });
      proceed();
    },
    cancel(id: string): void {
      if (aborts.has(id)) aborts.get(id)?.abort();
      else void stop(id);
    },
    /** Removes a finished transfer from the list. */
    dismiss(id: string): void {
      sources.delete(id);
      interrupted.delete(id);
      change(id, null);
      void drafts.remove(id);
    },

    /** Removes a file from the list. The relay deletes it when it expires. */
    async forget(token: string): Promise<void> {
      await changeSent((files) => files.filter((file) => file.token !== token));
      await copies.remove(token);
    },

    close(): void {
      isClosed = true;
      stopOnline();
      drafts.close();
      for (const abort of aborts.values()) abort.abort();
    },
  };
}
