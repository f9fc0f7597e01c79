import { type ReadonlySignal, signal } from '@preact/signals';
import { newUuid } from '../../../../lib/kit/uuid.ts';
import { ApiError } from '../../shared/api.ts';
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
  state: 'waiting' | 'sending' | 'cancelled' | 'failed';
  error?: string;
}

const MAX_KEPT = 200;
/** Fewer than the uploads that the relay takes from one device at a time (contract 04 §3.5). */
const MAX_AT_ONCE = 3;

/** Sentences for the statuses of an upload; 507 is that of a proxy or a platform. */
const REFUSALS: Readonly<Record<number, string>> = {
  0: 'The connection broke before the whole file had arrived.',
  401: 'The relay does not know this browser any more.',
  403: 'This device may not send files.',
  408: 'The connection was too slow for the file.',
  413: 'The file is larger than the relay takes.',
  429: 'Too many files are on their way already. Try again in a moment.',
  500: 'The relay could not store the file.',
  503: 'The relay takes no file right now. Try again in a moment.',
  507: "The relay's machine has no room for the file.",
};

export type Files = ReturnType<typeof createFiles>;

/** Files to and from the relay (contract 04 §3). Uploads go on while another screen is shown. */
export function createFiles({ api, keep }: App) {
  const kept = signal<readonly SentFile[]>([]);
  const transfers = signal<readonly Transfer[]>([]);
  /** Files of the listed transfers, so that they can be sent again. */
  const sources = new Map<string, File>();
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

  /** Sends files that wait, as many as may be on their way. */
  function proceed(): void {
    for (const { id, state } of transfers.value) {
      const file = sources.get(id);
      if (state === 'waiting' && file && aborts.size < MAX_AT_ONCE) void send(id, file);
    }
  }

  async function send(id: string, file: File): Promise<void> {
    const abort = new AbortController();
    aborts.set(id, abort);
    change(id, { state: 'sending', sent: 0, error: undefined });
    const form = new FormData();
    form.append('file', file);
    try {
      const { token, expires_at } = await api.call<{ token: string; expires_at: number }>('media/upload', {
        method: 'POST',
        raw: form,
        signal: abort.signal,
        onProgress: (sent) => change(id, { sent: Math.min(sent, file.size) }),
      });
      sources.delete(id);
      change(id, null);
      const { name, type, size } = file;
      const sent = { token, name, type, size, at: Date.now(), expiresAt: expires_at * 1000 };
      await store([sent, ...kept.value].slice(0, MAX_KEPT));
    } catch (error) {
      const refusal = error instanceof ApiError ? REFUSALS[error.status] : undefined;
      const failure = { state: 'failed', error: refusal ?? messageOf(error) } as const;
      change(id, abort.signal.aborted ? { state: 'cancelled' } : failure);
    } finally {
      aborts.delete(id);
      proceed();
    }
  }

  return {
    kept: kept as ReadonlySignal<readonly SentFile[]>,
    transfers: transfers as ReadonlySignal<readonly Transfer[]>,
    /** Sends a file, once others have arrived. */
    send(file: File): void {
      const id = newUuid();
      sources.set(id, file);
      transfers.value = [...transfers.value, { id, name: file.name, size: file.size, sent: 0, state: 'waiting' }];
      proceed();
    },
    /** Sends a file once more that was cancelled or has failed. */
    retry(id: string): void {
      change(id, { state: 'waiting', sent: 0 });
      proceed();
    },
    cancel(id: string): void {
      if (aborts.has(id)) aborts.get(id)?.abort();
      else change(id, { state: 'cancelled' });
    },
    /** Takes a transfer that has ended off the list. */
    dismiss(id: string): void {
      sources.delete(id);
      change(id, null);
    },

    /** Forgets a file here. The relay deletes it when it expires. */
    forget: (token: string): Promise<void> => store(kept.value.filter((file) => file.token !== token)),

    close(): void {
      isClosed = true;
      for (const abort of aborts.values()) abort.abort();
    },
  };
}
