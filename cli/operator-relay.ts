import { readConfig } from '../lib/config.ts';
import { describeError } from '../lib/errors.ts';
import { asObject } from '../lib/kit/json.ts';
import { loadEnvironment } from './environment.ts';
import type { Options } from './options.ts';
import { type CommandContext, CommandError, printable } from './output.ts';
import {
  addressText,
  callRelay,
  configured,
  isSuccess,
  nextAfterRefusal,
  nextAfterSilence,
  type RelayAddress,
  type RelayCall,
  refusal,
} from './relay-client.ts';
import { remoteRelay } from './remote-relay.ts';

const TIMEOUT = 5000;
/** Bytes. The relay keeps at most 16 MiB of replies. */
const MAX_ANSWER = 32 * 1024 * 1024;

export type OperatorCall = Omit<RelayCall, 'timeout'> & { timeout?: number };

/** The running relay on this machine, or the one of `--relay`, called as its operator. */
export interface OperatorRelay {
  /** Where the relay is, for messages. */
  readonly name: string;
  /** Whether it speaks TLS, as far as it was called. */
  readonly tls: boolean;
  /**
   * Makes one call and returns the JSON object of its answer.
   * @throws Refused when the relay refuses, `Unreachable` when it does not answer.
   */
  call(call: OperatorCall): Promise<Record<string, unknown>>;
}

/** The relay did not answer. Unlike after a refusal, a retry may succeed. */
export class Unreachable extends CommandError {}

/** The relay answered with an error. */
export class Refused extends CommandError {
  /** Of HTTP. */
  readonly status: number;
  /** The relay's error sentence, safe for a terminal. */
  readonly reason: string;

  /** Whether what was asked for is in effect, but not stored, or not all of it (contract 01 §6.7). */
  readonly isApplied: boolean;
  /** Whether shells of the device that it was about may go on. */
  readonly hasShellsLeft: boolean;

  constructor(message: string, next: string, status: number, reason: string, body?: Record<string, unknown>) {
    super(message, next);
    this.status = status;
    this.reason = reason;
    this.isApplied = body?.applied === true;
    this.hasShellsLeft = body?.shells_left === true;
  }
}

export async function openOperatorRelay(options: Options, context: CommandContext): Promise<OperatorRelay> {
  const { env, places } = loadEnvironment(context.env);
  const remote = await remoteRelay(options, places.agentHome);
  let address: RelayAddress = remote ?? configured(readConfig(env, places).config);
  return {
    get name() {
      return addressText(address);
    },
    get tls() {
      return address.tls;
    },
    async call(call) {
      const answer = await callRelay(address, {
        timeout: TIMEOUT,
        maxAnswer: MAX_ANSWER,
        ...call,
        headers: { 'x-svc-operator': '1', ...call.headers },
      }).catch((error) => {
        const why = `no relay answers on ${addressText(address)}: ${describeError(error)}`;
        throw new Unreachable(
          why,
          remote ? nextAfterSilence(remote) : "Start it with 'svc relay start', or set RELAY_PORT to its port.",
        );
      });
      address = answer.address;
      const body = asObject(answer.body);
      if (isSuccess(answer) && (body || call.onText)) return body ?? {};
      const reason = printable(refusal(answer));
      throw new Refused(
        `the relay on ${addressText(address)} refused: ${reason}`,
        nextAfterRefusal(answer) ??
          (answer.status === 404 ? 'It may be of another version. Restart it.' : "The relay's log says more."),
        answer.status,
        reason,
        body ?? undefined,
      );
    },
  };
}
