import type { Tailnet } from '../host/index.ts';
import { asObject, type JsonObject } from '../kit/json.ts';

/**
 * Members of `secure_link` and `secure_proxy` in the relay's health that a dashboard may show. Pins are not included.
 */
const LINK_MEMBERS = ['reason', 'role', 'recommended', 'security', 'url'];
const REACH_MEMBERS = ['enabled', 'state', 'status', 'connected', 'last_error', 'transport'];

const pick = (from: JsonObject, names: string[]): JsonObject =>
  Object.fromEntries(names.flatMap((name) => (from[name] === undefined ? [] : [[name, from[name]]])));

/**
 * The ways to this relay from elsewhere (contract 07 §4.1), from its health, the tailnet and the pinned public URL.
 * `upstream_canonical` is true if the program on the relay's port answers like a relay (contract 01 §2).
 */
export function readRemoteAccess(health: unknown, tailnet: Tailnet | null, publicUrl: string | null) {
  const { status, version, secure_link: link, secure_proxy: route } = asObject(health) ?? {};
  return {
    tailscale: {
      available: tailnet !== null,
      address: tailnet?.address ?? null,
      name: tailnet?.name ?? null,
      served_ports: tailnet?.servedPorts ?? [],
      funnel_ports: tailnet?.funnelPorts ?? [],
    },
    secure_link: secureLinkOf(asObject(link) ?? {}, asObject(route) ?? {}),
    public: { url: publicUrl, reachable: null },
    upstream_canonical: status === 'ok' && typeof version === 'string' && version !== '',
  };
}

function secureLinkOf(link: JsonObject, route: JsonObject): JsonObject {
  const state = link.state ?? link.status;
  const proxy = asObject(route.proxy) ?? {};
  const surfaces = link.surfaces ?? proxy.surfaces ?? link.capabilities;
  const reach = asObject(link.reach);
  return {
    enabled: link.enabled === true,
    ...(state !== undefined && { state }),
    ...pick({ ...route, url: proxy.url, ...link }, LINK_MEMBERS),
    ...(surfaces !== undefined && { surfaces }),
    ...(reach && { reach: pick(reach, REACH_MEMBERS) }),
  };
}
