import type { Sessions } from './sessions.ts';

/** Calls back when a device has no session any more. A refresh also ends a session, but replaces it in the same turn. */
export function onFamilyEnd(sessions: Pick<Sessions, 'byFamily' | 'onEnd'>, listener: (family: string) => void): void {
  sessions.onEnd(({ family }) => {
    queueMicrotask(() => {
      if (!sessions.byFamily(family)) listener(family);
    });
  });
}
