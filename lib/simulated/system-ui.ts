import { flip, type System } from './system.ts';
import { button, column, item, label, list, toggle, type View } from './view.ts';

export const SYSTEM_UI = 'com.android.systemui';

/** A system window on top of the app. */
export type Overlay = 'shade' | 'quick_settings' | 'recents' | 'power_dialog';

export interface OverlayHost {
  system: System;
  changed(): void;
  close(): void;
  launch(packageName: string): void;
  lock(): void;
  /** Running apps, most recent first. */
  recent: { package: string; label: string }[];
}

export const keyguard = (system: System): View =>
  column(label('Locked'), label(system.credential ? 'Enter the PIN on the phone' : 'Swipe up to unlock'));

const shade = ({ system, changed, close, launch }: OverlayHost): View => {
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

const quickSettings = ({ system, changed }: OverlayHost): View =>
  column(
    label('Quick settings'),
    toggle('Wi-Fi', system.wifi, flip(system, 'wifi', changed)),
    toggle('Dark theme', system.darkTheme, flip(system, 'darkTheme', changed)),
  );

/** The content of an overlay. */
export function overlayView(overlay: Overlay, host: OverlayHost): View {
  switch (overlay) {
    case 'shade':
      return shade(host);
    case 'quick_settings':
      return quickSettings(host);
    case 'recents':
      return column(
        label('Recent apps'),
        ...host.recent.map((app) => button(app.label, () => host.launch(app.package))),
      );
    case 'power_dialog':
      return column(label('Power'), button('Lock', host.lock), button('Cancel', host.close));
  }
}
