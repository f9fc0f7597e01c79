import { authority, routeName } from '../lib/companion/link/endpoints.ts';
import { createLink, type LinkDeps } from '../lib/companion/link/link.ts';
import type { LinkState } from '../lib/companion/link/state.ts';
import { keepAlive } from './keep-alive.ts';
import { CommandError, printable } from './output.ts';

const NEW_CODE = "Create a new code with 'svc pair' on the relay's machine. Each works once, for ten minutes.";
const WHOLE_LINK = "Others have tried many wrong codes. A new link of 'svc pair' pairs at once.";

/**
 * Connects once over the first route that works and disconnects. The credentials that the relay issued are then in the
 * store.
 * @throws CommandError when no route works, or the relay refuses.
 */
export function connectOnce(deps: Omit<LinkDeps, 'onState' | 'bridge'>): Promise<void> {
  return keepAlive(
    new Promise((resolve, reject) => {
      const tried: string[] = [];
      const settle = (act: () => void) => void link.stop().then(act, act);
      let last: LinkState | undefined;
      const link = createLink({
        ...deps,
        onState(state) {
          const endpoint = last && 'endpoint' in last ? last.endpoint : undefined;
          const why = 'after' in state ? state.after : 'reason' in state ? state.reason : undefined;
          if (endpoint && why) tried.push(`${authority(endpoint.url)} (${routeName(endpoint)}): ${why}`);
          last = state;
          if (state.name === 'online') settle(resolve);
          if (state.name === 'unpaired') {
            const reason = state.reason ?? 'no reason given';
            const next = reason.startsWith('pairing is restricted') ? WHOLE_LINK : NEW_CODE;
            settle(() => reject(new CommandError(`the relay refused: ${printable(reason)}`, next)));
          }
          if (state.name === 'waiting') settle(() => reject(failure(tried, state.rateLimited)));
        },
      });
      link.start();
    }),
  );
}

function failure(tried: string[], rateLimited: boolean): CommandError {
  if (rateLimited) {
    return new CommandError(
      'the relay blocks this machine after too many failed attempts',
      "Wait five minutes, or run 'svc pair' on the relay's machine, which lifts all blocks.",
    );
  }
  return new CommandError(
    `no route to the relay works: ${printable(tried.join('; '))}`,
    "Is the relay running ('svc relay start'), and can this machine reach it? The code is still valid.",
  );
}
