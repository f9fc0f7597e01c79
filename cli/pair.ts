import type { Command } from 'cac';
import { createStorage } from 'unstorage';
import { type Config, readConfig } from '../lib/config.ts';
import { describeError } from '../lib/errors.ts';
import type { Host } from '../lib/host/index.ts';
import { isLoopbackName } from '../lib/kit/addresses.ts';
import { asObject, parseObject } from '../lib/kit/json.ts';
import { createLog } from '../lib/log.ts';
import { buildApiPayload } from '../lib/pairing/api-payload.ts';
import { resolveApiTarget } from '../lib/pairing/api-target.ts';
import { type BuiltCandidate, buildCandidates, preferRole } from '../lib/pairing/build-candidates.ts';
import { type ApiTarget, pairingUrl } from '../lib/pairing/payload.ts';
import { createQrSecret } from '../lib/pairing/secret.ts';
import { loadEnvironment } from './environment.ts';
import type { Options } from './options.ts';
import { type CommandContext, CommandError, createStyle, line, printWarning } from './output.ts';
import { type PairOptions, readPairOptions } from './pair/options.ts';
import { type Pairing, printPairing } from './pair/print.ts';
import { registerCode } from './pair/register.ts';
import {
  addressText,
  callRelay,
  configured,
  isSuccess,
  nextAfterRefusal,
  nextAfterSilence,
  type RelayAddress,
  refusal,
} from './relay-client.ts';
import { RELAY_OPTION, remoteRelay } from './remote-relay.ts';

const PROBE_TIMEOUT = 1000;
const CALL_TIMEOUT = 5000;

/** `svc pair` (contract 01 §9.4). */
export function define(command: Command): void {
  command
    .option('--ttl <duration>', '1d 7d 30d 90d 1y never, seconds, or a number and s m h d w y (default 30d)')
    .option('--grants <list>', 'how long to grant single channels: terminal=7d,bridge=1d')
    .option('--only <list>', 'the only grants that the device gets: chat,files')
    .option('--without <list>', 'grants that the device does not get: terminal,bridge')
    .option('--host <host>', 'host of the API server as the device reaches it')
    .option('--port <port>', 'port of the API server')
    .option('--dashboard-url <url>', 'dashboard to include in the code')
    .option('--mode <mode>', 'which routes to offer: auto, lan, tailscale or public (default auto)')
    .option('--public-url <url>', 'http(s) URL under which the relay is published')
    .option('--prefer <role>', 'route to try first: lan, tailscale or public')
    .option('--png', 'only write the QR code to a PNG file')
    .option('--no-qr', 'text only, no QR code')
    .option(...RELAY_OPTION)
    .option('--no-relay', 'pair with the API server only')
    .option('--register-code <code>', 'register the code that a phone shows, and exit')
    .option('--transport-hint <hint>', 'ws or wss (default: what the relay speaks)')
    .option('--show-key', 'print the API key in full')
    .option('--token', 'pair a tool on this machine instead, and print only its session token (default --ttl 1d)')
    .option('--name <name>', 'with --token: device name of the tool')
    .example((name) => `${name} pair`)
    .example((name) => `${name} pair --ttl 7d --grants terminal=1d,bridge=12h`)
    .example((name) => `${name} pair --only chat,files`)
    .example((name) => `${name} pair --mode public --public-url https://relay.example.com`)
    .example((name) => `${name} pair --relay https://relay.example.com`)
    .example((name) => `${name} pair --register-code ABC123`)
    .example((name) => `TOKEN=$(${name} pair --token --name curl)`)
    .action(run);
}

async function run(given: Options, context: CommandContext): Promise<void> {
  const options = readPairOptions(given);
  const { env, places } = loadEnvironment(context.env);
  const { config } = readConfig(env, places);
  const remote = await remoteRelay(given, places.agentHome);
  const find = async () => remote ?? (await probe(config));
  if (options.code !== undefined) return registerCode(options.code, options, await find(), context);
  if (options.token) return (await import('./pair/token.ts')).pairTool(options, await find(), context);

  const host = await context.createHost(places.agentHome);
  const log = createLog('WARNING', (text) => line(context.stderr, text));
  const relay = options.relay ? await find() : null;
  if (options.without && !relay) {
    throw new CommandError(
      'the relay is not running, and only its sessions have grants',
      'Start it with: svc relay start',
    );
  }
  if (options.relay && !relay) {
    const { dim } = createStyle(context.stderr, context.env);
    line(
      context.stderr,
      `The relay is not running on ${addressText(configured(config))}: this pairs with the API server only.`,
    );
    line(context.stderr, `${dim('Start it with:')} svc relay start`);
  }
  if (relay && !remote && isLoopbackName(config.host) && ['auto', 'lan'].includes(options.mode)) {
    printWarning(context, `RELAY_HOST is ${config.host}: a phone cannot reach that relay over the local network`);
  }
  // The key of this machine's API server goes to a relay elsewhere only together with an address given for it.
  const api =
    remote && options.host === undefined
      ? null
      : await resolveApiTarget({ host: options.host, port: options.port }, { config, host, log });
  if (options.without && api && api.key !== '') {
    printWarning(context, 'the code also holds the key of the API server, which grants do not restrict');
  }
  const pairing = relay
    ? await mint(options, relay, api, host, context)
    : apiOnly(options, api, await createQrSecret({ host, store: createStorage(), log }).read());
  await printPairing(pairing, options, places.agentHome, context);
}

/** Address of the running relay, or null when nothing there answers like one. */
async function probe(config: Config): Promise<RelayAddress | null> {
  const call = { method: 'GET', path: '/health', timeout: PROBE_TIMEOUT } as const;
  const answer = await callRelay(configured(config), call).catch(() => null);
  return answer && isSuccess(answer) && asObject(answer.body)?.status === 'ok' ? answer.address : null;
}

async function mint(
  options: PairOptions,
  relay: RelayAddress,
  api: ApiTarget | null,
  host: Host,
  context: CommandContext,
): Promise<Pairing> {
  const endpoints = relay.url === undefined ? await candidates(options, relay, api, host, context) : [];
  const body = {
    // A key that this command cannot find may still be known to the relay, so an empty one is not sent.
    ...(api && { host: api.host, port: api.port, tls: api.tls, api_key: api.key || undefined }),
    transport_hint: options.hint ?? (relay.tls ? 'wss' : 'ws'),
    ttl_seconds: options.ttl,
    grants: options.grants,
    without: options.without,
    endpoints: endpoints.length > 0 ? endpoints : undefined,
    dashboard_url: options.dashboardUrl,
  };
  const call = { method: 'POST', path: '/pairing/mint', body, timeout: CALL_TIMEOUT } as const;
  const answer = await callRelay(relay, call).catch((error) => {
    throw new CommandError(
      `the relay on ${addressText(relay)} did not answer: ${describeError(error)}`,
      nextAfterSilence(relay),
    );
  });
  if (!isSuccess(answer)) {
    throw new CommandError(
      `the relay refused to make a pairing code: ${refusal(answer)}`,
      nextAfterRefusal(answer) ?? "Nothing was paired. The relay's log says more.",
    );
  }
  const minted = asObject(answer.body);
  const { qr_payload: payload, pairing_url: url } = minted ?? {};
  if (typeof payload !== 'string' || !parseObject(payload) || typeof url !== 'string') {
    throw new CommandError(`the server on ${addressText(relay)} does not answer like a relay of this version`);
  }
  return { payload, pairingUrl: url };
}

async function candidates(
  options: PairOptions,
  relay: RelayAddress,
  api: ApiTarget | null,
  { network }: Host,
  context: CommandContext,
): Promise<BuiltCandidate[]> {
  const { mode, publicUrl, prefer } = options;
  const [lanAddress, tailnet] = await Promise.all([
    network.lanAddress(),
    mode === 'lan' ? null : network.tailnet().catch(() => null),
  ]);
  // An API server on another machine stays there on the LAN route.
  const target = api && { ...api, host: isLoopbackName(api.host) ? undefined : api.host };
  const built = buildCandidates({ mode, api: target, relay, lanAddress, tailnet, publicUrl });
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

function apiOnly(options: PairOptions, api: ApiTarget | null, secret: Uint8Array | null): Pairing {
  if (!api) {
    throw new CommandError(
      'there is nothing to pair with: the API server is disabled, and there is no relay',
      options.relay
        ? 'Start the relay with: svc relay start'
        : 'Leave --no-relay out, or name the API server with --host.',
    );
  }
  const payload = JSON.stringify(buildApiPayload(api, options.dashboardUrl, secret));
  return { payload, pairingUrl: pairingUrl(payload) };
}
