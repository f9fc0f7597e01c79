import type { Intent } from '../companion/device.ts';
import type { System } from './system.ts';
import type { View } from './view.ts';

/** A page of an app; `argument` identifies its content, such as a thread. */
export interface Page {
  name: string;
  argument: string;
}

/** Services that an app can use besides its own state. */
export interface AppHost {
  system: System;
  /** Launchable apps, for the launcher. */
  apps: readonly { package: string; label: string }[];
  launch(packageName: string): void;
  /** Starts the app that accepts the intent. */
  start(intent: Partial<Intent>): void;
  open(name: string, argument?: string): void;
  back(): void;
  /** Reports that the visible content has changed. */
  changed(): void;
}

export interface ScreenContext<S> extends AppHost {
  state: S;
  set(change: Partial<S>): void;
  page: Page;
}

/** An app: its state, and its screen as a function of that state. */
export interface AppDefinition<S extends object> {
  package: string;
  label: string;
  /** False hides it from the launcher. */
  launchable?: boolean;
  /** Opening it from elsewhere restarts it, as if it had been closed. */
  startsAnew?: boolean;
  initialState(): S;
  screen(context: ScreenContext<S>): View;
  /** The page that an intent opens, or null if this app does not accept it. */
  accepts?(intent: Intent): Page | null;
}

export interface App extends Omit<AppDefinition<never>, 'initialState' | 'screen'> {
  /** Starts an instance with its own state. Returns its renderer. */
  run(host: AppHost): (page: Page) => View;
}

export const MAIN: Page = { name: 'main', argument: '' };

/** Defines an app with private state. */
export const defineApp = <S extends object>({ initialState, screen, ...facts }: AppDefinition<S>): App => ({
  ...facts,
  run(host) {
    let state = initialState();
    const set = (change: Partial<S>) => {
      state = { ...state, ...change };
      host.changed();
    };
    return (page) => screen({ ...host, state, set, page });
  },
});
