import { defineApp } from '../app.ts';
import { column, item, label, list } from '../view.ts';

export const LAUNCHER = 'com.android.launcher3';

export const launcher = defineApp({
  package: LAUNCHER,
  label: 'Home',
  launchable: false,
  start: () => ({}),
  screen: ({ apps, launch }) =>
    column(
      label('Home'),
      list(
        'apps',
        apps().map((app) => item([app.label], () => launch(app.package))),
      ),
    ),
});
