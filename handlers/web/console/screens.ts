import type { Screen } from '../shared/shell.tsx';
import Overview from './screens/overview.tsx';

/** THE screen table of the console: a screen is one file and one row. The first one is part of the shell. */
export const screens: readonly Screen[] = [
  { path: 'overview', title: 'Overview', icon: 'home', place: 'bar', load: async () => ({ default: Overview }) },
  { path: 'pair', title: 'Pair', icon: 'plus', place: 'bar', load: () => import('./screens/pair.tsx') },
  { path: 'devices', title: 'Devices', icon: 'devices', place: 'bar', load: () => import('./screens/devices.tsx') },
  { path: 'logs', title: 'Log', icon: 'log', place: 'bar', load: () => import('./screens/logs.tsx') },
  { path: 'more', title: 'More', icon: 'more', place: 'bar', load: () => import('./screens/more.tsx') },
  { path: 'commands', title: 'Commands', icon: 'phone', place: 'rail', load: () => import('./screens/commands.tsx') },
  { path: 'messages', title: 'Messages', icon: 'queue', place: 'rail', load: () => import('./screens/messages.tsx') },
  { path: 'media', title: 'Media', icon: 'files', place: 'rail', load: () => import('./screens/media.tsx') },
  { path: 'security', title: 'Security', icon: 'shield', place: 'rail', load: () => import('./screens/security.tsx') },
];
