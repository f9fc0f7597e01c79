import type { App } from '../app.ts';
import { contacts, dialer, messages } from './people.ts';
import { companion, launcher, settings } from './system.ts';
import { bank, browser, notes, shop } from './third-party.ts';

/** Installed apps, in the order of the launcher. */
export const APPS: readonly App[] = [
  launcher,
  companion,
  settings,
  messages,
  contacts,
  dialer,
  browser,
  notes,
  shop,
  bank,
];
