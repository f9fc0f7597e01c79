/** How long what must come may take on a busy machine, in milliseconds: only a failure takes that long. */
export const PATIENCE = 30_000;
/** How often is looked for what nothing announces, in milliseconds. */
export const POLL = 10;
