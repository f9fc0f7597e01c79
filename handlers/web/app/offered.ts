import { isGranted } from '../../../lib/sessions/grants.ts';
import type { Screen } from '../shared/shell.tsx';
import type { Session } from './session.ts';

/** The screens that this session's grants allow. `now` is epoch milliseconds. */
export const offered = (screens: readonly Screen[], { grants }: Session, now = Date.now()): Screen[] =>
  screens.filter(({ grant }) => grant === undefined || isGranted(grants.value, grant, now / 1000));
