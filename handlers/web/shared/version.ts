/** Set by the build (`cli/pages.mjs`). */
declare const __VERSION__: string;

/** The version of the relay that this page was built with. */
export const VERSION = __VERSION__;
