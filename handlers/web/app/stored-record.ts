import { type ReadonlySignal, signal } from '@preact/signals';
import { openChannel } from './browser-storage.ts';
import type { App } from './context.ts';
import { withEntry } from './page-store.ts';

/**
 * Entries by key, stored in this browser for the pairing under one name of the page store. Every tab shows the changes of the
 * others. Over `max` entries, the one with the oldest change is dropped.
 */
export function openRecord<T>({ pageStore, base }: Pick<App, 'pageStore' | 'base'>, name: string, max: number) {
  const entries = signal<Readonly<Record<string, T>>>({});
  const channel = openChannel(`${name} ${new URL(base).pathname}`);
  let isClosed = false;

  async function load(): Promise<void> {
    // While storage cannot be read, the entries stay as they are.
    const stored = await pageStore.find<Record<string, T>>(name).catch(() => entries.value);
    if (!isClosed) entries.value = stored ?? {};
  }

  channel.onmessage = () => void load();
  void load();

  return {
    entries: entries as ReadonlySignal<Readonly<Record<string, T>>>,
    /** Replaces an entry, or removes it. */
    async set(key: string, entry: T | undefined): Promise<void> {
      entries.value = await pageStore.change<Record<string, T>>(name, (stored = {}) =>
        withEntry(stored, key, entry, max),
      );
      if (!isClosed) channel.postMessage(null);
    },
    close(): void {
      isClosed = true;
      channel.close();
    },
  };
}
