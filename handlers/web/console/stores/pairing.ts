import { computed, type ReadonlySignal, signal } from '@preact/signals';
import { pageLink } from '../../../../lib/pairing/web-link.ts';
import type { Api } from '../../shared/api.ts';
import type { DeviceRow, Minted } from './answers.ts';
import type { RelayStore } from './relay.ts';

/** Seconds for which a code is good (contract 01 §5.1). */
const LIFETIME = 600;

export type PairingKind = 'app' | 'web';

export interface PairingChoice {
  kind: PairingKind;
  /** Seconds, 0 for ever. */
  ttl: number;
  /** Names of the grants that the session does not get. */
  without: readonly string[];
}

/** A code that this page has made. */
export interface Code {
  kind: PairingKind;
  code: string;
  /** Content of the QR code. */
  qr: string;
  /** Opens the pairing where it is followed. The app's may hold the API key of the agent. */
  link: string;
  /** Epoch seconds. */
  expiresAt: number;
}

export type CodeState =
  | { kind: 'waiting' }
  | { kind: 'used'; device?: Pick<DeviceRow, 'device_name' | 'device_platform' | 'client_surface'> }
  | { kind: 'expired' };

export type PairingStore = ReturnType<typeof createPairingStore>;

/** The code that the console shows, and what became of it. */
export function createPairingStore(api: Api, relay: Pick<RelayStore, 'pending' | 'devices'>) {
  const code = signal<Code | undefined>(undefined);
  /** Whether the relay was asked since the code was made: until then, its absence from the list says nothing. */
  const wasAsked = signal(false);

  const isListed = computed(() => {
    const { value } = relay.pending.state.value;
    const shown = code.value;
    if (!value || !shown) return undefined;
    const masked = `${shown.code.slice(0, 2)}****`;
    return value.codes.some((row) => row.masked === masked && row.expires_at === shown.expiresAt);
  });

  /** `now` is epoch seconds. */
  function stateAt(now: number): CodeState {
    const shown = code.value;
    if (!shown || isListed.value !== false || !wasAsked.value) {
      return shown && shown.expiresAt <= now ? { kind: 'expired' } : { kind: 'waiting' };
    }
    const made = shown.expiresAt - LIFETIME - 1;
    const since = relay.devices.state.value.value?.filter((row) => row.created_at >= made) ?? [];
    const device = since.sort((a, b) => b.created_at - a.created_at)[0];
    return shown.expiresAt <= now && !device ? { kind: 'expired' } : { kind: 'used', device };
  }

  return {
    code: code as ReadonlySignal<Code | undefined>,
    stateAt,
    /** Makes a code. @throws ApiError */
    async mint({ kind, ttl, without }: PairingChoice): Promise<void> {
      const minted = await api.call<Minted>('pairing/mint', { method: 'POST', body: { ttl_seconds: ttl, without } });
      const link = kind === 'web' ? pageLink(minted.qr_payload) : minted.pairing_url;
      wasAsked.value = false;
      code.value = {
        kind,
        code: minted.code,
        qr: kind === 'web' ? link : minted.qr_payload,
        link,
        expiresAt: minted.expires_at,
      };
      await relay.pending.refresh();
      wasAsked.value = relay.pending.state.value.error === undefined;
    },
    /** Shows it no longer. The relay still takes it until it is over. */
    forget(): void {
      code.value = undefined;
    },
    /** Admits a request to pair. @throws ApiError */
    async approve(requested: string, { ttl, without }: Omit<PairingChoice, 'kind'>): Promise<void> {
      const body = { code: requested, ttl_seconds: ttl, without };
      await api.call('pairing/approve', { method: 'POST', body });
      await relay.pending.refresh();
    },
  };
}
