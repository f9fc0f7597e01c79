import { systemClock } from '../../../lib/kit/clock.ts';
import { createScreen } from '../../../lib/terminal/screen.ts';

export const SIZE = { cols: 80, rows: 24 };
export const start = (onPressure = (_: boolean) => {}) =>
  createScreen({
    size: SIZE,
    clock: systemClock,
    onPressure,
    onFailure: (error) => {
      throw error;
    },
  });
