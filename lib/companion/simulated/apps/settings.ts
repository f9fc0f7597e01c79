import { type Context, defineApp } from '../app.ts';
import { column, field, item, label, list, toggle, type View } from '../view.ts';

interface Memory {
  deviceName: string;
  query: string;
}

const PAGES = ['Network', 'Display', 'Sound', 'Battery', 'Security', 'Accounts', 'About phone'];
const MORE = [
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

function main({ state, set, open }: Context<Memory>): View {
  const names = [...PAGES, ...MORE].filter((name) => name.toLowerCase().includes(state.query.toLowerCase()));
  return column(
    label('Settings'),
    field('search', 'Search settings', state.query, (query) => set({ query })),
    list(
      'pages',
      names.map((name) => item([name, `Settings of ${name.toLowerCase()}`], () => open('page', name))),
    ),
  );
}

function content({ page, system, changed, state, set }: Context<Memory>): View[] {
  const flip = (name: 'wifi' | 'darkTheme') => () => {
    system[name] = !system[name];
    changed();
  };
  switch (page.argument) {
    case 'Network':
      return [toggle('Wi-Fi', system.wifi, flip('wifi'), { id: 'wifi' })];
    case 'Display':
      return [toggle('Dark theme', system.darkTheme, flip('darkTheme'))];
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

export const settings = defineApp<Memory>({
  package: 'com.android.settings',
  label: 'Settings',
  start: () => ({ deviceName: 'Simulated phone', query: '' }),
  screen: (context) =>
    context.page.name === 'main' ? main(context) : column(label(context.page.argument), ...content(context)),
  accepts({ action }) {
    if (action === 'android.settings.SETTINGS') return { name: 'main', argument: '' };
    return action === 'android.settings.WIFI_SETTINGS' ? { name: 'page', argument: 'Network' } : null;
  },
});
