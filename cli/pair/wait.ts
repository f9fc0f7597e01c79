import type { Clock } from '../../lib/kit/clock.ts';
import { seconds } from '../../lib/kit/clock.ts';
import { asObject, parseJson } from '../../lib/kit/json.ts';
import { maskCode } from '../../lib/pairing/code.ts';
import type { OperatorRelay } from '../operator-relay.ts';
import type { CommandContext } from '../output.ts';
import { printable } from '../output.ts';
import { followEvents } from '../relay-events.ts';
import { onSignals } from '../signals.ts';

/** Milliseconds from the use of a code until its device is connected. */
const CONNECT_TIMEOUT = 10_000;
const CALL_TIMEOUT = 5000;
/** Milliseconds without the relay after which the wait ends. A restart takes less. */
const GONE_AFTER = 30_000;
const SECOND = 1000;

/** Outcome of a wait. */
export type WaitEnd =
  | { name: 'paired'; device: string }
  /** The code was used by an unknown device. */
  | { name: 'used' }
  | { name: 'expired' }
  /** The relay was restarted and forgot the code, or it is gone. */
  | { name: 'lost'; why: string }
  /** `r` */
  | { name: 'again' }
  /** `q`, `Ctrl-C` or a signal. */
  | { name: 'left' };

/** Input and output of a terminal: redraws and further text go through here. */
export interface WaitScreen {
  /** Shows the remaining seconds. */
  countdown(left: number): void;
  /** Ends the line of the countdown. */
  close(): void;
  /** `l`: shows the complete link. */
  showLink(): void;
}

/** Follows a relay from before a code is made until the code is used. */
export interface PairingWatch {
  /** Waits for the use of one code. */
  wait(code: { text: string; expiresAt: number }, screen: WaitScreen): Promise<WaitEnd>;
  stop(): void;
}

/**
 * Starts to follow the relay's events, so that no use of a later code is missed (contract 09 §2, §4). Resolves with null if
 * the relay does not report its events, like older versions.
 */
export async function watchPairings(
  relay: OperatorRelay,
  context: CommandContext,
  clock: Clock,
): Promise<PairingWatch | null> {
  let listener: (event: string, data: Record<string, unknown>) => void = () => {};
  let onGone = () => {};
  let cancelGone = () => {};
  const following = new AbortController();
  const isFollowed = await new Promise<boolean>((resolve) => {
    clock.after(CALL_TIMEOUT, () => resolve(false));
    followEvents({
      relay,
      signal: following.signal,
      onEvent(event, data) {
        resolve(true);
        listener(event, asObject(parseJson(data)) ?? {});
      },
      // A stream without news has no events.
      onOpen: () => cancelGone(),
      onLost() {
        resolve(false);
        cancelGone = clock.after(GONE_AFTER, () => onGone());
      },
    }).catch(() => {
      resolve(false);
      onGone();
    });
  });
  if (!isFollowed) {
    following.abort();
    return null;
  }
  const known = new Set((await devices(relay)).map(({ prefix }) => prefix));

  return {
    stop() {
      cancelGone();
      following.abort();
    },
    wait(code, screen) {
      return new Promise((resolve) => {
        const masked = maskCode(code.text);
        const cancels: (() => void)[] = [];
        let isOver = false;
        let wasUsed = false;

        function end(how: WaitEnd): void {
          if (isOver) return;
          isOver = true;
          listener = () => {};
          onGone = () => {};
          for (const cancel of cancels) cancel();
          screen.close();
          resolve(how);
        }
        /** The device that used the code: one with a new session. */
        async function identify(prefix?: string): Promise<void> {
          const fresh = (await devices(relay)).filter((device) => !known.has(device.prefix));
          const device =
            fresh.find((one) => one.prefix === prefix) ?? (prefix === undefined ? fresh.at(-1) : undefined);
          if (device) end({ name: 'paired', device: device.text });
        }
        function used(): void {
          if (wasUsed) return;
          wasUsed = true;
          // The device connects right afterwards; if it was faster than its event, it is in the list.
          cancels.push(clock.after(CONNECT_TIMEOUT, () => void identify().then(() => end({ name: 'used' }))));
        }
        /** Events may have been missed, so whether the code is still pending tells what happened. */
        async function readAnew(): Promise<void> {
          const waiting = await pending(relay);
          if (waiting === null || waiting.some((one) => one.masked === masked && one.expiresAt === code.expiresAt))
            return;
          if (seconds(clock) >= code.expiresAt) return end({ name: 'expired' });
          await identify();
          end({ name: 'lost', why: 'the relay was restarted, which makes the code void' });
        }
        function tick(): void {
          const left = Math.ceil(code.expiresAt - seconds(clock));
          if (left <= 0 && !wasUsed) end({ name: 'expired' });
          else {
            screen.countdown(Math.max(0, left));
            cancelTick = clock.after(SECOND, tick);
          }
        }

        listener = (event, data) => {
          if (event === 'reset') void readAnew();
          if (event === 'pairing' && data.change === 'used' && data.masked === masked) used();
          if (event === 'device' && data.change === 'connected' && wasUsed) void identify(String(data.token_prefix));
        };
        onGone = () => end({ name: 'lost', why: 'the relay does not answer any more' });
        let cancelTick = () => {};
        cancels.push(() => cancelTick());
        cancels.push(onSignals(() => end({ name: 'left' }), context));
        cancels.push(
          readKeys(context, {
            again: () => end({ name: 'again' }),
            leave: () => end({ name: 'left' }),
            link: screen.showLink,
          }),
        );
        if (isOver) for (const cancel of cancels) cancel();
        else tick();
      });
    },
  };
}

/** Reads single keys if stdin is a terminal. Returns a function that stops this. */
function readKeys({ stdin }: CommandContext, keys: { again(): void; leave(): void; link(): void }): () => void {
  if (!stdin.isTTY) return () => {};
  const onData = (data: Buffer | string) => {
    for (const key of String(data)) {
      if (key === 'r') return keys.again();
      if (key === 'l') keys.link();
      // Ctrl-C and Ctrl-D arrive as characters.
      else if (key === 'q' || key === '\u0003' || key === '\u0004') return keys.leave();
    }
  };
  stdin.setRawMode?.(true);
  stdin.on('data', onData);
  stdin.resume();
  return () => {
    stdin.off('data', onData);
    stdin.setRawMode?.(false);
    stdin.pause();
  };
}

const get = (relay: OperatorRelay, path: string): Promise<Record<string, unknown> | null> =>
  relay.call({ method: 'GET', path }).catch(() => null);

const rows = (value: unknown): Record<string, unknown>[] =>
  Array.isArray(value) ? value.map((row) => asObject(row) ?? {}) : [];

/** The paired devices, oldest first, with their name and a description of their kind. */
async function devices(relay: OperatorRelay): Promise<{ prefix: string; text: string }[]> {
  const found = rows((await get(relay, '/relay/devices'))?.devices);
  return found
    .sort((one, other) => Number(one.created_at) - Number(other.created_at))
    .map((row) => ({
      prefix: String(row.token_prefix),
      text: printable(`${row.device_name || 'a device'} (${row.client_surface ?? 'unknown'})`),
    }));
}

/** The pending codes; null if the relay does not report them. */
async function pending(relay: OperatorRelay): Promise<{ masked: unknown; expiresAt: unknown }[] | null> {
  const answer = await get(relay, '/pairing/pending');
  return answer && rows(answer.codes).map(({ masked, expires_at: expiresAt }) => ({ masked, expiresAt }));
}
