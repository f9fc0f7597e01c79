import { type FreezeState, readFreeze } from '../lib/operations/freeze-state.ts';
import { duration } from './devices/rows.ts';
import type { OperatorRelay } from './operator-relay.ts';
import { type CommandContext, createStyle, printable, sentence } from './output.ts';

/** `Frozen by Pixel 9 for 12 min: lost my phone`, safe for a terminal. `now` is epoch seconds. */
export function freezeText({ since, by, reason }: FreezeState, now: number): string {
  const why = reason === null ? '' : `: ${printable(reason)}`;
  return `Frozen by ${printable(by)} for ${duration(now - since)}${why}`;
}

/** The first line of a command while the relay is frozen. */
export function printFreeze(freeze: FreezeState | null, { stdout, env }: CommandContext): void {
  if (!freeze) return;
  const text = freezeText(freeze, Date.now() / 1000);
  sentence(stdout, createStyle(stdout, env).red(`${text}. End it with: svc unfreeze`));
}

/** The freeze in effect, by the `/relay/info` of a relay; null for one of a version that knows none. */
export const freezeOf = async (relay: OperatorRelay, signal?: AbortSignal): Promise<FreezeState | null> =>
  readFreeze((await relay.call({ method: 'GET', path: '/relay/info', signal })).freeze);
