import { computed, type ReadonlySignal, signal } from '@preact/signals';
import { parseObject } from '../../../../lib/kit/json.ts';
import { pageLink } from '../../../../lib/pairing/web-link.ts';
import type { Api } from '../../shared/api.ts';
import type { DeviceRow, Minted, PairingRoutes } from './answers.ts';
import type { RelayStore } from './relay.ts';

/** Seconds for which a code is valid (contract 01 §5.1). */
const LIFETIME = 600;

export type PairingKind = 'app' | 'web';

/** Policy that the host sets for a device (contract 01 §5.2). */
export interface PairingPolicy {
  /** Seconds, 0 for forever. */
  ttl: number;
  /** Names of the grants that the session does not get. */
  without: readonly string[];
  /** Seconds of single grants, 0 for as long as the session. */
  grants?: Readonly<Record<string, number>>;
}

export interface PairingChoice extends PairingPolicy {
  kind: PairingKind;
  /** Role of the only route in the code; if absent, every route. */
  role?: string;
  /** http(s) address under which the relay is published. */
  publicUrl?: string;
}

/** A code made by this page. */
export interface Code {
  kind: PairingKind;
  code: string;
  /** Content of the QR code. */
  qr: string;
  /** Link that opens the pairing on a device. That of the app may contain the API key of the agent. */
  link: string;
  /** Routes to the relay in the code, best first. */
  routes: readonly { role: string; url: string }[];
  /** Address of the agent's API server, if the code contains it. */
  api?: string;
  /** True if the code contains the API key of the agent. */
  holdsKey: boolean;
  /** Epoch seconds. */
  expiresAt: number;
}

export type CodeState =
  | { kind: 'waiting' }
  | { kind: 'used'; device?: Pick<DeviceRow, 'device_name' | 'device_platform' | 'client_surface'> }
  | { kind: 'expired' };

export type PairingStore = ReturnType<typeof createPairingStore>;

/** The code that the console shows, and its state. */
export function createPairingStore(api: Api, relay: Pick<RelayStore, 'pending' | 'devices'>) {
  const code = signal<Code | undefined>(undefined);
  /** True if the list was loaded after the code was made; before that, its absence from the list means nothing. */
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

  const policyOf = ({ ttl, without, grants }: PairingPolicy) => ({ ttl_seconds: ttl, without, grants });

  /** The routes for a code, as the machine has them now. */
  async function findRoutes({ role, publicUrl = '' }: PairingChoice): Promise<PairingRoutes> {
    const query = publicUrl === '' ? '' : `?public_url=${encodeURIComponent(publicUrl)}`;
    const found = await api.call<PairingRoutes>(`pairing/routes${query}`);
    if (role === undefined) return found;
    const endpoints = found.endpoints.filter((endpoint) => endpoint.role === role);
    if (endpoints.length === 0) throw new Error('The relay has lost that way. Choose another one.');
    return { ...found, endpoints };
  }

  return {
    code: code as ReadonlySignal<Code | undefined>,
    stateAt,
    /** Makes a code. @throws ApiError */
    async mint(choice: PairingChoice): Promise<void> {
      const { kind } = choice;
      const { endpoints, local } = await findRoutes(choice);
      const body = { ...policyOf(choice), ...(endpoints.length > 0 && { endpoints }) };
      const minted = await api.call<Minted>('pairing/mint', { method: 'POST', body });
      const link = kind === 'app' ? minted.pairing_url : pageOf(minted, local, choice.publicUrl);
      wasAsked.value = false;
      code.value = {
        kind,
        code: minted.code,
        qr: kind === 'web' ? link : minted.qr_payload,
        link,
        routes: kind === 'web' ? [] : routesOf(minted),
        api: kind === 'web' ? undefined : apiOf(minted),
        holdsKey: kind === 'app' && Boolean(parseObject(minted.qr_payload)?.key),
        expiresAt: minted.expires_at,
      };
      await relay.pending.refresh();
      wasAsked.value = relay.pending.state.value.error === undefined;
    },
    /** Hides the code, which the relay still accepts until it expires. */
    forget(): void {
      code.value = undefined;
    },
    /** Admits a request to pair. @throws ApiError */
    async approve(requested: string, policy: PairingPolicy): Promise<void> {
      const body = { code: requested, ...policyOf(policy) };
      await api.call('pairing/approve', { method: 'POST', body });
      await relay.pending.refresh();
    },
  };
}

/** The page for a browser: at the published address if there is one, else on the code's best route. */
function pageOf(minted: Minted, isLocal: boolean, publicUrl = ''): string {
  const published = publicUrl === '' ? undefined : publicUrl;
  return pageLink(minted.qr_payload, { published, local: isLocal ? portOf(minted) : undefined });
}

/** The port of a relay that only its own machine reaches. */
function portOf({ relay_url: url }: Minted): { port: number; tls: boolean } {
  const { protocol, port } = new URL(url);
  const tls = protocol === 'wss:';
  return { port: Number(port) || (tls ? 443 : 80), tls };
}

const routesOf = ({ endpoints = [], relay_url: url }: Minted): Code['routes'] =>
  endpoints.length === 0
    ? [{ role: 'lan', url }]
    : endpoints.map(({ role, relay, broker, proxy }) => ({ role, url: (relay ?? broker ?? proxy)?.url ?? '' }));

const apiOf = ({ host, port, tls }: Minted): string | undefined =>
  host === undefined ? undefined : `${tls ? 'https' : 'http'}://${host.includes(':') ? `[${host}]` : host}:${port}`;
