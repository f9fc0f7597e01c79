import type { Command } from 'cac';
import { isLoopbackName } from '../lib/kit/addresses.ts';
import { asObject } from '../lib/kit/json.ts';
import { ACTIONS } from './actions.ts';
import { loadEnvironment } from './environment.ts';
import { operatorHeaders } from './operator-key.ts';
import { actionOf, asHost, asPort, flag, type Options, option } from './options.ts';
import { type CommandContext, CommandError, line, printJson } from './output.ts';
import { addressText, DEFAULT_PORT, type RelayAddress, relayPort, requireAnswer } from './relay-client.ts';

const TIMEOUT = 5000;
const STATES = { status: undefined, on: true, enable: true, off: false, disable: false };

/** `svc relay insecure-api-key [status|on|off]` (contract 01 §9.3, 07 §5.6). */
export function define(command: Command): void {
  command
    .option('--host <host>', 'host of the relay (default 127.0.0.1)')
    .option('--port <port>', `port of the relay (default: that of the running relay, RELAY_PORT, ${DEFAULT_PORT})`)
    .option('--json', "print the relay's answer as JSON")
    .example((name) => `${name} insecure-api-key            # status`)
    .example((name) => `${name} insecure-api-key on         # until the relay restarts`)
    .example((name) => `${name} insecure-api-key off --json`)
    .action(run);
}

async function run(state: string | undefined, options: Options, context: CommandContext): Promise<void> {
  const wanted = STATES[actionOf(state, ...ACTIONS['insecure-api-key'])];
  const json = flag(options, '--json');
  const given = option(options, '--port', asPort);
  const host = option(options, '--host', asHost) ?? '127.0.0.1';
  const environment = loadEnvironment(context.env);
  const { env, directories } = environment;
  const port = given ?? relayPort(environment, context);
  const address: RelayAddress = {
    host,
    port,
    tls: Boolean(env.RELAY_SSL_CERT?.trim() && env.RELAY_SSL_KEY?.trim()),
    authorize: isLoopbackName(host) ? () => operatorHeaders(directories.agentHome, port) : undefined,
  };

  const answer = await requireAnswer(address, {
    method: wanted === undefined ? 'GET' : 'PATCH',
    path: '/relay/security',
    body: wanted === undefined ? undefined : { allow_insecure_api_bearer: wanted },
    timeout: TIMEOUT,
  });
  const body = asObject(answer.body);
  if (typeof body?.allow_insecure_api_bearer !== 'boolean') {
    throw new CommandError(`the server on ${addressText(address)} does not answer like a relay`);
  }
  if (json) return printJson(context.stdout, sorted(body), 2);
  const enabled = body.allow_insecure_api_bearer;
  const advice = `; turn it off with: ${context.program} insecure-api-key off`;
  line(
    context.stdout,
    `Insecure API-key voice auth is ${enabled ? 'enabled' : 'disabled'} on ${addressText(address)}${enabled ? advice : ''}`,
  );
}

/** The same value with the keys of every object sorted. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  const object = asObject(value);
  if (!object) return value;
  const keys = Object.keys(object).sort();
  return Object.fromEntries(keys.map((key) => [key, sorted(object[key])]));
}
