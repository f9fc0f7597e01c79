import type { System } from './system.ts';
import { button, column, item, label, list, toggle, type View } from './view.ts';

export const SYSTEM_UI = 'com.android.systemui';

/** A window of the system over the app. */
export type Overlay = 'shade' | 'quick_settings' | 'recents' | 'power_dialog';

export interface Surroundings {
  system: System;
  changed(): void;
  close(): void;
  launch(packageName: string): void;
  lock(): void;
  /** Apps that run, the one used last first. */
  recent: { package: string; label: string }[];
}

export const keyguard = (system: System): View =>
  column(label('Locked'), label(system.credential ? 'Enter the PIN on the phone' : 'Swipe up to unlock'));

const shade = ({ system, changed, close, launch }: Surroundings): View => {
  const clear = () => {
    system.notifications = [];
    changed();
  };
  return column(
    label('Notifications'),
    list(
      'notifications',
      system.notifications.map((note) =>
        item([note.title, note.text], () => {
          system.notifications = system.notifications.filter((one) => one !== note);
          close();
          launch(note.package);
        }),
      ),
    ),
    button('Clear all', clear, { enabled: system.notifications.length > 0 }),
  );
};

function quickSettings({ system, changed }: Surroundings): View {
  const flip = (name: 'wifi' | 'darkTheme') => () => {
    system[name] = !system[name];
    changed();
  };
  return column(
    label('Quick settings'),
    toggle('Wi-Fi', system.wifi, flip('wifi')),
    toggle('Dark theme', system.darkTheme, flip('darkTheme')),
  );
}

/** The window of an overlay. */
export function overlayView(overlay: Overlay, around: Surroundings): View {
  switch (overlay) {
    case 'shade':
      return shade(around);
    case 'quick_settings':
      return quickSettings(around);
    case 'recents':
      return column(
        label('Recent apps'),
        ...around.recent.map((app) => button(app.label, () => around.launch(app.package))),
      );
    case 'power_dialog':
      return column(label('Power'), button('Lock', around.lock), button('Cancel', around.close));
  }
}
