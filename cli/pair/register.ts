import { describeError } from '../../lib/errors.ts';
import { asObject } from '../../lib/kit/json.ts';
import { aligned, type CommandContext, CommandError, createStyle, line, printJson } from '../output.ts';
import {
  addressText,
  callRelay,
  isSuccess,
  nextAfterRefusal,
  nextAfterSilence,
  type RelayAddress,
  type RelayCall,
  refusal,
} from '../relay-client.ts';
import type { PairOptions } from './options.ts';
import { grantsInWords, lifetimeInWords } from './print.ts';

const TIMEOUT = 5000;

interface Registration extends Partial<Pick<PairOptions, 'ttl' | 'grants' | 'without' | 'hint' | 'via'>> {
  code: string;
}

/**
 * Registers a pairing code at the running relay, with the relay's own transport as the default hint.
 * @throws CommandError when the relay is not running or refuses.
 */
export async function registerAt(relay: RelayAddress, { code, ttl, grants, without, hint, via }: Registration) {
  const transport = hint ?? (relay.tls ? 'wss' : 'ws');
  const answer = await postTo(relay, {
    path: '/pairing/register',
    body: { code, ttl_seconds: ttl, grants, without, transport_hint: transport, redeem: via },
    timeout: TIMEOUT,
  });
  if (!isSuccess(answer))
    throw new CommandError(`the relay refused the code: ${refusal(answer)}`, nextAfterRefusal(answer));
  const url = asObject(answer.body)?.relay_url;
  return { relay, transport, url: typeof url === 'string' ? url : undefined };
}

/** `svc pair --register-code`: registers the code that a phone shows (contract 01 §9.4). */
export async function registerCode(
  code: string,
  options: PairOptions,
  address: RelayAddress,
  context: CommandContext,
): Promise<void> {
  const { relay, transport, url: atEdge } = await registerAt(address, { ...options, code });
  const url = atEdge ?? relay.url;
  if (options.json) {
    return printJson(context.stdout, { ok: true, code, relay_url: url ?? null, port: relay.port, transport });
  }
  const { bold } = createStyle(context.stdout, context.env);
  const rows = aligned([
    ['Code', `${code} (expires in 10 min, one-shot)`],
    ['Relay', atEdge ?? addressText(relay)],
    ['Transport', transport],
    ['Lifetime', lifetimeInWords(options.ttl)],
    ['Grants', grantsInWords(options)],
  ]);
  const steps = [
    '  1. In the app, open the screen that shows this code.',
    url === undefined
      ? "  2. Enter this machine's address and the port of the relay."
      : `  2. Enter the address of the relay: ${url}`,
    '  3. Tap Connect within 10 minutes.',
  ];
  for (const text of [bold('Registered'), ...rows, '', bold('In the app'), ...steps]) line(context.stdout, text);
}

/** @throws CommandError when the relay does not answer. */
export const postTo = (relay: RelayAddress, call: Pick<RelayCall, 'path' | 'body' | 'timeout'>) =>
  callRelay(relay, { method: 'POST', ...call }).catch((error) => {
    throw new CommandError(
      `the relay on ${addressText(relay)} did not answer: ${describeError(error)}`,
      nextAfterSilence(relay),
    );
  });
