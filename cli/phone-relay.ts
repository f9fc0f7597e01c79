import { readConfig } from '../lib/config.ts';
import { describeError } from '../lib/errors.ts';
import { asObject } from '../lib/kit/json.ts';
import { loadEnvironment } from './environment.ts';
import { type CommandContext, CommandError, printable } from './output.ts';
import {
  addressText,
  callRelay,
  configured,
  isSuccess,
  type RelayAddress,
  type RelayCall,
  refusal,
} from './relay-client.ts';

const TIMEOUT = 5000;
/** Replies are as long as phones make them: at most 16 MiB are kept. */
const MAX_ANSWER = 32 * 1024 * 1024;

export type PhoneCall = Omit<RelayCall, 'timeout'> & { timeout?: number };

/** The running relay on this machine, for the `svc phone` commands. */
export interface PhoneRelay {
  /**
   * One call; the JSON object of its answer.
   * @throws CommandError when the relay is not there or refuses.
   */
  call(call: PhoneCall): Promise<Record<string, unknown>>;
}

/** The relay did not answer, as opposed to refusing: it may be back in a moment. */
export class Unreachable extends CommandError {}

export function openPhoneRelay(context: CommandContext): PhoneRelay {
  const { env, places } = loadEnvironment(context.env);
  let address: RelayAddress = configured(readConfig(env, places).config);
  return {
    async call(call) {
      const answer = await callRelay(address, {
        timeout: TIMEOUT,
        maxAnswer: MAX_ANSWER,
        headers: { 'x-svc-operator': '1' },
        ...call,
      }).catch((error) => {
        const why = `no relay answers on ${addressText(address)}: ${describeError(error)}`;
        throw new Unreachable(why, "Start it with 'svc relay start', or say where it is with RELAY_PORT.");
      });
      address = answer.address;
      const body = asObject(answer.body);
      if (isSuccess(answer) && body) return body;
      throw new CommandError(
        `the relay on ${addressText(address)} refused: ${printable(refusal(answer))}`,
        answer.status === 404 ? 'Is it of this version? Restart it.' : "The relay's log says more.",
      );
    },
  };
}
