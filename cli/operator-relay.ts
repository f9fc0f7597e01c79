import { asObject } from '../lib/kit/json.ts';
import { loadConfig, loadEnvironment } from './environment.ts';
import type { Options } from './options.ts';
import { type CommandContext, CommandError, printable } from './output.ts';
import {
  addressText,
  callRelay,
  isSuccess,
  localRelay,
  nextAfterRefusal,
  type RelayAddress,
  type RelayCall,
  refusal,
  silence,
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
  /** The origin of a relay elsewhere; undefined for the one of this machine. */
  readonly url: string | undefined;
  readonly port: number;
  /** True if it speaks TLS, as far as it was called. */
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
  /** HTTP status. */
  readonly status: number;
  /** The relay's error sentence, safe for a terminal. */
  readonly reason: string;

  /** True if what was asked for is in effect, but not stored, or not all of it (contract 01 §6.7). */
  readonly isApplied: boolean;
  /** True if shells of the device that it was about may go on. */
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
  const environment = loadEnvironment(context.env);
  const remote = await remoteRelay(options, environment);
  let address: RelayAddress = remote ?? localRelay(loadConfig(context.env).config);
  return {
    get name() {
      return addressText(address);
    },
    url: remote?.url,
    get port() {
      return address.port;
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
        throw new Unreachable(...silence(address, error));
      });
      address = answer.address;
      const body = asObject(answer.body);
      if (isSuccess(answer) && (body || call.onText)) return body ?? {};
      const reason = printable(refusal(answer));
      throw new Refused(
        `the relay on ${addressText(address)} refused: ${reason}`,
        nextAfterRefusal(answer) ??
          (answer.status === 404 ? 'It may be of another version. Restart it.' : "See the relay's log for details."),
        answer.status,
        reason,
        body ?? undefined,
      );
    },
  };
}
