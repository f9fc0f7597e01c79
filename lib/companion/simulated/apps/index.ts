import type { App } from '../app.ts';
import { bank } from './bank.ts';
import { browser } from './browser.ts';
import { companion } from './companion.ts';
import { contacts } from './contacts.ts';
import { dialer } from './dialer.ts';
import { launcher } from './launcher.ts';
import { messages } from './messages.ts';
import { notes } from './notes.ts';
import { settings } from './settings.ts';
import { shop } from './shop.ts';

/** What is installed, in the order of the launcher. A new app is a file and a name here. */
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
