import { type ReadonlySignal, signal } from '@preact/signals';
import { createStore, get, set } from 'idb-keyval';
import { newUuid } from '../../../../lib/kit/uuid.ts';
import type { App } from '../context.ts';

/** A file that this browser has sent to the relay, which keeps it until it expires. */
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

/** A file on its way. */
export interface Transfer {
  id: string;
  name: string;
  size: number;
  /** Bytes that have left. */
  sent: number;
  state: 'sending' | 'cancelled' | 'failed';
  error?: string;
}

const MAX_KEPT = 200;

export type Files = ReturnType<typeof createFiles>;

/** Files to and from the relay (contract 04 §3). Uploads go on while another screen is shown. */
export function createFiles({ session, base }: App) {
  const database = createStore('svc files', 'files');
  const key = new URL(base).pathname;
  const kept = signal<readonly SentFile[]>([]);
  const transfers = signal<readonly Transfer[]>([]);
  const requests = new Map<string, XMLHttpRequest>();

  void get<SentFile[]>(key, database).then(
    (stored) => {
      kept.value = [...kept.value, ...(stored ?? [])];
    },
    () => {},
  );

  function change(id: string, next: Partial<Transfer> | null): void {
    transfers.value = transfers.value.flatMap((transfer) =>
      transfer.id !== id ? [transfer] : next === null ? [] : [{ ...transfer, ...next }],
    );
  }

  async function keep(file: SentFile): Promise<void> {
    kept.value = [file, ...kept.value].slice(0, MAX_KEPT);
    await set(key, kept.value, database).catch(() => {});
  }

  function send(file: File): void {
    const id = newUuid();
    const request = new XMLHttpRequest();
    requests.set(id, request);
    transfers.value = [...transfers.value, { id, name: file.name, size: file.size, sent: 0, state: 'sending' }];
    // `fetch` reports no upload progress.
    request.open('POST', new URL('media/upload', base));
    request.setRequestHeader('authorization', `Bearer ${session.token()}`);
    request.responseType = 'json';
    request.upload.onprogress = ({ loaded }) => change(id, { sent: Math.min(loaded, file.size) });
    request.onload = () => {
      const answer = request.response as { token?: string; expires_at?: number; error?: string } | null;
      if (request.status !== 200 || !answer?.token) {
        const error = answer?.error ?? `The relay answered ${request.status}.`;
        return change(id, { state: 'failed', error });
      }
      change(id, null);
      const { name, type, size } = file;
      const expiresAt = (answer.expires_at ?? 0) * 1000;
      void keep({ token: answer.token, name, type, size, at: Date.now(), expiresAt });
    };
    request.onerror = () => change(id, { state: 'failed', error: 'The connection broke.' });
    request.onabort = () => change(id, { state: 'cancelled' });
    request.onloadend = () => requests.delete(id);
    const form = new FormData();
    form.append('file', file);
    request.send(form);
  }

  return {
    kept: kept as ReadonlySignal<readonly SentFile[]>,
    transfers: transfers as ReadonlySignal<readonly Transfer[]>,
    send,
    cancel: (id: string) => requests.get(id)?.abort(),
    /** Takes a transfer that has ended off the list. */
    dismiss: (id: string) => change(id, null),

    /** Forgets a file here. The relay deletes it when it expires. */
    async forget(token: string): Promise<void> {
      kept.value = kept.value.filter((file) => file.token !== token);
      await set(key, kept.value, database).catch(() => {});
    },
  };
}
