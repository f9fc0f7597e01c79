import { defineApp } from '../app.ts';
import { column, label } from '../view.ts';

export const COMPANION = 'com.svc.companion';

/** The companion's own screen: where `/return_to_hermes` ends. */
export const companion = defineApp({
  package: COMPANION,
  label: 'Svc companion',
  start: () => ({}),
  screen: () => column(label('Svc companion'), label('Device control is running. You decide what may be done.')),
});
