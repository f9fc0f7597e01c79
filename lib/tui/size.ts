const MOST = 1000;

/** One edge of a window: truncated and clamped to 1..1000 cells. Undefined when it is missing, 0, or no number. */
export const clampEdge = (value: unknown): number | undefined =>
  typeof value === 'number' && value !== 0 ? Math.min(Math.max(Math.trunc(value), 1), MOST) : undefined;
