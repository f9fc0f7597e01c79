import { defineApp, type ScreenContext } from '../app.ts';
import { flip } from '../system.ts';
import { column, field, item, label, list, toggle, type View } from '../view.ts';

export const LAUNCHER = 'com.android.launcher3';

export const launcher = defineApp({
  package: LAUNCHER,
  label: 'Home',
  launchable: false,
  initialState: () => ({}),
  screen: ({ apps, launch }) =>
    column(
      label('Home'),
      list(
        'apps',
        apps.map((app) => item([app.label], () => launch(app.package))),
      ),
    ),
});

export const COMPANION = 'com.svc.companion';

/** The companion's own screen, the target of `/return_to_hermes`. */
export const companion = defineApp({
  package: COMPANION,
  label: 'Svc companion',
  initialState: () => ({}),
  screen: () => column(label('Svc companion'), label('Device control is running. You decide what is allowed.')),
});

interface SettingsState {
  deviceName: string;
  query: string;
}

const TOP_PAGES = ['Network', 'Display', 'Sound', 'Battery', 'Security', 'Accounts', 'About phone'];
const OTHER_PAGES = [
  'Apps',
  'Notifications',
  'Storage',
  'Location',
  'Privacy',
  'Accessibility',
  'Languages',
  'Date',
  'System',
];

function settingsList({ state, set, open }: ScreenContext<SettingsState>): View {
  const names = [...TOP_PAGES, ...OTHER_PAGES].filter((name) => name.toLowerCase().includes(state.query.toLowerCase()));
  return column(
    label('Settings'),
    field('search', 'Search settings', state.query, (query) => set({ query })),
    list(
      'pages',
      names.map((name) => item([name, `Settings of ${name.toLowerCase()}`], () => open('page', name))),
    ),
  );
}

function settingsPage({ page, system, changed, state, set }: ScreenContext<SettingsState>): View[] {
  switch (page.argument) {
    case 'Network':
      return [toggle('Wi-Fi', system.wifi, flip(system, 'wifi', changed), { id: 'wifi' })];
    case 'Display':
      return [toggle('Dark theme', system.darkTheme, flip(system, 'darkTheme', changed))];
    case 'Sound':
      return [label(`Media volume ${system.media.volume}%`)];
    case 'Battery':
      return [label(`${system.batteryPercent}%`)];
    case 'About phone':
      return [label('Device name'), field('name', 'Name', state.deviceName, (deviceName) => set({ deviceName }))];
    default:
      return [label('Nothing to set here')];
  }
}

export const settings = defineApp<SettingsState>({
  package: 'com.android.settings',
  label: 'Settings',
  initialState: () => ({ deviceName: 'Simulated phone', query: '' }),
  screen: (context) =>
    context.page.name === 'main'
      ? settingsList(context)
      : column(label(context.page.argument), ...settingsPage(context)),
  accepts({ action }) {
    if (action === 'android.settings.SETTINGS') return { name: 'main', argument: '' };
    return action === 'android.settings.WIFI_SETTINGS' ? { name: 'page', argument: 'Network' } : null;
  },
});
