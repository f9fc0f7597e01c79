import { describeError } from '../lib/errors.ts';
import { aligned, type CommandContext, CommandError, createStyle, line } from './output.ts';
import type { PairOptions } from './pair-options.ts';
import { grantsInWords, lifetimeInWords } from './pair-print.ts';
import { addressText, callRelay, isSuccess, type RelayAddress, refusal } from './relay-client.ts';

const TIMEOUT = 5000;

/** `svc pair --register-code`: makes the code that a phone shows good at the running relay (contract 01 §9.4). */
export async function registerCode(options: PairOptions, relay: RelayAddress | null, context: CommandContext) {
  const { code, ttl, grants } = options;
  if (!relay) throw new CommandError('the relay is not running', 'Start it with: svc relay start');
  const hint = options.hint ?? (relay.tls ? 'wss' : 'ws');
  const answer = await callRelay(relay, {
    method: 'POST',
    path: '/pairing/register',
    body: { code, ttl_seconds: ttl, grants, transport_hint: hint },
    timeout: TIMEOUT,
  }).catch((error) => {
    throw new CommandError(`the relay on ${addressText(relay)} did not answer: ${describeError(error)}`, 'Try again.');
  });
  if (!isSuccess(answer)) throw new CommandError(`the relay refused the code: ${refusal(answer)}`);

  const { bold } = createStyle(context.stdout, context.env);
  const rows = aligned([
    ['Code', `${code} (expires in 10 min, one-shot)`],
    ['Relay', addressText(relay)],
    ['Transport', hint],
    ['Lifetime', lifetimeInWords(ttl)],
    ['Grants', grantsInWords(grants)],
  ]);
  const steps = [
    '  1. In the app, open the screen that shows this code.',
    "  2. Enter this machine's address and the port of the relay.",
    '  3. Tap Connect within 10 minutes.',
  ];
  for (const text of [bold('Registered'), ...rows, '', bold('In the app'), ...steps]) line(context.stdout, text);
}
