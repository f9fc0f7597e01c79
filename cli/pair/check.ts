import type { Config } from '../../lib/config.ts';
import type { Host } from '../../lib/host/index.ts';
import { isLoopbackName, urlHost } from '../../lib/kit/addresses.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { asObject } from '../../lib/kit/json.ts';
import { createLog } from '../../lib/log.ts';
import { resolveApiTarget } from '../../lib/pairing/api-target.ts';
import { buildCandidates } from '../../lib/pairing/build-candidates.ts';
import { newPairingCode } from '../../lib/pairing/code.ts';
import { GRANTS } from '../../lib/sessions/grants.ts';
import { keepAlive } from '../keep-alive.ts';
import { strangerOn } from '../operator-key.ts';
import { type OperatorRelay, openOperatorRelay } from '../operator-relay.ts';
import type { Options } from '../options.ts';
import { type CommandContext, createStyle, line, printable, printJson, sentence, wrapped } from '../output.ts';
import { addressText, callRelay, localRelay, type RelayAddress, START } from '../relay-client.ts';
import { onSignals } from '../signals.ts';
import { checkClock, checkRoutes, checkSecureLink, checkState, checkTls, ROUTE_TIMEOUT } from './check-routes.ts';
import { failed, judgeRoutes, ok, type Step, type StepStatus, skipped, warning } from './check-step.ts';
import type { PairOptions } from './options.ts';
import { type Trial, tryPairing } from './trial.ts';

/** Lifetime of the trial session in seconds, in case it is not revoked. */
const TRIAL_TTL = 60;

export interface CheckDeps {
  given: Options;
  options: PairOptions;
  config: Config;
  host: Host;
  /** The relay of `--relay`. */
  remote: RelayAddress | undefined;
  context: CommandContext;
}

/**
 * `svc pair --check`: performs the steps of a phone in order, and names the first one that fails (contract 09 §2). It leaves
 * a trace only in the relay's log. Returns the exit code: 0 if a phone could pair now.
 */
export async function checkPairing(deps: CheckDeps): Promise<number> {
  const { options, context } = deps;
  const stop = new AbortController();
  const release = onSignals(() => stop.abort(), context);
  try {
    const steps = await keepAlive(walk(deps, stop.signal));
    const first = steps.find(({ status }) => status === 'failed');
    if (options.json) {
      printJson(
        context.stdout,
        {
          ok: first === undefined,
          ...(first && { error: `${first.id}: ${first.summary}` }),
          failed: first?.id ?? null,
          next: first?.next ?? null,
          steps,
        },
        2,
      );
    } else print(steps, first, context);
    return first === undefined ? 0 : 1;
  } finally {
    release();
  }
}

async function walk(deps: CheckDeps, signal: AbortSignal): Promise<Step[]> {
  const { config, host, remote, given, context, options } = deps;
  const named = remote ?? localRelay(config);
  const answer = await callRelay(named, { method: 'GET', path: '/health', timeout: ROUTE_TIMEOUT }).catch(() => null);
  const body = asObject(answer?.body);
  if (!answer || body?.status !== 'ok') {
    const why = answer
      ? `something else answers on ${addressText(named)}`
      : `nothing answers on ${addressText(named)}${named.tried === undefined ? '' : ` (${named.tried})`}`;
    return [failed('relay', why, remote ? 'Check the URL, and deploy it with: npx wrangler deploy' : START)];
  }
  const address = answer.address;
  const readiness = asObject(body.readiness);
  const relay = await openOperatorRelay(given, context);
  const steps: Step[] = [
    readiness?.ready === false
      ? failed('relay', `the relay is ${readiness.state}`, 'Wait a moment, then type again: svc pair --check')
      : body.frozen === true
        ? warning(
            'relay',
            `svc-relay ${body.version} answers on ${addressText(address)}, frozen: the agent cannot act on devices`,
            `End the freeze with: svc unfreeze`,
          )
        : ok('relay', `svc-relay ${body.version} answers on ${addressText(address)}`),
    checkState(asObject(readiness?.checks)?.session_store, remote ? null : config.stateFile),
  ];
  if (remote) steps.push(ok('public-url', `${remote.url} answers`));
  else steps.push(...(await localSteps(deps, address, body, await listenerOf(relay, config))));
  steps.push(await checkClock(host, systemClock.now()), ...(await trialSteps(relay, address, signal)));
  steps.push(await checkApiKey(config, host, options, remote !== undefined));
  return steps;
}

async function localSteps(
  { host, options }: CheckDeps,
  address: RelayAddress,
  body: unknown,
  listener: Pick<Config, 'host' | 'port'>,
): Promise<Step[]> {
  const { mode, publicUrl } = options;
  const [lanAddress, tailnet] = await Promise.all([
    host.network.lanAddress(),
    host.network.tailnet().catch(() => null),
  ]);
  const isLoopbackOnly = isLoopbackName(listener.host);
  const place = `${urlHost(listener.host)}:${listener.port}`;
  const listens = isLoopbackOnly
    ? warning('listener', `${place}: this machine only`, 'Listen on every address with: svc relay start --host 0.0.0.0')
    : ok('listener', `${place}, ${address.tls ? 'TLS' : 'plain http'}`);
  const candidates = buildCandidates({ mode, api: null, relay: address, lanAddress, tailnet, publicUrl });
  const [routes, link, tls] = await Promise.all([
    checkRoutes(candidates, isLoopbackOnly),
    checkSecureLink(body, host),
    checkTls(address.host, address.port, address.tls, systemClock.now()),
  ]);
  const judged = judgeRoutes([...routes, link]);
  if (judged.every(({ status }) => status === 'skipped')) {
    judged[0] = failed(
      'lan-address',
      'this machine has no address that a phone could reach',
      'Connect it to a network, or publish it with: svc pair --mode public --public-url <url>',
    );
  }
  return [listens, ...judged, tls];
}

/** The address at which the relay reports to listen; for an older version, the configured one. */
async function listenerOf(relay: OperatorRelay, { host, port }: Config): Promise<Pick<Config, 'host' | 'port'>> {
  const answer = await relay.call({ method: 'GET', path: '/pairing/routes' }).catch(() => null);
  const listener = asObject(asObject(answer)?.listener);
  return typeof listener?.host === 'string' && typeof listener.port === 'number'
    ? { host: listener.host, port: listener.port }
    : { host, port };
}

/** Registers a separate code, pairs with it over loopback, pings, and revokes the session. */
async function trialSteps(relay: OperatorRelay, address: RelayAddress, signal: AbortSignal): Promise<Step[]> {
  const ids = ['pairing-code', 'auth', 'round-trip'] as const;
  const code = newPairingCode();
  // Useless outside of this check: no grants, valid for one minute.
  const body = { code, ttl_seconds: TRIAL_TTL, without: [...GRANTS] };
  try {
    await relay.call({ method: 'POST', path: '/pairing/register', body, signal });
  } catch (error) {
    const { message, next } = error as { message: string; next?: string };
    return [failed('pairing-code', message, next ?? 'See who may operate the relay with: svc relay doctor')];
  }
  const { dial, dialVerified } = await import('../../lib/host/node/dial.ts');
  const url = `${address.tls ? 'wss' : 'ws'}://${urlHost(address.host)}:${address.port}/ws`;
  const trial = await tryPairing(code, {
    url,
    dial: address.url === undefined ? dial : dialVerified,
    clock: systemClock,
    signal,
  });
  return [...judgeTrial(ids, trial), ...(trial.token === null ? [] : [await revoke(relay, trial.token)])];
}

function judgeTrial([code, auth, roundTrip]: readonly [string, string, string], trial: Trial): Step[] {
  const next = "The relay's log says why. See also: svc relay doctor";
  if (trial.token === null) {
    return [ok(code, 'a code was registered'), failed(auth, trial.problem ?? 'no session', next)];
  }
  return [
    ok(code, 'a code was registered and used'),
    ok(auth, 'a client on this machine was let in'),
    trial.roundTrip === null
      ? failed(roundTrip, trial.problem ?? 'no answer', next)
      : ok(roundTrip, `${trial.roundTrip.toFixed(1)} ms`),
  ];
}

async function revoke(relay: OperatorRelay, token: string): Promise<Step> {
  const prefix = token.slice(0, 8);
  try {
    await relay.call({ method: 'DELETE', path: `/sessions/${prefix}` });
    return ok('cleanup', 'the session of the trial is revoked');
  } catch (error) {
    const why = `the session of the trial is not revoked: ${(error as Error).message}`;
    return warning('cleanup', why, `Revoke it with: svc devices revoke ${prefix}`);
  }
}

/** Checks that the API server accepts the key in a code. Otherwise a phone could pair, but not chat. */
async function checkApiKey(config: Config, host: Host, options: PairOptions, isRemote: boolean): Promise<Step> {
  const id = 'api-key';
  if (isRemote && options.host === undefined) return skipped(id, 'a code of a relay elsewhere holds no API server');
  const log = createLog('ERROR', () => {});
  const api = await resolveApiTarget({ host: options.host, port: options.port }, { config, host, log });
  if (!api) return skipped(id, 'the API server is disabled: a device reaches the relay only');
  const { probe } = await import('../../lib/host/node/probe.ts');
  const url = `${api.tls ? 'https' : 'http'}://${urlHost(api.host)}:${api.port}`;
  const stranger = api.key === '' ? undefined : await strangerOn(api, host, config.operatorUids);
  const headers = api.key === '' || stranger !== undefined ? undefined : { authorization: `Bearer ${api.key}` };
  const { status, error } = await probe('GET', `${url}/v1/models`, ROUTE_TIMEOUT, headers);
  if (status === null) {
    const why = `not known: ${url} does not answer (${error}); a device pairs, and cannot chat`;
    return warning(id, why, 'Start the agent, and see how it is with: svc relay doctor');
  }
  if (stranger !== undefined) {
    return failed(
      id,
      `${url} is served by ${stranger}, so the key is not sent there`,
      'Stop that program if it is not yours; else name its user in RELAY_OPERATOR_UIDS.',
    );
  }
  if (status === 401 || status === 403) {
    const what = api.key === '' ? 'requires a key, and none was found' : 'refuses the key that was found';
    return failed(
      id,
      `${url} ${what}`,
      `Set API_SERVER_KEY in ${host.agentHome}/.env to its key, then type again: svc pair --check`,
    );
  }
  return api.key === ''
    ? warning(id, `${url} admits everybody`, 'Give the API server a key: API_SERVER_KEY in its .env')
    : ok(id, `${url} accepts it`);
}

const LABELS: Record<StepStatus, string> = { ok: '[OK]', warning: '[WARN]', failed: '[FAILED]', skipped: '[--]' };

function print(steps: readonly Step[], first: Step | undefined, context: CommandContext): void {
  const { green, yellow, red, dim } = createStyle(context.stdout, context.env);
  const paint = { ok: green, warning: yellow, failed: red, skipped: dim };
  for (const { id, status, summary, next } of steps) {
    const label = LABELS[status];
    const [head, ...rest] = wrapped(context.stdout, `${id}: ${printable(summary)}`, 9);
    line(context.stdout, `${' '.repeat(8 - label.length)}${paint[status](label)} ${head?.trimStart()}`);
    for (const text of rest) line(context.stdout, text);
    if (status === 'warning' && next)
      for (const text of wrapped(context.stdout, printable(next), 9)) line(context.stdout, text);
  }
  line(context.stdout);
  if (!first) sentence(context.stdout, green('A phone could pair now. Make a code with: svc pair'));
  else {
    sentence(context.stdout, red(`A phone could not pair now: ${first.id} fails.`));
    if (first.next) sentence(context.stdout, printable(first.next));
  }
}
