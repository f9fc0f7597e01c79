/** Characters of a name for a device. */
export const MAX_NAME = 64;
