import { type RouteEntry, Router } from 'itty-router';
import type { Peer } from '../lib/access/peer.ts';
import { DEVICE_ROUTES } from '../lib/bridge/device-routes.ts';
import type { Relay } from '../lib/relay.ts';
import { errorResponse } from '../lib/web/json.ts';
import { bridgeActivity, bridgeDevices, bridgeStatus, selectActive } from './bridge.ts';
import { postClipboard } from './clipboard.ts';
import { injectedContext } from './context.ts';
import { callTool, desktopHealth, mayCallTool, mayUseDesktop, pingDesktop } from './desktop.ts';
import { controlDevice, DEVICE_PATHS, mayControl } from './device-control.ts';
import { failureResponse } from './errors.ts';
import { loopbackOrPaired, open, operator, operatorOrPaired, paired, pairedOrHostTool } from './guards.ts';
import { health } from './health.ts';
import { imageActivity } from './image-activity.ts';
import { getByPath, getMedia, inspectMedia, MEDIA_TOKEN, markSensitive, registerMedia, uploadMedia } from './media.ts';
import { modelCapabilities } from './model-capabilities.ts';
import { recentNotifications } from './notifications.ts';
import { getSecurity, patchSecurity, relayInfo, updateCheck } from './operator.ts';
import { approveCode, createCode, mintCode, registerCode } from './pairing.ts';
import { cancelOutbound, listOutbound, postMessage, takeReplies } from './phone.ts';
import { listThreads, putThread } from './phone-threads.ts';
import {
  getProfileAvatar,
  getProfileConfig,
  getProfileMemory,
  getProfileSkills,
  getProfileSoul,
  putProfileMemory,
  putProfileSoul,
  toggleSkill,
} from './profiles.ts';
import { type Guard, type Handler, pathOf, type RelayRequest } from './request.ts';
import { listSessions, reduceSession, revokeSession } from './sessions.ts';
import { sockets, upgradeRequired } from './sockets.ts';
import { providerUsage } from './usage.ts';

type Row = [method: string, path: string, guard: Guard, handler: Handler];

/**
 * THE route table. The router goes through it from top to bottom: the hot routes come first. `ALL` is every method,
 * which the guard then sorts out.
 */
export const routes: readonly Row[] = [
  ['GET', '/health', open, health],
  ['GET', '/sessions', pairedOrHostTool, listSessions],
  ['DELETE', '/sessions/:prefix', pairedOrHostTool, revokeSession],
  ['PATCH', '/sessions/:prefix', paired(), reduceSession],
  ['ALL', DEVICE_PATHS, mayControl, controlDevice],
  ['GET', '/desktop/_ping', mayUseDesktop, pingDesktop],
  ['GET', '/desktop/health', mayUseDesktop, desktopHealth],
  ['ALL', '/desktop/:tool', mayCallTool, callTool],
  ...sockets.map(({ path }): Row => ['GET', path, open, upgradeRequired]),
  ['POST', '/pairing', open, createCode],
  ['POST', '/pairing/register', operator, registerCode],
  ['POST', '/pairing/approve', operator, approveCode],
  ['POST', '/pairing/mint', operator, mintCode],
  ['POST', '/clipboard/inbox', paired(), postClipboard],
  ['POST', '/media/register', operator, registerMedia],
  ['POST', '/media/upload', paired(), uploadMedia],
  ['GET', '/media/by-path', paired(), getByPath],
  ['GET', '/media/inspect', operator, inspectMedia],
  ['GET', `/media/${MEDIA_TOKEN}`, paired(), getMedia],
  ['POST', `/media/${MEDIA_TOKEN}/sensitive`, operator, markSensitive],
  ['GET', '/notifications/recent', operatorOrPaired(), recentNotifications],
  ['GET', '/chat/image-activity', paired('chat'), imageActivity],
  ['GET', '/phone/threads', paired(), listThreads],
  ['POST', '/phone/threads', paired(), putThread],
  ['GET', '/context/injected', paired(), injectedContext],
  ['GET', '/usage/providers', paired(), providerUsage],
  ['POST', '/phone/message', operatorOrPaired(), postMessage],
  ['GET', '/phone/replies', operatorOrPaired(), takeReplies],
  ['GET', '/phone/outbound', pairedOrHostTool, listOutbound],
  ['POST', '/phone/outbound', pairedOrHostTool, postMessage],
  ['DELETE', '/phone/outbound', pairedOrHostTool, cancelOutbound],
  ['GET', '/bridge/status', operator, bridgeStatus],
  ['GET', '/bridge/activity', operator, bridgeActivity],
  ['GET', '/bridge/devices', operator, bridgeDevices],
  ['POST', '/bridge/select-active', operator, selectActive],
  ['GET', '/api/profiles/:name/config', paired(), getProfileConfig],
  ['GET', '/api/profiles/:name/skills', paired(), getProfileSkills],
  ['GET', '/api/profiles/:name/soul', paired(), getProfileSoul],
  ['PUT', '/api/profiles/:name/soul', paired(), putProfileSoul],
  ['GET', '/api/profiles/:name/memory', paired(), getProfileMemory],
  ['PUT', '/api/profiles/:name/memory/:filename', paired(), putProfileMemory],
  ['GET', '/api/profiles/:name/avatar', paired(), getProfileAvatar],
  ['PUT', '/api/skills/toggle', paired(), toggleSkill],
  ['GET', '/relay/info', loopbackOrPaired, relayInfo],
  ['GET', '/relay/security', operator, getSecurity],
  ['PATCH', '/relay/security', operator, patchSecurity],
  ['GET', '/relay/update-check', loopbackOrPaired, updateCheck],
  ['POST', '/relay/model-capabilities', operatorOrPaired('chat'), modelCapabilities],
];

const NO_QUERY = Object.freeze({});

export type Fetch = (request: Request, peer: Peer) => Promise<Response>;

/** The relay's HTTP surface as one function of a request and the peer that the runtime saw. */
export function createFetch(relay: Relay): Fetch {
  const router = Router<RelayRequest, [Relay]>();
  const add = (verb: string, [, path, guard, handler]: Row) => router[verb.toLowerCase()]?.(path, guard, handler);
  for (const row of routes) {
    add(row[0], row);
    // `HEAD` works wherever `GET` does; the runtimes leave its body out.
    if (row[0] === 'GET') add('HEAD', row);
  }

  // The router parses the URL and its query first: for a plain path that is half of what such a request costs.
  const plain = new Map(routes.map((row) => [`${row[0]} ${row[1]}`, { row, params: {} }]));
  const controlRow = routes.find(([, path]) => path === DEVICE_PATHS) as Row;
  for (const { method, path } of DEVICE_ROUTES) {
    plain.set(`${method} ${path}`, { row: controlRow, params: { command: path.slice(1) } });
  }

  return async (incoming, peer) => {
    const request = incoming as RelayRequest;
    request.peer = peer;
    try {
      const known = plain.get(`${request.method} ${pathOf(request.url)}`);
      if (known) {
        const { row, params } = known;
        Object.assign(request, { route: row[1], params, query: NO_QUERY });
        return (await row[2](request, relay)) ?? (await row[3](request, relay));
      }
      const response: Response | undefined = await router.fetch(request, relay);
      return response ?? noRoute(request, router.routes);
    } catch (error) {
      return failureResponse(error, `${request.method} request`, relay.log);
    }
  };
}

function noRoute(request: RelayRequest, routes: RouteEntry[]): Response {
  const { pathname } = new URL(request.url);
  const allowed = [...new Set(routes.filter((route) => route[1].test(pathname)).map((route) => route[0]))];
  if (allowed.length === 0) return errorResponse(404, 'not found');
  return errorResponse(405, 'method not allowed', { allow: allowed.sort().join(', ') });
}
