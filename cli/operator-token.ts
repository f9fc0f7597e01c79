import type { CAC } from 'cac';
import type { Options } from './options.ts';
import type { CommandContext } from './output.ts';

/**
 * `svc relay operator-token`: the credential for operator routes of a relay at the edge, where there is no loopback.
 * The key pair is made once and stays in the agent home; the edge gets its public half only.
 */
export function registerOperatorToken(program: CAC): void {
  program
    .command('operator-token', 'print a short-lived token for the operator routes of a relay at the edge')
    .option('--ttl <duration>', 'how long it is good (default 10m, at most 1d)')
    .option('--public-key', 'print the public key instead, as one line for RELAY_OPERATOR_PUBLIC_KEY')
    .option('--json', 'print one JSON document')
    .example((name) => `TOKEN=$(${name} operator-token)`)
    .example((name) => `${name} operator-token --ttl 1h --json`)
    .example((name) => `${name} operator-token --public-key | wrangler secret put RELAY_OPERATOR_PUBLIC_KEY`)
    .action(async (options: Options, context: CommandContext) =>
      (await import('./operator-token-run.ts')).run(options, context),
    );
}
