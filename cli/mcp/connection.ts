import { type Agent, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { Readable } from 'node:stream';
import { createAgents } from '../../lib/host/node/agents.ts';
import { createLoopbackGuard } from '../../lib/host/node/loopback-guard.ts';
import { isLoopbackName, urlHost } from '../../lib/kit/addresses.ts';
import { createLog } from '../../lib/log.ts';
import { loadConfig } from '../environment.ts';
import { trustedUids } from '../operator-key.ts';
import type { CommandContext } from '../output.ts';
import { findRelay } from '../pair/mint.ts';
import { localRelay, type RelayAddress } from '../relay-client.ts';
import type { McpPairing } from './pairings.ts';

const CONNECT_TIMEOUT = 10_000;

/** The address of a pairing's relay. A relay of this machine is probed, since it may use TLS or not. */
export async function addressOf({ url }: McpPairing, context: CommandContext): Promise<RelayAddress> {
  if (url !== undefined) {
    const { hostname, port, protocol } = new URL(url);
    const tls = protocol === 'https:';
    return { host: hostname, port: Number(port) || (tls ? 443 : 80), tls, url };
  }
  const { config } = loadConfig(context.env);
  return await findRelay(config).catch(() => localRelay(config));
}

export const endpointOf = ({ host, port, tls, url }: RelayAddress): URL =>
  new URL('/mcp', url ?? `${tls ? 'https' : 'http'}://${urlHost(host)}:${port}`);

/**
 * `fetch` over Node's own client: without a timeout between two pieces of a stream, and for the self-signed certificate of a
 * relay on this machine. Checks who serves each connection before the token is sent over it, since another user may have
 * taken the port of a stopped relay (contract 01 §9.1a).
 */
export async function createRelayFetch(context: CommandContext): Promise<typeof fetch> {
  const { config } = loadConfig(context.env);
  const { users } = await context.createHost(config.agentHome);
  const operatorUids = await trustedUids(config.agentHome, config.operatorUids);
  const guard = createLoopbackGuard({ users, operatorUids, log: createLog('ERROR', () => {}) });
  const agents = createAgents({ guard, connectTimeout: CONNECT_TIMEOUT });
  return (input, init = {}) => {
    const url = new URL(input instanceof Request ? input.url : input);
    return send(url, init, agents.pick({ secure: url.protocol === 'https:', keepAlive: false, guarded: true }));
  };
}

function send(url: URL, init: RequestInit, agent: Agent): Promise<Response> {
  return new Promise((resolve, reject) => {
    const request = (url.protocol === 'https:' ? httpsRequest : httpRequest)(url, {
      agent,
      method: init.method ?? 'GET',
      headers: Object.fromEntries(new Headers(init.headers)),
      rejectUnauthorized: !isLoopbackName(url.hostname),
      signal: init.signal ?? undefined,
    });
    request.on('error', reject);
    request.on('response', (response) => {
      const { statusCode: status = 502 } = response;
      const headers = new Headers();
      for (const [name, value] of Object.entries(response.headers)) headers.set(name, [value].flat().join(', '));
      // No status of a `Response`, which would throw.
      if (status < 200 || status > 599) {
        response.destroy();
        return reject(new Error(`HTTP ${status}`));
      }
      const isEmpty = status === 204 || status === 205 || status === 304;
      if (isEmpty) response.resume();
      resolve(new Response(isEmpty ? null : (Readable.toWeb(response) as ReadableStream), { status, headers }));
    });
    request.end(typeof init.body === 'string' ? init.body : undefined);
  });
}
