import type { Effective } from '../config.ts';
import type { OutputSettings } from '../settings.ts';

/** The settings of voice output for one session, and where they are from. */
export type OutputScope = Effective<OutputSettings>;
