/** True if the device is used by touch, so that its keyboard covers the page, and Enter begins a line. */
export const isTouch = (): boolean => matchMedia('(pointer: coarse)').matches;

/** The code of every key that an input method takes. */
const COMPOSED_KEY = 229;

/** True if a key belongs to an input method. In Safari, the one that confirms a word comes after the composition has ended. */
export const isComposed = ({ isComposing, keyCode }: KeyboardEvent): boolean => isComposing || keyCode === COMPOSED_KEY;

/** True for the key that sends what a field has; Shift+Enter begins a line. */
export const isSendKey = (event: KeyboardEvent): boolean =>
  event.key === 'Enter' && !event.shiftKey && !isComposed(event);
