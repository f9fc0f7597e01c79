import type { Intent } from '../device.ts';
import type { System } from './system.ts';
import type { View } from './view.ts';

/** A place inside an app; `argument` says which one of its kind. */
export interface Page {
  name: string;
  argument: string;
}

/** What an app can do besides drawing itself. */
export interface Host {
  system: System;
  /** Launchable apps, for the launcher. */
  apps(): { package: string; label: string }[];
  launch(packageName: string): void;
  /** Starts whichever app takes the intent. */
  start(intent: Partial<Intent>): void;
  open(name: string, argument?: string): void;
  back(): void;
  /** Something in sight is different now. */
  changed(): void;
}

export interface Context<S> extends Host {
  state: S;
  set(change: Partial<S>): void;
  page: Page;
}

/** An app: what it remembers, and its screen as a function of that. */
export interface AppDefinition<S extends object> {
  package: string;
  label: string;
  /** Not in the launcher when false. */
  launchable?: boolean;
  start(): S;
  screen(context: Context<S>): View;
  /** The page that an intent opens, null when it is not for this app. */
  accepts?(intent: Intent): Page | null;
}

export interface App {
  package: string;
  label: string;
  launchable: boolean;
  accepts(intent: Intent): Page | null;
  /** Starts it with a memory of its own. */
  run(host: Host): (page: Page) => View;
}

export const MAIN: Page = { name: 'main', argument: '' };

/** Hides what an app remembers from everybody else. */
export const defineApp = <S extends object>(definition: AppDefinition<S>): App => ({
  package: definition.package,
  label: definition.label,
  launchable: definition.launchable ?? true,
  accepts: (intent) => definition.accepts?.(intent) ?? null,
  run(host) {
    let state = definition.start();
    const set = (change: Partial<S>) => {
      state = { ...state, ...change };
      host.changed();
    };
    return (page) => definition.screen({ ...host, state, set, page });
  },
});
