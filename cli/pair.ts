import { rm } from 'node:fs/promises';
import type { Command } from 'cac';
import { createStorage } from 'unstorage';
import { isLoopbackName, isWildcard, splitUrl } from '../lib/kit/addresses.ts';
import { systemClock } from '../lib/kit/clock.ts';
import { asObject } from '../lib/kit/json.ts';
import { createLog } from '../lib/log.ts';
import { resolveApiTarget } from '../lib/pairing/api-target.ts';
import { type ApiTarget, buildPayload, pairingUrl } from '../lib/pairing/payload.ts';
import { createQrSecret } from '../lib/pairing/secret.ts';
import { pageLink } from '../lib/pairing/web-link.ts';
import { loadConfig } from './environment.ts';
import { keepAlive } from './keep-alive.ts';
import { openOperatorRelay } from './operator-relay.ts';
import type { Options } from './options.ts';
import { type CommandContext, CommandError, createStyle, line, printWarning, sentence } from './output.ts';
import { apiProblem, findApiState } from './pair/api-state.ts';
import { findRelay, mint } from './pair/mint.ts';
import { checkRemote, type PairOptions, readPairOptions } from './pair/options.ts';
import { type Pairing, printPairing, printPairingJson } from './pair/print.ts';
import { removeOldPngs } from './pair/qr.ts';
import { registerCode } from './pair/register.ts';
import { routeProblems, storageProblem } from './pair/route-problems.ts';
import { createWaitScreen } from './pair/screen.ts';
import { type PairingWatch, watchPairings } from './pair/wait.ts';
import { RELAY_OPTION, remoteRelay } from './remote-relay.ts';
import { timeOfDay } from './times.ts';

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
    .option(
      '--via <side>',
      'where the code is valid: at home only, or at edge only (the mirror that answers while home is off)',
    )
    .option('--web', 'pair a browser: shows the address of the app with the code (without bridge and desktop)')
    .option('--png', 'only write the QR code to a PNG file')
    .option('--no-qr', 'text only, no QR code')
    .option('--no-wait', 'exit at once; on a terminal, the command otherwise waits until the code is used or expires')
    .option('--check', 'try every step of a pairing, and name the first that fails; leaves nothing behind')
    .option('--json', 'print one JSON document and exit; it contains credentials')
    .option(...RELAY_OPTION)
    .option('--api-only', 'pair with the API server alone, without the relay')
    .option('--no-relay', 'the older name of --api-only')
    .option('--register-code <code>', 'register the code that a phone shows, and exit')
    .option('--transport-hint <hint>', 'ws or wss (default: what the relay speaks)')
    .option('--show-key', 'print the API key in full')
    .option(
      '--token',
      'pair a tool on this machine instead, and print only its session token (default --ttl 1d, and no terminal, tui, desktop, devices, files)',
    )
    .option('--name <name>', 'with --token: device name of the tool')
    .example((name) => `${name} pair`)
    .example((name) => `${name} pair --ttl 7d --grants terminal=1d,bridge=12h`)
    .example((name) => `${name} pair --only chat,files`)
    .example((name) => `${name} pair --mode public --public-url https://relay.example.com`)
    .example((name) => `${name} pair --relay https://relay.example.com`)
    .example((name) => `${name} pair --via edge`)
    .example((name) => `${name} pair --via edge --relay https://relay.example.com`)
    .example((name) => `${name} pair --web`)
    .example((name) => `${name} pair --check`)
    .example((name) => `${name} pair --register-code ABC123`)
    .example((name) => `TOKEN=$(${name} pair --token --name curl)`)
    .action(run);
}

async function run(given: Options, context: CommandContext): Promise<number | void> {
  const options = readPairOptions(given);
  const environment = loadConfig(context.env);
  const { config, directories } = environment;
  const remote = options.relay ? await remoteRelay(given, environment) : undefined;
  if (remote) checkRemote(given);
  const find = async () => remote ?? (await findRelay(config));
  if (options.code !== undefined) return registerCode(options.code, options, await find(), context);
  if (options.token) return (await import('./pair/token.ts')).pairTool(options, await find(), context);

  const host = await context.createHost(directories.agentHome);
  if (options.check) {
    const { checkPairing } = await import('./pair/check.ts');
    return checkPairing({ given, options, config, host, remote, context });
  }
  const log = createLog('WARNING', (text) => line(context.stderr, text));
  // A code without a relay would pair nothing (contract 11 §1).
  const relay = options.relay ? await find() : null;
  // The key of this machine's API server is sent to a remote relay only together with an address given for it. A browser
  // uses the relay only.
  const api =
    options.web || (remote && options.host === undefined)
      ? null
      : await resolveApiTarget({ host: options.host, port: options.port }, { config, host, log });
  if (options.without && api && api.key !== '') {
    printWarning(context, 'the code also holds the key of the API server, which grants do not restrict');
  }
  await removeOldPngs(directories.agentHome);
  const make = async () =>
    relay
      ? withPage(usable(await mint(options, relay, api, host, { context, operatorUids: config.operatorUids })))
      : apiOnly(options, api, await createQrSecret({ host, store: createStorage(), log }).read());
  // The relay of this machine does not see the use of a code of the edge.
  const isElsewhere = options.via === 'edge' && !remote;
  const withPage = (pairing: Pairing): Pairing => {
    if (!options.web || !relay) return pairing;
    // The relay's own answer takes precedence, since it may have been started with another RELAY_HOST.
    const listener = pairing.listenerHost ?? config.host;
    const isLocal = !remote && !isElsewhere && isLoopbackName(listener) && options.publicUrl === undefined;
    return { ...pairing, page: pageLink(pairing.payload, { local: isLocal ? relay : undefined }) };
  };
  const show = async (pairing: Pairing, waits: boolean) => {
    // A relay of an older version offers the LAN address nevertheless.
    const isOlder = relay && !remote && !options.web && pairing.listenerHost === undefined;
    if (isOlder && isLoopbackName(config.host) && ['auto', 'lan'].includes(options.mode)) {
      printWarning(context, `RELAY_HOST is ${config.host}: a phone cannot reach that relay over the local network`);
    }
    const payload = asObject(JSON.parse(pairing.payload)) ?? {};
    const [state, storage, routes] = await Promise.all([
      findApiState(payload, host.network),
      relay ? storageProblem(relay) : [],
      relay ? routeProblems(payload, pairing.listenerHost, host.network) : [],
    ]);
    const problem = options.web ? undefined : apiProblem(payload, state);
    const deps = { options, directory: directories.agentHome, api: state, context, waits };
    // The page's own address is the only route of a browser.
    const all = [...storage, ...(problem ? [problem] : []), ...routes.filter(({ isFirst }) => isFirst || !options.web)];
    return (options.json ? printPairingJson : printPairing)(pairing, { ...deps, notices: all });
  };
  const waits = relay !== null && !isElsewhere && options.wait && !options.json && context.stdout.isTTY === true;
  const watch = waits ? await watchPairings(await openOperatorRelay(given, context), context, systemClock) : null;
  if (!watch) {
    await show(await make(), false);
    return;
  }
  return await keepAlive(waitForDevice(watch, { make, show, context }).finally(() => watch.stop()));
}

interface WaitingDeps {
  make(): Promise<Pairing>;
  /** Returns the path of a PNG that the caller must remove. */
  show(pairing: Pairing, waits: boolean): Promise<string | undefined>;
  context: CommandContext;
}

/** Shows codes until one is used or expires. Always removes its files. */
async function waitForDevice(watch: PairingWatch, { make, show, context }: WaitingDeps): Promise<number> {
  for (;;) {
    const pairing = await make();
    const { code } = pairing;
    const png = await show(pairing, code !== undefined);
    if (!code) return 0;
    const end = await watch
      .wait(code, createWaitScreen(pairing.page ?? pairing.pairingUrl, context))
      .finally(async () => {
        if (png !== undefined) await rm(png, { force: true });
      });
    const { green } = createStyle(context.stdout, context.env);
    switch (end.name) {
      case 'again':
        line(context.stdout);
        continue;
      case 'paired':
        line(context.stdout, `${green('Paired:')} ${end.device}`);
        sentence(context.stdout, 'See it, or revoke it, with: svc devices');
        return 0;
      case 'used':
        sentence(context.stdout, 'The code was used, and the device has not connected yet. See: svc devices');
        return 0;
      case 'left':
        sentence(
          context.stdout,
          `Nothing has been paired yet. The code stays valid until ${timeOfDay(code.expiresAt)}.`,
        );
        return 0;
      case 'expired':
        throw new CommandError('no device used the code within its ten minutes', 'Make a new one with: svc pair');
      case 'lost':
        throw new CommandError(
          end.why,
          'See whether it runs with: svc relay doctor; then make a new code with: svc pair',
        );
    }
  }
}

/** @throws CommandError for a code whose only address is a wildcard, which no device could use (contract 11 §1). */
function usable(pairing: Pairing): Pairing {
  const payload = asObject(JSON.parse(pairing.payload)) ?? {};
  const endpoints = Array.isArray(payload.endpoints) ? payload.endpoints.map(asObject) : [];
  // The relay's own address is for devices of older versions, which know no routes.
  if (endpoints.length > 0) return pairing;
  const address = splitUrl(String(asObject(payload.relay)?.url ?? ''));
  if (!address || !isWildcard(address.host)) return pairing;
  throw new CommandError(
    'this machine has no address that a device could reach, so no code is shown',
    'Connect it to a network, or name where it is published with: svc pair --mode public --public-url URL',
  );
}

function apiOnly(options: PairOptions, api: ApiTarget | null, secret: Uint8Array | null): Pairing {
  if (!api) {
    throw new CommandError(
      'there is nothing to pair with: the API server is disabled',
      'Leave --api-only out, or name the API server with --host.',
    );
  }
  const payload = JSON.stringify(buildPayload({ api, dashboardUrl: options.dashboardUrl }, secret));
  return { payload, pairingUrl: pairingUrl(payload) };
}
