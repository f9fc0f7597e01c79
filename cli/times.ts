// Local times; the Swedish form is that of ISO 8601.

/** `2026-11-24` of epoch seconds. */
export const dayOf = (epoch: number): string => minuteOf(epoch).slice(0, 10);

/** `2026-11-24 09:30` of epoch seconds. */
export const minuteOf = (epoch: number): string => new Date(epoch * 1000).toLocaleString('sv').slice(0, 16);

/** `09:30` of epoch seconds. */
export const timeOfDay = (epoch: number): string => minuteOf(epoch).slice(11);

/** `20261124-093015` of now, for the name of a file. */
export const stamp = (): string => new Date().toLocaleString('sv').replaceAll(/[-:]/g, '').replace(' ', '-');
