import type { Command } from 'cac';
import { MAX_OPERATOR_TTL } from '../lib/access/operator-token.ts';
import { variables } from '../lib/config.ts';
import { RelayError } from '../lib/errors.ts';
import { describeDuration, parseDuration } from '../lib/pairing/duration.ts';
import { loadEnvironment, readVariable } from './environment.ts';
import { openOperatorSigner } from './operator-signer.ts';
import { asHttpUrl, flag, type Options, option } from './options.ts';
import { type CommandContext, line, printJson, quote, sentence, UsageError } from './output.ts';

/** Seconds. */
const DEFAULT_TTL = 600;

/**
 * `svc relay operator-token`: the credential for operator routes of a relay at the edge, where there is no loopback.
 * The key pair is created once and stays in the agent home; the edge gets its public half only.
 */
export function define(command: Command): void {
  command
    .option('--ttl <duration>', 'lifetime of the token (default 10m, at most 15m)')
    .option('--relay <relay>', 'the relay it is for: its public URL or RELAY_NAME (default RELAY_NAME, else svc-relay)')
    .option(
      '--public-key',
      'print the public key instead, as one line for RELAY_OPERATOR_PUBLIC_KEY in [vars] of wrangler.toml',
    )
    .option('--json', 'print one JSON document')
    .example((name) => `TOKEN=$(${name} operator-token)`)
    .example((name) => `${name} operator-token --relay https://relay.example --ttl 2m --json`)
    .example((name) => `${name} operator-token --public-key   # for [vars] of wrangler.toml`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const ttl = option(options, '--ttl', asTtl);
  const json = flag(options, '--json');
  const publicOnly = flag(options, '--public-key');
  if (publicOnly && ttl !== undefined) throw new UsageError('--ttl and --public-key exclude each other');

  const audience = option(options, '--relay', asAudience);
  const environment = loadEnvironment(context.env);
  const signer = await openOperatorSigner(environment.directories.agentHome);
  const oneLine = signer.publicKey.trim().replaceAll('\n', '\\n');
  if (publicOnly) {
    return json ? printJson(context.stdout, { public_key: oneLine }) : quote(context.stdout, oneLine);
  }

  const seconds = ttl ?? DEFAULT_TTL;
  const made = audience ?? readVariable(variables.relayName, environment);
  const { token, expiresAt } = await signer.sign(made, seconds);
  if (json) return printJson(context.stdout, { token, expires_at: expiresAt, audience: made });
  line(context.stdout, token);
  for (const text of advice(seconds, made)) sentence(context.stderr, text);
  quote(context.stderr, `  RELAY_OPERATOR_PUBLIC_KEY = "${oneLine}"`);
}

/** The origin of a URL, as the edge knows itself, or a name as it is. */
function asAudience(text: string): string {
  const name = text.trim();
  if (/^https?:/i.test(name)) return new URL(asHttpUrl(name)).origin;
  if (!/^[^\s\p{Cc}]{1,128}$/u.test(name)) throw new RelayError('invalid', 'must be a URL or a name without spaces');
  return name;
}

function asTtl(text: string): number {
  const seconds = parseDuration(text);
  if (seconds === 0 || seconds > MAX_OPERATOR_TTL) throw new RelayError('invalid', 'must be at most 15m');
  return seconds;
}

const advice = (ttl: number, relay: string): string[] => [
  '',
  `Valid for ${describeDuration(ttl)}, at the relay '${relay}' only. Send it as: Authorization: Bearer <token>`,
  '',
  'The edge accepts it once [vars] of wrangler.toml has the public key of this machine, which is no secret:',
];
