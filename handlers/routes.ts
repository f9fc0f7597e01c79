import { Router } from 'itty-router';
import type { Peer } from '../lib/access/peer.ts';
import { DEVICE_ROWS } from '../lib/operations/device.ts';
import type { Relay } from '../lib/relay.ts';
import { bridgeActivity, bridgeDevices, bridgeStatus, desktopActivity, selectActive } from './bridge.ts';
import { chatHistory, searchChats } from './chat.ts';
import { postClipboard } from './clipboard.ts';
import { injectedContext } from './context.ts';
import { crossOrigin } from './cors.ts';
import { callTool, desktopHealth, mayCallTool, mayUseDesktop, pingDesktop } from './desktop.ts';
import { controlDevice, DEVICE_PATHS, mayControl } from './device-control.ts';
import { errorFor, failureResponse } from './errors.ts';
import { relayEvents, relayLog } from './events.ts';
import { freezeRelay, thawRelay } from './freeze.ts';
import {
  loopbackOrPaired,
  misdirected,
  open,
  operator,
  operatorOrPaired,
  paired,
  pairedOrHostTool,
  voice,
} from './guards.ts';
import { health } from './health.ts';
import { imageActivity } from './image-activity.ts';
import { mcp, mcpClient } from './mcp.ts';
import {
  getByPath,
  getFolder,
  getMedia,
  getRecent,
  inspectMedia,
  MEDIA_TOKEN,
  markSensitive,
  registerMedia,
  uploadMedia,
} from './media.ts';
import { disableMirror, enableMirror, homeOnly, mirrorStatus } from './mirror.ts';
import { modelCapabilities } from './model-capabilities.ts';
import { recentNotifications } from './notifications.ts';
import {
  getSecurity,
  patchSecurity,
  relayDevices,
  relayInfo,
  runDoctor,
  takeSnapshot,
  updateCheck,
} from './operator.ts';
import { approveCode, createCode, listPending, listRoutes, mintCode, registerCode } from './pairing.ts';
import { acknowledgeReplies, cancelOutbound, listOutbound, phoneHistory, postMessage, takeReplies } from './phone.ts';
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
import { pushKey, pushStatus, subscribePush, unsubscribePush } from './push.ts';
import { pathOf, type RelayRequest, type Route } from './request.ts';
import { indexRoutes, readQuery } from './route-index.ts';
import { secureLinkPreflight } from './secure-link/preflight.ts';
import {
  extendSession,
  listEndedSessions,
  listSessions,
  reduceSession,
  renameSession,
  revokeSession,
  sessionNonce,
  unbindSession,
} from './sessions.ts';
import { type SocketRow, sockets, upgradeRequired } from './sockets.ts';
import { providerUsage } from './usage.ts';
import { agentSettings } from './voice/agent.ts';
import { getVoiceConfig, labSettings, outputSettings } from './voice/config.ts';
import { createAgentSession, createLabSession, createOutputSession } from './voice/sessions.ts';
import { synthesize } from './voice/synthesize.ts';
import { transcribe } from './voice/transcribe.ts';
import { SHARE_PATH, serveApp, serveConsole, shareMissed, toApp, wantsPage } from './web/serve.ts';

/** THE route table. `ALL` is every method, checked by the guard. Routes with the same first segment are tried in order. */
const table: readonly Route[] = [
  ['GET', '/health', open, health],
  ['GET', '/sessions', pairedOrHostTool(), listSessions],
  ['GET', '/sessions/nonce', open, sessionNonce],
  ['DELETE', '/sessions/:prefix', pairedOrHostTool(), revokeSession],
  ['PATCH', '/sessions/:prefix', pairedOrHostTool(), reduceSession],
  ['DELETE', '/sessions/:prefix/key', paired(), unbindSession],
  ['GET', '/sessions/ended', operator, listEndedSessions],
  ['POST', '/sessions/:prefix/extend', operator, extendSession],
  ['PUT', '/sessions/:prefix/name', operator, renameSession],
  ['ALL', DEVICE_PATHS, mayControl, controlDevice],
  ['GET', '/desktop/_ping', mayUseDesktop, pingDesktop],
  ['GET', '/desktop/health', mayUseDesktop, desktopHealth],
  ['GET', '/desktop/activity', operator, desktopActivity],
  ['ALL', '/desktop/:tool', mayCallTool, callTool],
  ['POST', '/pairing', open, createCode],
  ['POST', '/pairing/register', operator, registerCode],
  ['POST', '/pairing/approve', operator, approveCode],
  ['POST', '/pairing/mint', operator, mintCode],
  ['GET', '/pairing/pending', operator, listPending],
  ['GET', '/pairing/routes', operator, listRoutes],
  ['POST', '/clipboard/inbox', paired('files'), postClipboard],
  ['POST', '/media/register', operator, registerMedia],
  ['POST', '/media/upload', paired('files'), uploadMedia],
  ['GET', '/media/by-path', paired('files'), getByPath],
  ['GET', '/media/folder', paired('files'), getFolder],
  ['GET', '/media/recent', paired('files'), getRecent],
  ['GET', '/media/inspect', operator, inspectMedia],
  ['GET', `/media/${MEDIA_TOKEN}`, paired('files'), getMedia],
  ['POST', `/media/${MEDIA_TOKEN}/sensitive`, operator, markSensitive],
  ['GET', '/notifications/recent', operatorOrPaired('phone'), recentNotifications],
  ['GET', '/chat/history', paired('chat'), chatHistory],
  ['GET', '/chat/search', paired('chat'), searchChats],
  ['GET', '/chat/image-activity', paired('chat'), imageActivity],
  ['GET', '/phone/threads', paired('phone'), listThreads],
  ['POST', '/phone/threads', paired('phone'), putThread],
  ['GET', '/context/injected', pairedOrHostTool(), injectedContext],
  ['GET', '/usage/providers', paired(), providerUsage],
  ['POST', '/phone/message', operatorOrPaired('phone'), postMessage],
  ['GET', '/phone/replies', operatorOrPaired('phone'), takeReplies],
  ['POST', '/phone/replies/ack', operatorOrPaired('phone'), acknowledgeReplies],
  ['GET', '/phone/history', pairedOrHostTool('phone'), phoneHistory],
  ['GET', '/phone/outbound', pairedOrHostTool('phone'), listOutbound],
  ['POST', '/phone/outbound', pairedOrHostTool('phone'), postMessage],
  ['DELETE', '/phone/outbound', pairedOrHostTool('phone'), cancelOutbound],
  ['GET', '/push/key', paired('phone'), pushKey],
  ['GET', '/push/status', operator, pushStatus],
  ['POST', '/push/subscribe', paired('phone'), subscribePush],
  ['DELETE', '/push/subscribe', paired('phone'), unsubscribePush],
  ['GET', '/bridge/status', operator, bridgeStatus],
  ['GET', '/bridge/activity', operator, bridgeActivity],
  ['GET', '/bridge/devices', operator, bridgeDevices],
  ['POST', '/bridge/select-active', operator, selectActive],
  ['GET', '/api/profiles/:name/config', paired('profiles'), getProfileConfig],
  ['GET', '/api/profiles/:name/skills', paired('profiles'), getProfileSkills],
  ['GET', '/api/profiles/:name/soul', paired('profiles'), getProfileSoul],
  ['PUT', '/api/profiles/:name/soul', paired('profiles'), putProfileSoul],
  ['GET', '/api/profiles/:name/memory', paired('profiles'), getProfileMemory],
  ['PUT', '/api/profiles/:name/memory/:filename', paired('profiles'), putProfileMemory],
  ['GET', '/api/profiles/:name/avatar', paired('profiles'), getProfileAvatar],
  ['PUT', '/api/skills/toggle', paired('profiles'), toggleSkill],
  ['POST', '/mcp', mcpClient, mcp],
  ['GET', '/mcp', mcpClient, mcp],
  ['DELETE', '/mcp', mcpClient, mcp],
  ['GET', '/relay/info', loopbackOrPaired, relayInfo],
  ['POST', '/relay/freeze', operatorOrPaired(), freezeRelay],
  ['DELETE', '/relay/freeze', operatorOrPaired('bridge'), thawRelay],
  ['GET', '/relay/events', operator, relayEvents],
  ['GET', '/relay/log', operator, relayLog],
  ['GET', '/relay/devices', operator, relayDevices],
  ['GET', '/relay/security', operator, getSecurity],
  ['PATCH', '/relay/security', operator, patchSecurity],
  ['POST', '/relay/doctor', operator, runDoctor],
  ['POST', '/relay/snapshot', operator, takeSnapshot],
  ['GET', '/relay/mirror', operator, mirrorStatus],
  ['POST', '/relay/mirror', operator, enableMirror],
  ['DELETE', '/relay/mirror', operator, disableMirror],
  ['GET', '/relay/update-check', loopbackOrPaired, updateCheck],
  ['POST', '/relay/model-capabilities', operatorOrPaired('chat'), modelCapabilities],
  ['GET', '/secure-link/preflight', operator, secureLinkPreflight],
  ['GET', '/voice/config', voice('voice:config'), getVoiceConfig],
  ['GET', '/voice/output/config', voice('voice:tts'), outputSettings.get],
  ['PATCH', '/voice/output/config', voice('voice:tts'), outputSettings.patch],
  ['GET', '/voice/output/providers/:provider/options', voice('voice:tts'), outputSettings.options],
  ['POST', '/voice/output/providers/:provider/validate', voice('voice:tts'), outputSettings.validate],
  ['GET', '/voice/realtime/config', voice('voice:realtime'), labSettings.get],
  ['PATCH', '/voice/realtime/config', voice('voice:realtime'), labSettings.patch],
  ['GET', '/voice/realtime/providers/:provider/options', voice('voice:realtime'), labSettings.options],
  ['POST', '/voice/realtime/providers/:provider/validate', voice('voice:realtime'), labSettings.validate],
  ['GET', '/voice/realtime-agent/config', voice('voice:realtime'), agentSettings.get],
  ['PATCH', '/voice/realtime-agent/config', voice('voice:realtime'), agentSettings.patch],
  ['GET', '/voice/realtime-agent/providers/:provider/options', voice('voice:realtime'), agentSettings.options],
  ['POST', '/voice/realtime-agent/providers/:provider/validate', voice('voice:realtime'), agentSettings.validate],
  ['POST', '/voice/transcribe', voice('voice:stt'), transcribe],
  ['POST', '/voice/synthesize', voice('voice:tts'), synthesize],
  ['POST', '/voice/output/session', voice('voice:tts'), createOutputSession],
  ['POST', '/voice/realtime/session', voice('voice:realtime'), createLabSession],
  ['POST', '/voice/realtime-agent/session', voice('voice:realtime'), createAgentSession],
  ['GET', '/app/*', open, serveApp],
  ['POST', SHARE_PATH, open, shareMissed],
  ['GET', '/console/*', open, serveConsole],
  // Last, because `/voice/output/config` also has the form of a socket's path.
  ...sockets.filter(({ isRoute }) => !isRoute).map(plainGet),
];

/** Routes that only home serves; the mailbox refuses them (contract 12 §2). */
const OF_HOME =
  /^\/(?:desktop|clipboard|chat|context|usage|api|voice)\/|^\/(?:relay\/model-capabilities|media\/(?:by-path|folder|recent))$/;

export const routes: readonly Route[] = table.map((row) => {
  const [method, path, guard, handler] = row;
  return path === DEVICE_PATHS || OF_HOME.test(path) ? [method, path, guard, homeOnly(handler)] : row;
});

/** `GET` of a socket's path without an upgrade. In voice, nothing is revealed before authentication (contract 05 §2). */
function plainGet({ path, guard }: SocketRow): Route {
  return ['GET', path, path.startsWith('/voice/') ? guard : open, path === '/' ? homePage : upgradeRequired];
}

/** A browser opened at the relay's address gets the page for phones. */
function homePage(request: RelayRequest, relay: Relay): Response | Promise<Response> {
  return wantsPage(request) ? toApp() : upgradeRequired(request, relay);
}

const NO_QUERY = Object.freeze({});

export type Fetch = (request: Request, peer: Peer) => Promise<Response>;

/** The relay's HTTP surface as one function of a request and the peer that the runtime saw. */
export function createFetch(relay: Relay): Fetch {
  const index = indexRoutes(routes);
  const routers = routersOf(routes);

  async function answer(request: RelayRequest): Promise<Response> {
    const path = pathOf(request.url);
    const end = path.search(/[?#]/);
    const indexed = index.get(`${request.method} ${end < 0 ? path : path.slice(0, end)}`);
    if (indexed) {
      const { route, params } = indexed;
      Object.assign(request, { params, query: end < 0 ? NO_QUERY : readQuery(path.slice(end)) });
      return (await route[2](request, relay)) ?? route[3](request, relay);
    }
    const segment = segmentOf(path);
    const response: Response | undefined = await routers.get(segment)?.fetch(request, relay);
    if (response) return response;
    // The path may have been written differently: `/x/../health`.
    const { pathname } = new URL(request.url);
    const router = routers.get(segmentOf(pathname));
    if (segmentOf(pathname) === segment) return noRoute(request, router);
    return (await router?.fetch(request, relay)) ?? noRoute(request, router);
  }

  return async (incoming, peer) => {
    const request = Object.assign(incoming as RelayRequest, { peer, budgets: relay.budgets });
    const cross = crossOrigin(request, relay);
    const response = cross?.preflight ?? (await settle(request));
    return cross ? cross.allow(response) : response;
  };

  async function settle(request: RelayRequest): Promise<Response> {
    const { peer } = request;
    try {
      const judged = relay.ingressMarker.peerOf(peer, request.headers);
      if (judged !== peer) request.peer = await judged;
      const refusal = misdirected(request, relay);
      return (refusal && (await refusal)) ?? (await answer(request));
    } catch (error) {
      return failureResponse(error, request, `${request.method} request`, relay.log);
    }
  }
}

const createRouter = () => Router<RelayRequest, [Relay]>();
type SegmentRouter = ReturnType<typeof createRouter>;

/** One router per first segment of a path, since a router tries its routes one by one. */
function routersOf(rows: readonly Route[]): Map<string, SegmentRouter> {
  const routers = new Map<string, SegmentRouter>();
  const add = (segment: string, method: string, [, path, guard, handler]: Route) => {
    const router = routers.get(segment) ?? createRouter();
    routers.set(segment, router);
    router[method.toLowerCase()]?.(path, guard, handler);
  };
  for (const row of rows) {
    const [method, path] = row;
    const segments = path === DEVICE_PATHS ? DEVICE_ROWS.map((route) => route.path) : [path];
    for (const segment of new Set(segments.map(segmentOf))) {
      add(segment, method, row);
      // `HEAD` works wherever `GET` does; the runtimes omit its body.
      if (method === 'GET') add(segment, 'HEAD', row);
    }
  }
  return routers;
}

/**
 * Checks whether a path is in the route table, for callers without a relay. `rows` is the socket table, whose paths count
 * too.
 */
export function createPathCheck(rows: readonly SocketRow[] = sockets): (pathname: string) => boolean {
  const routers = routersOf([...routes, ...rows.map(plainGet)]);
  return (pathname) => routers.get(segmentOf(pathname))?.routes.some(([, pattern]) => pattern.test(pathname)) ?? false;
}

/** The first segment of a path, which begins with a slash and may have a query. */
function segmentOf(path: string): string {
  const end = path.slice(1).search(/[/?#]/);
  return end < 0 ? path.slice(1) : path.slice(1, end + 1);
}

function noRoute(request: Request, router: SegmentRouter | undefined): Response {
  const { pathname } = new URL(request.url);
  const matching = router?.routes.filter(([, pattern]) => pattern.test(pathname)) ?? [];
  if (matching.length === 0) return errorFor(request, 404, 'not found');
  const allowed = new Set(matching.map(([method]) => method));
  return errorFor(request, 405, 'method not allowed', { allow: [...allowed].sort().join(', ') });
}
