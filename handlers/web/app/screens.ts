import type { Screen } from '../shared/shell.tsx';
import Home from './screens/home.tsx';
import type { Session } from './session.ts';

/** THE screen table of the app: a screen is one file and one row. The first one is part of the shell. */
export const screens: readonly Screen[] = [
  { path: 'home', title: 'Home', icon: 'home', place: 'bar', load: async () => ({ default: Home }) },
  {
    path: 'chat',
    title: 'Chat',
    icon: 'chat',
    place: 'bar',
    grant: 'chat',
    load: () => import('./screens/chat.tsx'),
  },
  {
    path: 'inbox',
    title: 'Inbox',
    icon: 'inbox',
    place: 'bar',
    grant: 'phone',
    load: () => import('./screens/inbox.tsx'),
  },
  {
    path: 'terminal',
    title: 'Terminal',
    icon: 'terminal',
    place: 'bar',
    grant: 'terminal',
    load: () => import('./screens/terminal.tsx'),
  },
  { path: 'more', title: 'More', icon: 'more', place: 'bar', load: () => import('./screens/more.tsx') },
  {
    path: 'tui',
    title: 'Agent TUI',
    icon: 'agent',
    place: 'rail',
    grant: 'tui',
    load: () => import('./screens/tui.tsx'),
  },
  {
    path: 'voice',
    title: 'Voice',
    icon: 'voice',
    place: 'rail',
    grant: 'voice:stt',
    load: () => import('./screens/voice.tsx'),
  },
  {
    path: 'profiles',
    title: 'Profiles',
    icon: 'profile',
    place: 'rail',
    grant: 'profiles',
    load: () => import('./screens/profiles.tsx'),
  },
  {
    path: 'devices',
    title: 'Devices',
    icon: 'devices',
    place: 'rail',
    load: () => import('./screens/devices.tsx'),
  },
  {
    path: 'notifications',
    title: 'Notifications',
    icon: 'bell',
    place: 'rail',
    grant: 'phone',
    load: () => import('./screens/notifications.tsx'),
  },
  {
    path: 'usage',
    title: 'Usage',
    icon: 'usage',
    place: 'rail',
    load: () => import('./screens/usage.tsx'),
  },
  {
    path: 'files',
    title: 'Files',
    icon: 'files',
    place: 'rail',
    grant: 'files',
    load: () => import('./screens/files.tsx'),
  },
  {
    path: 'shared',
    title: 'Shared with this app',
    icon: 'upload',
    place: 'hidden',
    load: () => import('./screens/shared.tsx'),
  },
  {
    path: 'settings',
    title: 'Settings',
    icon: 'settings',
    place: 'rail',
    load: () => import('./screens/settings.tsx'),
  },
];

/** The screens that this session's grants allow at `now`, epoch ms. */
export const offered = ({ may }: Session, now?: number): Screen[] =>
  screens.filter(({ grant }) => grant === undefined || may(grant, now));
