import { RelayError } from '../lib/errors.ts';
import { seconds } from '../lib/kit/clock.ts';
import { findDiskProblem } from '../lib/operator/disk-problem.ts';
import type { Relay } from '../lib/relay.ts';
import { json, readJson } from '../lib/web/json.ts';
import { type Handler, isYes } from './request.ts';
import { rowOf } from './sessions.ts';

const PROTOCOL_VERSION = 1;

/**
 * `GET /relay/info` (contract 01 §8.1, 07 §3.1), with the freeze in effect (09 §3). For the operator, it includes failing
 * stores with the reason (01 §6.7), problems of clock and disk (11 §5), lost addresses of the machine that devices depend on
 * (11 §2), and the rule for operators (01 §1.3 rule 6).
 */
export const relayInfo: Handler = async (request, relay) => {
  const [agent, capabilities] = await Promise.all([relay.info.agent(), relay.info.capabilities()]);
  const sessions = relay.sessions.count();
  const failing = request.session ? [] : relay.failingStores();
  const freeze = relay.gate.state();
  const clock = request.session ? undefined : relay.clockProblem();
  const gone = request.session ? [] : (relay.addresses?.gone() ?? []);
  const operator = request.session || request.peer.via === 'edge' ? undefined : await relay.localOperator.state();
  const disk =
    request.session || !relay.host ? null : await findDiskProblem({ config: relay.config, host: relay.host });
  const body = {
    version: relay.version,
    plugin_version: relay.version,
    protocol_version: PROTOCOL_VERSION,
    capabilities,
    profiles: agent.profiles,
    uptime_seconds: relay.info.uptimeSeconds(),
    session_count: sessions,
    paired_device_count: sessions,
    pending_commands: relay.bridge.pendingCount(),
    media_entry_count: relay.media?.count() ?? 0,
    health: 'ok',
    gateway_heartbeat: agent.gateway_heartbeat,
    gateway_prior_exit: agent.gateway_prior_exit,
    ...(failing.length > 0 ? { failing_stores: failing } : {}),
    ...(clock && { clock_problem: clock }),
    ...(disk && { disk_problem: disk }),
    ...(gone.length > 0 ? { gone_addresses: gone } : {}),
    ...(operator && { operator: { key_required: operator.keyRequired, forwarders: operator.forwarders } }),
    ...(freeze && { freeze }),
  };
  return json(body);
};

/**
 * `GET /relay/devices`: the sessions with their open connections (contract 09 §2). Ages are in milliseconds; a connection
 * without proof of life for 45 s is `stale`.
 */
export const relayDevices: Handler = (_request, relay) => {
  const rows = relay.sessions.list().map((session) => ({
    ...rowOf(session, false, seconds(relay.clock)),
    connections: relay.sockets.describe(session),
  }));
  return json({ devices: rows, count: rows.length });
};

const securityResponse = ({ security, config }: Relay): Response =>
  json({
    ok: true,
    scope: 'runtime',
    allow_insecure_api_bearer: security.allowInsecureApiBearer,
    trust_proxy_headers: config.trustProxyHeaders,
  });

/** `GET /relay/security` (contract 01 §8.2). */
export const getSecurity: Handler = (_request, relay) => securityResponse(relay);

/** `PATCH /relay/security`: takes effect at once, until the relay restarts (contract 01 §8.2). */
export const patchSecurity: Handler = async (request, relay) => {
  const { allow_insecure_api_bearer: allow } = await readJson(request);
  if (typeof allow !== 'boolean') throw new RelayError('invalid', 'allow_insecure_api_bearer must be a boolean');
  await relay.security.setAllowInsecureApiBearer(allow);
  return securityResponse(relay);
};

/** `POST /relay/doctor`: the checks of `svc relay doctor` (contract 09 §4). Takes no body. */
export const runDoctor: Handler = async (_request, relay) => {
  if (!relay.doctor) throw new RelayError('unsupported', 'this relay runs without a host that a doctor could examine');
  return json(await relay.doctor.report());
};

/** `POST /relay/snapshot`: a copy of the state for `svc backup`, which removes it (contract 11 §3). Takes no body. */
export const takeSnapshot: Handler = async (_request, relay) => {
  if (!relay.snapshots) throw new RelayError('unsupported', 'this relay runs without a host');
  return json({ ok: true, path: await relay.snapshots.take() });
};

/** `GET /relay/update-check`, `?refresh=1|true|yes` (contract 01 §8.3). */
export const updateCheck: Handler = async (request, relay) => {
  const refresh = [request.query.refresh].flat().some(isYes);
  return json(await relay.updates.result(refresh));
};
