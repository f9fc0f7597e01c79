/** Sample rates in hertz that a client may request (contract 05 §10, §12, 06 §2.1), or send (06 §6.1). */
export const MIN_RATE = 8000;
export const MAX_RATE = 96_000;
/** Characters of the id of a provider, a model or a voice. */
export const MAX_ID = 160;
/** Characters of a language. */
export const MAX_LANGUAGE = 24;
/** Code points of a text to speak (contract 05 §7, §12). */
export const MAX_TEXT = 5000;
