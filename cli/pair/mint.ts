import type { Config } from '../../lib/config.ts';
import type { Host } from '../../lib/host/index.ts';
import { asObject, parseObject } from '../../lib/kit/json.ts';
import { type BuiltCandidate, preferRole } from '../../lib/pairing/build-candidates.ts';
import { hostCandidates } from '../../lib/pairing/host-candidates.ts';
import type { ApiTarget } from '../../lib/pairing/payload.ts';
import { strangerOn } from '../operator-key.ts';
import { type CommandContext, CommandError, printWarning } from '../output.ts';
import {
  addressText,
  callRelay,
  isSuccess,
  localRelay,
  nextAfterRefusal,
  type RelayAddress,
  refusal,
  silent,
} from '../relay-client.ts';
import type { PairOptions } from './options.ts';
import type { Pairing } from './print.ts';
import { postTo } from './register.ts';

const PROBE_TIMEOUT = 1000;
/** A mint may wait for the broker twice. */
const CALL_TIMEOUT = 30_000;

/**
 * Address of the running relay of this machine.
 * @throws CommandError if nothing answers at its address, or something else does.
 */
export async function findRelay(config: Config): Promise<RelayAddress> {
  const address = localRelay(config);
  const call = { method: 'GET', path: '/health', timeout: PROBE_TIMEOUT } as const;
  const answer = await callRelay(address, call).catch((error) => Promise.reject(silent(address, error)));
  if (isSuccess(answer) && asObject(answer.body)?.status === 'ok') return answer.address;
  throw new CommandError(
    `the server on ${addressText(address)} is not a relay (HTTP ${answer.status})`,
    'Stop that program, or start the relay on another port with: svc relay start --port N',
  );
}

/**
 * Has the relay make a code in a signed payload.
 * @throws CommandError if it refuses, does not answer, or does not answer like a relay.
 */
export async function mint(
  options: PairOptions,
  relay: RelayAddress,
  api: ApiTarget | null,
  host: Host,
  { context, operatorUids }: { context: CommandContext; operatorUids: readonly number[] },
): Promise<Pairing> {
  const endpoints = relay.url === undefined ? await candidates(options, relay, api, host, context) : [];
  const stranger = relay.url === undefined ? await strangerOn(relay, host, operatorUids) : undefined;
  if (stranger !== undefined) {
    const its = api?.key ? ', so it does not get the key of the API server' : '';
    printWarning(context, `what answers on ${addressText(relay)} belongs to ${stranger}${its}`);
  }
  const body = {
    // The relay may know a key that this command cannot find, so an empty one is not sent.
    ...(api && {
      host: api.host,
      port: api.port,
      tls: api.tls,
      api_key: (stranger === undefined && api.key) || undefined,
    }),
    transport_hint: options.hint ?? (relay.tls ? 'wss' : 'ws'),
    ttl_seconds: options.ttl,
    grants: options.grants,
    without: options.without,
    endpoints: endpoints.length > 0 ? endpoints : undefined,
    dashboard_url: options.dashboardUrl,
    redeem: options.via,
  };
  const answer = await postTo(relay, { path: '/pairing/mint', body, timeout: CALL_TIMEOUT });
  if (!isSuccess(answer)) {
    const hasNoMirror = options.via === 'edge' && answer.status === 409;
    throw new CommandError(
      `the relay refused to make a pairing code: ${refusal(answer)}`,
      hasNoMirror
        ? 'Give this relay a mirror first, with: svc relay mirror enable --relay <URL of the edge>'
        : (nextAfterRefusal(answer) ?? "Nothing was paired. See the relay's log for details."),
    );
  }
  const minted = asObject(answer.body);
  const { qr_payload: payload, pairing_url: url, code, expires_at: expiresAt, listener } = minted ?? {};
  if (typeof payload !== 'string' || !parseObject(payload) || typeof url !== 'string') {
    throw new CommandError(`the server on ${addressText(relay)} does not answer like a relay of this version`);
  }
  return {
    payload,
    pairingUrl: url,
    ...(typeof asObject(listener)?.host === 'string' && { listenerHost: String(asObject(listener)?.host) }),
    ...(typeof code === 'string' && typeof expiresAt === 'number' && { code: { text: code, expiresAt } }),
  };
}

async function candidates(
  options: PairOptions,
  relay: RelayAddress,
  api: ApiTarget | null,
  { network }: Host,
  context: CommandContext,
): Promise<BuiltCandidate[]> {
  const { mode, publicUrl, prefer } = options;
  const built = await hostCandidates({ mode, api, relay, publicUrl, network });
  if (built.length === 0 && mode !== 'auto') {
    throw new CommandError(
      mode === 'lan' ? 'this machine has no LAN address' : 'no tailnet answers on this machine',
      'Use another --mode, or --mode public with --public-url.',
    );
  }
  if (prefer === undefined) return built;
  const preferred = preferRole(built, prefer);
  if (!preferred) printWarning(context, `--prefer: there is no route '${prefer}'; the order is unchanged`);
  return preferred ?? built;
}
