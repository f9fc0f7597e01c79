import { type ReadonlySignal, signal } from '@preact/signals';
import { newUuid } from '../../../../lib/kit/uuid.ts';
import { messageOf } from '../../shared/load.tsx';
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
export function createFiles({ api, keep }: App) {
  const kept = signal<readonly SentFile[]>([]);
  const transfers = signal<readonly Transfer[]>([]);
  const aborts = new Map<string, AbortController>();

  let isClosed = false;

  void keep.read<SentFile[]>('files').then((stored) => {
    kept.value = [...kept.value, ...(stored ?? [])];
  });

  function change(id: string, next: Partial<Transfer> | null): void {
    transfers.value = transfers.value.flatMap((transfer) =>
      transfer.id !== id ? [transfer] : next === null ? [] : [{ ...transfer, ...next }],
    );
  }

  async function store(files: readonly SentFile[]): Promise<void> {
    if (isClosed) return;
    kept.value = files;
    await keep.change('files', () => files);
  }

  async function send(file: File): Promise<void> {
    const id = newUuid();
    const abort = new AbortController();
    aborts.set(id, abort);
    transfers.value = [...transfers.value, { id, name: file.name, size: file.size, sent: 0, state: 'sending' }];
    const form = new FormData();
    form.append('file', file);
    try {
      const { token, expires_at } = await api.call<{ token: string; expires_at: number }>('media/upload', {
        method: 'POST',
        raw: form,
        signal: abort.signal,
        onProgress: (sent) => change(id, { sent: Math.min(sent, file.size) }),
      });
      change(id, null);
      const { name, type, size } = file;
      const sent = { token, name, type, size, at: Date.now(), expiresAt: expires_at * 1000 };
      await store([sent, ...kept.value].slice(0, MAX_KEPT));
    } catch (error) {
      change(id, abort.signal.aborted ? { state: 'cancelled' } : { state: 'failed', error: messageOf(error) });
    } finally {
      aborts.delete(id);
    }
  }

  return {
    kept: kept as ReadonlySignal<readonly SentFile[]>,
    transfers: transfers as ReadonlySignal<readonly Transfer[]>,
    send: (file: File) => void send(file),
    cancel: (id: string) => aborts.get(id)?.abort(),
    /** Takes a transfer that has ended off the list. */
    dismiss: (id: string) => change(id, null),

    /** Forgets a file here. The relay deletes it when it expires. */
    forget: (token: string): Promise<void> => store(kept.value.filter((file) => file.token !== token)),

    close(): void {
      isClosed = true;
      for (const abort of aborts.values()) abort.abort();
    },
  };
}
