import type { GlobalAction, Intent, UiEvent, UiEventType } from '../device.ts';
import { type App, type Host, MAIN, type Page } from './app.ts';
import { LAUNCHER } from './apps/launcher.ts';
import { type Drawn, draw, type Placed, type ViewState } from './layout.ts';
import { keyguard, type Overlay, overlayView, SYSTEM_UI } from './surfaces.ts';
import type { System } from './system.ts';
import type { View } from './view.ts';

interface Running extends ViewState {
  app: App;
  pages: Page[];
  render(page: Page): View;
}

/** A window as it is drawn at this moment. */
export interface Shown extends Drawn {
  packageName: string;
  state: ViewState;
}

/** Which app and which overlay is in front, and what the keys do with them. */
export interface Shell {
  /** The top one first. */
  windows(): Shown[];
  foreground(): string;
  /** False when there is no such app to launch. */
  launch(packageName: string): boolean;
  /** The app that takes an intent. */
  resolve(intent: Intent): App | null;
  start(intent: Intent): boolean;
  press(action: GlobalAction): void;
  /** Pulls the shade down. */
  overlay(overlay: Overlay | null): void;
  unlock(): void;
  emit(type: UiEventType, packageName: string, placed?: Placed): void;
}

const MOST_PAGES = 50;

const freshState = (): ViewState => ({ focus: null, scroll: new Map() });

export function createShell(system: System, apps: readonly App[], listener: (event: UiEvent) => void): Shell {
  const running = new Map<string, Running>();
  let order: string[] = [];
  let overlay: Overlay | null = null;
  let overlayState = freshState();

  const launchable = apps.filter((app) => app.launchable);
  const front = () => running.get(order[0] ?? LAUNCHER) ?? bring(LAUNCHER);

  function emit(type: UiEventType, packageName: string, placed?: Placed): void {
    const node = placed?.node;
    listener({
      type,
      packageName,
      className: node?.className ?? null,
      text: node?.text ? [node.text] : (node?.children ?? []).flatMap(({ text }) => (text ? [text] : [])),
      contentDescription: node?.contentDescription ?? null,
      password: node?.password ?? false,
    });
  }

  function hostOf(app: App): Host {
    return {
      system,
      apps: () => launchable.map(({ package: name, label }) => ({ package: name, label })),
      launch: (packageName) => void launch(packageName),
      start: (intent) =>
        void start({ action: '', data: '', package: '', component: '', category: '', extras: {}, ...intent }),
      open: (name, argument = '') => go(app, { name, argument }),
      back: () => void leavePage(app.package),
      changed: () => emit('window_content_changed', app.package),
    };
  }

  function bring(packageName: string): Running {
    const app = apps.find((one) => one.package === packageName) as App;
    const known = running.get(packageName);
    const instance = known ?? { app, pages: [MAIN], render: app.run(hostOf(app)), ...freshState() };
    running.set(packageName, instance);
    order = [packageName, ...order.filter((name) => name !== packageName)];
    return instance;
  }

  function show(instance: Running, pages: Page[]): void {
    Object.assign(instance, { pages, ...freshState() });
    emit('window_state_changed', instance.app.package);
  }

  function go(app: App, page: Page): void {
    const instance = bring(app.package);
    // Back leads this far; each page is small, but intents may open any number.
    show(instance, [...instance.pages, page].slice(-MOST_PAGES));
  }

  function leavePage(packageName: string): boolean {
    const instance = running.get(packageName);
    if (!instance || instance.pages.length < 2) return false;
    show(instance, instance.pages.slice(0, -1));
    return true;
  }

  function setOverlay(next: Overlay | null): void {
    if (next === overlay) return;
    overlay = next;
    overlayState = freshState();
    emit('window_state_changed', next === null ? front().app.package : SYSTEM_UI);
  }

  function launch(packageName: string): boolean {
    if (!apps.some((app) => app.package === packageName)) return false;
    overlay = null;
    bring(packageName);
    emit('window_state_changed', packageName);
    return true;
  }

  function resolve(intent: Intent): App | null {
    const wanted = intent.component.split('/')[0] || intent.package;
    const named = wanted === '' ? apps : apps.filter((app) => app.package === wanted);
    const takes = (app: App) => app.accepts(intent) !== null || (intent.component !== '' && app.package === wanted);
    const main = intent.action === 'android.intent.action.MAIN' && wanted !== '';
    return named.find((app) => main || takes(app)) ?? null;
  }

  function start(intent: Intent): boolean {
    const app = resolve(intent);
    if (!app) return false;
    overlay = null;
    const page = app.accepts(intent);
    if (!page || page.name === MAIN.name) {
      const instance = bring(app.package);
      show(instance, [page ?? MAIN]);
    } else go(app, page);
    return true;
  }

  function lock(): void {
    overlay = null;
    Object.assign(system, { screenOn: false, locked: true });
    emit('window_state_changed', SYSTEM_UI);
  }

  function goBack(): void {
    const { app } = front();
    if (overlay !== null) setOverlay(null);
    else if (!leavePage(app.package) && app.package !== LAUNCHER) launch(LAUNCHER);
  }

  function press(action: GlobalAction): void {
    if (action === 'lock_screen') lock();
    // The keyguard takes no other key.
    else if (system.locked) return;
    else if (action === 'back') goBack();
    else if (action === 'notifications') setOverlay('shade');
    else if (action === 'home') {
      launch(LAUNCHER);
      show(front(), [MAIN]);
    } else setOverlay(action);
  }

  function windows(): Shown[] {
    if (system.locked) {
      const state = freshState();
      return [{ packageName: SYSTEM_UI, state, ...draw(keyguard(system), SYSTEM_UI, state) }];
    }
    const instance = front();
    const { app, pages, render } = instance;
    const owner = app.package;
    const below = { packageName: app.package, state: instance, ...draw(render(pages.at(-1) ?? MAIN), owner, instance) };
    if (overlay === null) return [below];
    const view = overlayView(overlay, {
      system,
      changed: () => emit('window_content_changed', SYSTEM_UI),
      close: () => setOverlay(null),
      launch: (packageName) => void launch(packageName),
      lock,
      recent: order.flatMap((name) => launchable.filter((one) => one.package === name)),
    });
    return [{ packageName: SYSTEM_UI, state: overlayState, ...draw(view, SYSTEM_UI, overlayState) }, below];
  }

  bring(LAUNCHER);
  return {
    windows,
    foreground: () => (system.locked ? SYSTEM_UI : front().app.package),
    launch,
    resolve,
    start,
    press,
    overlay: setOverlay,
    unlock() {
      Object.assign(system, { screenOn: true, locked: false });
      emit('window_state_changed', front().app.package);
    },
    emit,
  };
}
