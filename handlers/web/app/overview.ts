import { type ReadonlySignal, signal } from '@preact/signals';
import { every, systemClock } from '../../../lib/kit/clock.ts';
import type { App } from './context.ts';
import { listShells } from './terminal/list.ts';

/** Facts about the relay for the home screen. A fact is null if this session may not know it or the request failed. */
export interface Overview {
  /** Epoch ms of these facts. */
  at: number;
  version: string;
  uptimeSeconds: number;
  /** Heartbeat of the agent's gateway: `fresh`, `stale`, `missing`, … (contract 01 §8.1). */
  agent: string;
  /** Shells that this device may attach to. */
  shells: number | null;
  /** Number of files that the relay stores. */
  files: number;
}

interface Info {
  version: string;
  uptime_seconds: number;
  media_entry_count: number;
  gateway_heartbeat: { status: string };
}

const REFRESH_EVERY = 30_000;

/** Keeps the overview up to date while the page is connected and shown, and stores it for other times. */
export function createOverview({ session, api, pageStore }: App) {
  const current = signal<Overview | null>(null);
  const port = session.port('terminal');

  let isClosed = false;

  void pageStore.read<Overview>('overview').then((stored) => {
    current.value ??= stored ?? null;
  });

  async function shells(): Promise<number | null> {
    if (!session.may('terminal')) return null;
    return listShells(port).then(
      ({ length }) => length,
      () => null,
    );
  }

  async function refresh(): Promise<void> {
    if (!session.isOnline.value || session.isAtMailbox.value || document.visibilityState !== 'visible') return;
    const [info, terminals] = await Promise.all([api.call<Info>('relay/info'), shells()]);
    if (isClosed) return;
    const overview: Overview = {
      at: Date.now(),
      version: info.version,
      uptimeSeconds: info.uptime_seconds,
      agent: info.gateway_heartbeat.status,
      shells: terminals,
      files: info.media_entry_count,
    };
    current.value = overview;
    await pageStore.change('overview', () => overview);
  }

  const refreshQuietly = () => void refresh().catch(() => {});
  const stopOnline = port.onOnline(() => {
    refreshQuietly();
    return every(systemClock, REFRESH_EVERY, refresh, () => {});
  });
  document.addEventListener('visibilitychange', refreshQuietly);

  return {
    current: current as ReadonlySignal<Overview | null>,
    refresh: refreshQuietly,
    close(): void {
      isClosed = true;
      stopOnline();
      document.removeEventListener('visibilitychange', refreshQuietly);
    },
  };
}
