import { readConfig, variables } from '../../lib/config.ts';
import { type PublicUrl, readPublicUrl } from '../../lib/dashboard/public-url.ts';
import { readRemoteAccess } from '../../lib/dashboard/remote-access.ts';
import { describeError, RelayError } from '../../lib/errors.ts';
import type { Host } from '../../lib/host/index.ts';
import { probe } from '../../lib/host/node/probe.ts';
import { pathSegment } from '../../lib/kit/addresses.ts';
import { asObject, type JsonObject } from '../../lib/kit/json.ts';
import { visibleLine } from '../../lib/kit/text.ts';
import type { Log } from '../../lib/log.ts';
import type { UpdateCheck } from '../../lib/operator/update-check.ts';
import { readApiOverrides, resolveApiTarget } from '../../lib/pairing/api-target.ts';
import { type Mode, preferRole } from '../../lib/pairing/build-candidates.ts';
import { hostCandidates } from '../../lib/pairing/host-candidates.ts';
import type { LiveCredential, Usage } from '../../lib/usage/usage.ts';
import { type Environment, readVariable } from '../environment.ts';
import type { CallAsOperator } from './operator-calls.ts';
import type { PluginRoute } from './plugin-routes.ts';
import { refusal } from './route-app.ts';

export interface ManagementDeps {
  /** Calls the relay on this host. */
  call: CallAsOperator;
  host: Host;
  /** Where the relay listens on this host. */
  relay: { port: number; tls: boolean };
  /** The environment as it is now: `.env` may have changed. */
  environment(): Environment;
  publicUrl: PublicUrl;
  updates: UpdateCheck;
  usage(): Promise<Usage>;
  /** The credential that a live session uses, where the dashboard knows it. */
  activeCredential?(sessionId: string): Promise<LiveCredential | null>;
  log: Log;
}

const MODES: readonly unknown[] = ['auto', 'lan', 'tailscale', 'public'] satisfies Mode[];
const MAX_PREFIX = 64;
const PREFLIGHT_TIMEOUT = 15_000;

/** Ports of the relay and of the agent's API server, which a tailnet may serve. */
const RELAY_PORT = 8767;
const API_PORT = 8642;
const TAILSCALE_TIMEOUT = 15_000;
const MAX_OUTPUT = 300;

const MAX_CANDIDATES = 16;
const PROBE_TIMEOUT = 2_000;

const invalid = (message: string) => new RelayError('invalid', message);

/** The management routes of the dashboard plugin (contract 07 §4.1, §4.2): proxies to the relay, and some in process. */
export function managementRoutes(deps: ManagementDeps): PluginRoute[] {
  const { call, host, publicUrl, updates } = deps;
  const get = (path: string) => call({ method: 'GET', path });

  return [
    ['GET', '/overview', () => get('/relay/info')],
    ['GET', '/sessions', () => get('/sessions')],
    [
      'DELETE',
      '/sessions/:token_prefix',
      ({ params }) => call({ method: 'DELETE', path: `/sessions/${prefixOf(params.token_prefix)}` }),
    ],
    [
      'POST',
      '/pairing',
      async ({ body }) => call({ method: 'POST', path: '/pairing/mint', body: await mintBody(await body(), deps) }),
    ],
    ['GET', '/bridge-activity', ({ query }) => get(`/bridge/activity${onlyQuery(query, 'limit')}`)],
    ['GET', '/media', ({ query }) => get(`/media/inspect?include_expired=${isTrue(query.get('include_expired'))}`)],
    ['GET', '/agent-context', () => agentContext(deps)],
    ['GET', '/push', () => pushState(get)],
    ['GET', '/phone/config', async () => phoneConfig(deps.environment())],
    ['GET', '/update-check', ({ query }) => updateCheck(updates, isTrue(query.get('refresh')), deps.environment())],
    ['GET', '/provider-usage', ({ query }) => providerUsage(deps, query)],
    [
      'GET',
      '/remote-access/status',
      async () => {
        const [health, tailnet, { url }] = await Promise.all([
          get('/health'),
          host.network.tailnet(),
          publicUrl.read(),
        ]);
        return readRemoteAccess(health, tailnet, url);
      },
    ],
    ['GET', '/remote-access/public-url', () => publicUrl.read()],
    ['PUT', '/remote-access/public-url', async ({ body }) => publicUrl.write(urlOf(await body()))],
    ['POST', '/remote-access/probe', async ({ body }) => probeAll(await body())],
    ['POST', '/remote-access/tailscale/enable', async ({ body }) => serveOnTailnet(portsOf(await body()), true, deps)],
    [
      'POST',
      '/remote-access/tailscale/disable',
      async ({ body }) => serveOnTailnet(portsOf(await body()), false, deps),
    ],
    [
      'GET',
      '/remote-access/secure-link/preflight',
      ({ query }) =>
        call({
          method: 'GET',
          path: `/secure-link/preflight${onlyQuery(query, 'host', 'port')}`,
          timeout: PREFLIGHT_TIMEOUT,
        }),
    ],
  ];
}

/** The state of web push. It also answers without a relay, as earlier versions of the plugin did. */
async function pushState(get: (path: string) => Promise<unknown>): Promise<object> {
  const status = asObject(await get('/push/status').catch(() => null));
  if (!status) return { configured: false, reason: 'the relay does not report whether it sends push notices' };
  const configured = Number(status.subscriptions) > 0;
  const reason = configured
    ? `devices with web push: ${status.subscriptions}`
    : 'no device has subscribed to push notices; turn them on in the settings of the app';
  return { configured, reason, ...status };
}

const isTrue = (text: string | null): boolean => ['1', 'true', 'yes', 'on'].includes(text?.trim().toLowerCase() ?? '');

/** The `url` of a body. One that is missing clears nothing: only an empty one or null does. */
function urlOf({ url }: JsonObject): string | null {
  if (url === undefined) throw invalid('url is required: a URL, or null to clear it');
  return readPublicUrl(url);
}

/** The named parameters of a query, as a query; empty when none is given. */
function onlyQuery(query: URLSearchParams, ...names: string[]): string {
  const params = new URLSearchParams();
  for (const name of names) {
    const value = query.get(name);
    if (value !== null) params.set(name, value);
  }
  return params.size === 0 ? '' : `?${params}`;
}

function prefixOf(text = ''): string {
  const prefix = text.trim();
  // Without the spaces around it, it may be dots.
  const segment = pathSegment(prefix);
  if (prefix.length < 1 || prefix.length > MAX_PREFIX || segment === null) {
    throw invalid(`the prefix of a session has 1 to ${MAX_PREFIX} characters, and is not dots`);
  }
  return segment;
}

/** The body of `POST /pairing/mint`: what the client gave, with the addresses of this host as `endpoints`. */
async function mintBody(given: JsonObject, deps: ManagementDeps): Promise<JsonObject> {
  const { mode = 'auto', public_url, prefer, ...body } = given;
  if (!MODES.includes(mode)) throw invalid(`mode must be one of ${MODES.join(', ')}`);
  if (prefer != null && typeof prefer !== 'string') throw invalid('prefer must be a role: lan, tailscale or public');
  const endpoints = await endpointsOf(mode as Mode, readPublicUrl(public_url), prefer ?? undefined, body, deps);
  return { ...body, endpoints: endpoints.length > 0 ? endpoints : undefined };
}

async function endpointsOf(
  mode: Mode,
  givenUrl: string | null,
  prefer: string | undefined,
  body: JsonObject,
  { host, relay, publicUrl, environment, log }: ManagementDeps,
) {
  const { env, directories } = environment();
  const { config } = readConfig(env, directories);
  const [pinned, api] = await Promise.all([
    publicUrl.read(),
    resolveApiTarget(readApiOverrides(body), { config, host, log }),
  ]);
  const url = givenUrl ?? pinned.url ?? undefined;
  if (mode === 'public' && url === undefined) throw invalid('mode public needs public_url, here or pinned');
  const built = await hostCandidates({ mode, api, relay, publicUrl: url, network: host.network });
  if (built.length === 0 && mode !== 'auto') {
    throw invalid(mode === 'lan' ? 'this machine has no LAN address' : 'no tailnet answers on this machine');
  }
  return prefer === undefined ? built : (preferRole(built, prefer) ?? built);
}

async function agentContext({ call, environment }: ManagementDeps) {
  const now = environment();
  return {
    settings: {
      RELAY_AGENT_CONTEXT_ENABLED: readVariable(variables.agentContextEnabled, now),
      RELAY_CONTEXT_MEDIA_SENSITIVITY: readVariable(variables.contextMediaSensitivity, now),
    },
    injected: await call({ method: 'GET', path: '/context/injected' }),
  };
}

const phoneConfig = (environment: Environment) => ({
  enabled: readVariable(variables.phoneEnabled, environment),
  home_channel_id: 'phone',
  home_channel_name: readVariable(variables.phoneHomeChannelName, environment),
  name_env_key: variables.phoneHomeChannelName.name,
});

async function updateCheck(updates: UpdateCheck, refresh: boolean, environment: Environment) {
  const { error = null, ...result } = await updates.result(refresh);
  const hasFeed = readVariable(variables.updateFeedUrl, environment) !== undefined;
  return { ...result, error: hasFeed ? error : 'no release feed is configured', checked_at: updates.checkedAt() };
}

async function providerUsage({ usage, activeCredential, log }: ManagementDeps, query: URLSearchParams) {
  const sessionId = query.get('session_id')?.trim() ?? '';
  const ask = sessionId === '' || !activeCredential ? null : activeCredential(sessionId);
  const live = await ask?.catch((error: unknown) => {
    log.debug(`the dashboard does not tell the credential of a session: ${describeError(error)}`);
    return null;
  });
  return (await usage()).report({ profile: query.get('profile') ?? '', sessionId, live });
}

/** Asks each candidate for its health, all at once. */
async function probeAll({ candidates }: JsonObject) {
  if (!Array.isArray(candidates)) throw invalid('candidates must be an array of URLs');
  if (candidates.length > MAX_CANDIDATES) throw invalid(`candidates must be at most ${MAX_CANDIDATES} URLs`);
  return { results: await Promise.all(candidates.map(probeOne)) };
}

async function probeOne(candidate: unknown) {
  const url = typeof candidate === 'string' ? candidate.trim() : '';
  const base = healthUrl(url);
  if (base === null) {
    const error = 'not an http(s) URL without credentials, query and fragment';
    return { url, reachable: false, status: null, latency_ms: null, error };
  }
  const began = performance.now();
  const { ok, status, error } = await probe('GET', base, PROBE_TIMEOUT);
  return {
    url,
    reachable: ok,
    status,
    latency_ms: status === null ? null : Math.round(performance.now() - began),
    error: error ?? (ok ? null : `HTTP ${status}`),
  };
}

/** A socket's URL counts as that of the same server. */
function healthUrl(text: string): string | null {
  const http = text.replace(/^ws(?=s?:\/\/)/i, 'http').replace(/\/+$/, '');
  const url = URL.canParse(http) ? new URL(http) : null;
  const isPlain = url && /^https?:$/.test(url.protocol) && !url.username && !url.password && !/[?#]/.test(http);
  return isPlain ? `${http}/health` : null;
}

function portsOf({ port, stack }: JsonObject): number[] {
  if (stack === true && port === undefined) return [RELAY_PORT, API_PORT];
  if (stack === undefined && (port === RELAY_PORT || port === API_PORT)) return [port];
  throw invalid(`the body must be {"port":${RELAY_PORT}}, {"port":${API_PORT}} or {"stack":true}`);
}

/** Lets the tailnet serve local ports under the same numbers, or ends that. */
async function serveOnTailnet(ports: number[], enabled: boolean, { host, relay, environment }: ManagementDeps) {
  const file = await host.children.find('tailscale');
  if (file === null) throw refusal(503, 'tailscale is not installed on this machine');
  const apiTls = readVariable(variables.webapiUrl, environment()).startsWith('https:');
  for (const port of ports) {
    // The certificate of a service on this machine is usually self-signed.
    const scheme = (port === RELAY_PORT ? relay.tls : apiTls) ? 'https+insecure' : 'http';
    const args = enabled
      ? ['serve', '--bg', `--https=${port}`, `${scheme}://127.0.0.1:${port}`]
      : ['serve', `--https=${port}`, 'off'];
    const { code, stdout, stderr } = await host.children.run(
      { file, args, env: definedOf(host.env), cwd: '/' },
      TAILSCALE_TIMEOUT,
    );
    if (code !== 0) {
      const said = visibleLine(`${stdout.trim()} ${stderr}`).trim().slice(0, MAX_OUTPUT);
      const why = code === null ? 'did not end in time' : `failed with exit code ${code}`;
      throw refusal(502, `tailscale serve ${why} for port ${port}${said === '' ? '' : `: ${said}`}`);
    }
  }
  return { ok: true, enabled, ports };
}

const definedOf = (env: Readonly<Record<string, string | undefined>>): Record<string, string> =>
  Object.fromEntries(Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])));
