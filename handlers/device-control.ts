import { RelayError } from '../lib/errors.ts';
import { DEVICE_ROWS, deviceRoutes } from '../lib/operations/device.ts';
import { errorResponse, jsonText, readJsonText } from '../lib/web/json.ts';
import { actorOf } from './actor.ts';
import { paired } from './guards.ts';
import { type Guard, type Handler, hangUpOf, lastOf, type RelayRequest } from './request.ts';

/** Bytes of a body (contract 03 §4.1). */
const LIMIT = 2 * 1024 * 1024;
const HEADERS = { 'content-type': 'application/json; charset=utf-8' };
/** Statuses whose responses never carry a body. */
const EMPTY = new Set([204, 205, 304]);

/** All paths of Device Control, as one row of the route table. */
export const DEVICE_PATHS = `/(?<command>${[...new Set(DEVICE_ROWS.map(({ path }) => path.slice(1)))].join('|')})`;

/** The path without the trailing slash that the router allows. */
const pathOf = (request: RelayRequest): string => `/${request.params.command ?? ''}`;

const bridgeGrant = paired('bridge');

/** Checks the method first, then the bearer, then the grant (contract 03 §2). `HEAD` is never forwarded. */
export const mayControl: Guard = (request, relay) => {
  const routes = deviceRoutes(pathOf(request));
  if (routes.some(({ method }) => method === request.method)) return bridgeGrant(request, relay);
  const allow = routes
    .map(({ method }) => method)
    .sort()
    .join(', ');
  return errorResponse(405, 'method not allowed', { allow });
};

/** Every call of Device Control: forwards it to a phone and returns the phone's response unchanged (contract 03 §4). */
export const controlDevice: Handler = async (request, relay) => {
  const route = deviceRoutes(pathOf(request)).find(({ method }) => method === request.method);
  if (!route) throw new RelayError('not-found', 'not found');
  const body = route.method === 'POST' ? await readJsonText(request, LIMIT) : undefined;
  const reply = await relay.bridge.command({
    route,
    query: lastOf(request.query),
    body,
    signal: hangUpOf(request),
    actor: actorOf(request, relay),
  });
  return jsonText(EMPTY.has(reply.status) ? null : reply.body, reply.status, HEADERS);
};
