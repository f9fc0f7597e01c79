import type { Command } from 'cac';
import { RelayError } from '../../lib/errors.ts';
import { upstreamReason } from '../../lib/host/upstream.ts';
import { defaultPort, unbracket } from '../../lib/kit/addresses.ts';
import { asObject, type JsonObject } from '../../lib/kit/json.ts';
import { otherRelayAdvice } from '../../lib/reach/connector.ts';
import { loadEnvironment } from '../environment.ts';
import { asPort, asTimeout, flag, type Options, option } from '../options.ts';
import { aligned, type CommandContext, CommandError, line, printable, printJson } from '../output.ts';
import { addressText, callRelay, isSuccess, type RelayAddress, refusal, relayPort, START } from '../relay-client.ts';

/** Milliseconds. */
const TIMEOUT = 5_000;

/** `svc reach status`: whether this machine's relay is connected to its broker, or the state of a broker. */
export function define(command: Command): void {
  command
    .option('--broker <url>', 'ask this broker, by its wss:// or https:// URL, instead of the relay of this machine')
    .option('--port <n>', 'port of the relay of this machine')
    .option('--timeout <seconds>', 'how long to wait (default 5)')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} status`)
    .example((name) => `${name} status --broker wss://reach.example`)
    .action(run);
}

/** Exits with 1 if the relay is not connected. */
async function run(options: Options, context: CommandContext): Promise<number> {
  const broker = option(options, '--broker', asBroker);
  const timeout = option(options, '--timeout', asTimeout) ?? TIMEOUT;
  const port = option(options, '--port', asPort) ?? relayPort(loadEnvironment(context.env), context);
  const address = broker ?? { host: '127.0.0.1', port, tls: false };
  const body = await askHealth(address, timeout);
  const json = flag(options, '--json');
  return broker ? showBroker(body, json, context) : showRelay(body, json, context);
}

function asBroker(text: string): RelayAddress {
  const url = URL.canParse(text) ? new URL(text.replace(/^ws/i, 'http')) : undefined;
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password) {
    throw new RelayError('invalid', 'must be the wss:// or https:// URL of a broker');
  }
  const tls = url.protocol === 'https:';
  const host = unbracket(url.hostname);
  return { host, port: Number(url.port) || defaultPort(tls ? 'https' : 'http'), tls, url: url.origin };
}

async function askHealth(address: RelayAddress, timeout: number): Promise<JsonObject> {
  const isBroker = address.url !== undefined;
  const who = isBroker ? `the broker at ${addressText(address)}` : `the relay on ${addressText(address)}`;
  const next = isBroker
    ? 'Check the URL, and that the broker is running there. For a private CA, set NODE_EXTRA_CA_CERTS.'
    : `${START} Or name its port with --port.`;
  const answer = await callRelay(address, { method: 'GET', path: '/health', timeout }).catch((error) => {
    throw new CommandError(`${who} does not answer: ${upstreamReason(error)}`, next);
  });
  const body = asObject(answer.body);
  if (!isSuccess(answer) || !body) throw new CommandError(`${who} answers with ${refusal(answer)}`, next);
  return body;
}

function showBroker(body: JsonObject, json: boolean, context: CommandContext): number {
  if (body.service !== 'svc_reach') {
    throw new CommandError(
      'that is no Reach broker',
      "Check the URL: its /health names the service. On a name that it shares with a relay, use a host's own name.",
    );
  }
  if (json) printJson(context.stdout, body);
  else {
    line(context.stdout, 'The broker is running.');
    const rows: [string, string][] = [
      ['Hosts online', String(body.hosts_online)],
      ['Streams', String(body.active_streams)],
    ];
    for (const text of aligned(rows)) line(context.stdout, text);
  }
  return 0;
}

function showRelay(body: JsonObject, json: boolean, context: CommandContext): number {
  const reach = asObject(asObject(body.secure_link)?.reach) ?? {};
  const isConnected = reach.connected === true;
  if (json) {
    printJson(context.stdout, reach);
    return isConnected ? 0 : 1;
  }
  const rows: [string, string][] = [];
  const add = (label: string, value: unknown) => {
    if (value !== undefined && value !== null) rows.push([label, printable(String(value))]);
  };
  add('State', reach.state ?? 'unknown');
  add('Broker', reach.broker_url);
  add('Host ID', reach.host_id);
  add('Streams', reach.active_streams);
  add('Last error', reach.last_error);
  line(
    context.stdout,
    isConnected ? 'The relay is connected to its broker.' : 'The relay is not connected to a broker.',
  );
  for (const text of aligned(rows)) line(context.stdout, text);
  if (isConnected) return 0;
  const advice = otherRelayAdvice(String(reach.last_error));
  line(context.stderr, advice ?? "Set it up with 'svc reach token', and see 'svc relay doctor'.");
  return 1;
}
