import { readConfig } from '../../lib/config.ts';
import { describeError } from '../../lib/errors.ts';
import { isLoopbackName, urlHost } from '../../lib/kit/addresses.ts';
import { asObject } from '../../lib/kit/json.ts';
import { GRANTS } from '../../lib/sessions/grants.ts';
import type { VoiceGrant } from '../../lib/voice/principal.ts';
import { loadEnvironment } from '../environment.ts';
import { asText, type Options, option } from '../options.ts';
import { type CommandContext, CommandError, printable, printWarning, UsageError } from '../output.ts';
import { createToolSession } from '../pair/token.ts';
import {
  addressText,
  callRelay,
  isSuccess,
  localRelay,
  nextAfterRefusal,
  nextAfterSilence,
  type RelayAddress,
  type RelayAnswer,
  type RelayCall,
  refusal,
  START,
  silent,
} from '../relay-client.ts';
import { remoteRelay } from '../remote-relay.ts';
import { onSignals } from '../signals.ts';

/** Lifetime in seconds of a short command's session. It is revoked earlier, unless the command is killed. */
const SESSION_TTL = 900;
/** Milliseconds. Listing the voices of a provider may take ten seconds. */
const CALL_TIMEOUT = 15_000;
const PROBE_TIMEOUT = 3000;

/** The running relay, called as a device that has only voice grants. */
export interface VoiceRelay {
  /** Host and port, or the URL of a remote relay. */
  name: string;
  /** True if it runs on this machine. */
  isLocal: boolean;
  /** Aborted when the command has to stop. */
  signal: AbortSignal;
  /**
   * Makes one call and returns the JSON object of its answer.
   * @throws CommandError if the relay refuses or does not answer.
   */
  call(call: Omit<RelayCall, 'timeout'> & { timeout?: number }): Promise<Record<string, unknown>>;
  /** The same for other answers, such as audio. */
  fetch(call: Omit<RelayCall, 'timeout'> & { timeout?: number }): Promise<void>;
  /** URL, headers and trust for a socket of the session. */
  socket(path: string): { url: string; headers: Record<string, string>; rejectUnauthorized: boolean };
}

/**
 * Runs `use` with a new session at the running relay, or at that of `--relay`: a pairing that the operator makes for this
 * command, with these grants only. It is always revoked, even after a signal, and ends by itself after `ttl` seconds, by
 * default a quarter of an hour. The API key of the agent is not used, since it would depend on the agent's API server, and
 * on TLS.
 */
export async function withVoiceRelay<T>(
  options: Options,
  context: CommandContext,
  grants: readonly VoiceGrant[],
  use: (relay: VoiceRelay) => Promise<T>,
  ttl = SESSION_TTL,
): Promise<T> {
  const stop = new AbortController();
  const endSignals = onSignals(() => stop.abort(), context);
  try {
    const address = await findRelay(options, context);
    const without = GRANTS.filter((name) => !(grants as readonly string[]).includes(name));
    const wanted = { ttl, without, name: context.program };
    const { token } = await createToolSession(wanted, address, context);
    try {
      throwIfStopped(stop.signal);
      return await use(asDevice({ ...address, authorize: undefined }, token, stop.signal));
    } catch (error) {
      throwIfStopped(stop.signal);
      throw error;
    } finally {
      await revoke({ ...address, authorize: undefined }, token, ttl, context);
    }
  } finally {
    endSignals();
  }
}

/** A signal ended the command. */
export class Stopped extends CommandError {}

/** @throws Stopped after a signal. */
export function throwIfStopped(signal: AbortSignal): void {
  if (signal.aborted) throw new Stopped('stopped', 'Nothing was changed. Run it again.');
}

/** The profile of `--profile`. */
export function profileOption(options: Options): string | undefined {
  const profile = option(options, '--profile', asText)?.trim();
  if (profile === '') throw new UsageError('--profile needs a value');
  return profile;
}

/** The address at which the relay answers, with its actual protocol. */
async function findRelay(options: Options, context: CommandContext): Promise<RelayAddress> {
  const environment = loadEnvironment(context.env);
  const remote = await remoteRelay(options, environment);
  const address = remote ?? localRelay(readConfig(environment.env, environment.directories).config);
  const probe = await callRelay(address, { method: 'GET', path: '/health', timeout: PROBE_TIMEOUT }).catch((error) => {
    throw silent(address, error);
  });
  if (isSuccess(probe) && asObject(probe.body)?.status === 'ok') return probe.address;
  throw new CommandError(
    `the server on ${addressText(address)} is not a relay (HTTP ${probe.status})`,
    nextAfterRefusal(probe) ?? START,
  );
}

function asDevice(address: RelayAddress, token: string, signal: AbortSignal): VoiceRelay {
  const headers = { authorization: `Bearer ${token}` };
  const isLocal = address.url === undefined;
  async function answerTo(call: Omit<RelayCall, 'timeout'> & { timeout?: number }): Promise<RelayAnswer> {
    const answer = await callRelay(address, { timeout: CALL_TIMEOUT, ...call, headers, signal }).catch((error) => {
      // The file to send could not be read.
      if (error instanceof CommandError) throw error;
      throw new CommandError(
        `the relay on ${addressText(address)} did not answer: ${describeError(error)}`,
        isLocal ? 'Check that it is still running: svc relay doctor' : nextAfterSilence(address),
      );
    });
    if (isSuccess(answer)) return answer;
    throw new CommandError(printable(refusal(answer)), nextAfter(answer));
  }
  return {
    name: addressText(address),
    isLocal,
    signal,
    async call(call) {
      const answer = await answerTo(call);
      const body = asObject(answer.body);
      if (body) return body;
      throw new CommandError(printable(refusal(answer)), nextAfter(answer));
    },
    fetch: async (call) => void (await answerTo(call)),
    socket: (path) => ({
      url: `${address.tls ? 'wss' : 'ws'}://${urlHost(address.host)}:${address.port}${path}`,
      headers,
      // Like for calls, since the certificate of a relay on this machine is usually self-signed.
      rejectUnauthorized: !isLocal || !isLoopbackName(address.host),
    }),
  };
}

/** The next step after a refusal of a voice route. */
export function nextAfter({ status }: Pick<RelayAnswer, 'status'>): string {
  if (status === 429) return 'Too many calls are under way: try again in a minute.';
  if (status === 501) return 'A relay at the edge has no files: run this at a relay on a host.';
  if (status === 404) return 'It may be switched off, or the relay of another version. See: svc voice doctor';
  return 'See which providers and keys the relay has: svc voice doctor';
}

async function revoke(address: RelayAddress, token: string, ttl: number, context: CommandContext): Promise<void> {
  const call = { method: 'DELETE', path: `/sessions/${token.slice(0, 8)}`, timeout: PROBE_TIMEOUT } as const;
  const headers = { authorization: `Bearer ${token}` };
  const answer = await callRelay(address, { ...call, headers }).catch(() => undefined);
  if (answer && (isSuccess(answer) || answer.status === 401)) return;
  printWarning(context, `the session of this command could not be revoked; it ends in ${ttl / 60} minutes`);
}
