import type { GlobalAction, Intent, UiEvent, UiEventType } from '../companion/device.ts';
import { type App, type AppHost, MAIN, type Page } from './app.ts';
import { LAUNCHER } from './apps/system.ts';
import { layOut, type PlacedView, type ViewState, type WindowLayout } from './layout.ts';
import type { System } from './system.ts';
import { keyguard, type Overlay, overlayView, SYSTEM_UI } from './system-ui.ts';
import type { View } from './view.ts';

/** An app that was started. */
interface Instance extends ViewState {
  app: App;
  pages: Page[];
  render(page: Page): View;
}

/** A visible window. */
export interface ShellWindow extends WindowLayout {
  packageName: string;
  state: ViewState;
}

export type Shell = ReturnType<typeof createShell>;

const MAX_PAGES = 50;

/** The page that an intent opens in an app, or null if the app does not accept it. */
const pageOf = (app: App, intent: Intent): Page | null => app.accepts?.(intent) ?? null;

const freshState = (): ViewState => ({ focus: null, scroll: new Map() });

/** Keeps track of the app and the overlay in front, and handles the system keys. */
export function createShell(system: System, apps: readonly App[], listener: (event: UiEvent) => void) {
  const running = new Map<string, Instance>();
  /** Package names, most recent first. */
  let recent: string[] = [];
  let overlay: Overlay | null = null;
  let overlayState = freshState();

  /** Apps of the launcher. */
  const launchable = apps
    .filter((app) => app.launchable !== false)
    .map(({ package: packageName, label }) => ({ package: packageName, label }));
  const front = () => running.get(recent[0] ?? LAUNCHER) ?? bringToFront(LAUNCHER);

  function emit(type: UiEventType, packageName: string, placed?: PlacedView): void {
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

  function hostOf(app: App): AppHost {
    return {
      system,
      apps: launchable,
      launch: (packageName) => void launch(packageName),
      start: (intent) =>
        void start({ action: '', data: '', package: '', component: '', category: '', extras: {}, ...intent }),
      open: (name, argument = '') => openPage(app, { name, argument }),
      back: () => void leavePage(app.package),
      changed: () => emit('window_content_changed', app.package),
    };
  }

  function bringToFront(packageName: string): Instance {
    const app = apps.find((one) => one.package === packageName) as App;
    const known = running.get(packageName);
    const instance = known ?? { app, pages: [MAIN], render: app.run(hostOf(app)), ...freshState() };
    running.set(packageName, instance);
    recent = [packageName, ...recent.filter((name) => name !== packageName)];
    return instance;
  }

  function showPages(instance: Instance, pages: Page[]): void {
    Object.assign(instance, { pages, ...freshState() });
    emit('window_state_changed', instance.app.package);
  }

  function openPage(app: App, page: Page): void {
    const instance = bringToFront(app.package);
    // Bounded, because intents may open any number of pages.
    showPages(instance, [...instance.pages, page].slice(-MAX_PAGES));
  }

  function leavePage(packageName: string): boolean {
    const instance = running.get(packageName);
    if (!instance || instance.pages.length < 2) return false;
    showPages(instance, instance.pages.slice(0, -1));
    return true;
  }

  /** Shows an overlay, or hides the current one. */
  function setOverlay(next: Overlay | null): void {
    if (next === overlay) return;
    overlay = next;
    overlayState = freshState();
    emit('window_state_changed', next === null ? front().app.package : SYSTEM_UI);
  }

  /** False if the app does not exist. */
  function launch(packageName: string): boolean {
    const app = apps.find((one) => one.package === packageName);
    if (!app) return false;
    overlay = null;
    if (app.startsAnew && front().app !== app) running.delete(packageName);
    bringToFront(packageName);
    emit('window_state_changed', packageName);
    return true;
  }

  /** The app that accepts an intent. */
  function resolve(intent: Intent): App | null {
    const wanted = intent.component.split('/')[0] || intent.package;
    const named = wanted === '' ? apps : apps.filter((app) => app.package === wanted);
    const accepts = (app: App) => pageOf(app, intent) !== null || (intent.component !== '' && app.package === wanted);
    const isMain = intent.action === 'android.intent.action.MAIN' && wanted !== '';
    return named.find((app) => isMain || accepts(app)) ?? null;
  }

  function start(intent: Intent): boolean {
    const app = resolve(intent);
    if (!app) return false;
    overlay = null;
    const page = pageOf(app, intent);
    if (!page || page.name === MAIN.name) {
      const instance = bringToFront(app.package);
      showPages(instance, [page ?? MAIN]);
    } else openPage(app, page);
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
    // The keyguard ignores all other keys.
    else if (system.locked) return;
    else if (action === 'back') goBack();
    else if (action === 'notifications') setOverlay('shade');
    else if (action === 'home') {
      launch(LAUNCHER);
      showPages(front(), [MAIN]);
    } else setOverlay(action);
  }

  /** Topmost first. */
  function windows(): ShellWindow[] {
    if (system.locked) {
      const state = freshState();
      return [{ packageName: SYSTEM_UI, state, ...layOut(keyguard(system), SYSTEM_UI, state) }];
    }
    const instance = front();
    const { app, pages, render } = instance;
    const packageName = app.package;
    const layout = layOut(render(pages.at(-1) ?? MAIN), packageName, instance);
    const appWindow = { packageName, state: instance, ...layout };
    if (overlay === null) return [appWindow];
    const view = overlayView(overlay, {
      system,
      changed: () => emit('window_content_changed', SYSTEM_UI),
      close: () => setOverlay(null),
      launch: (packageName) => void launch(packageName),
      lock,
      recent: recent.flatMap((name) => launchable.filter((one) => one.package === name)),
    });
    return [{ packageName: SYSTEM_UI, state: overlayState, ...layOut(view, SYSTEM_UI, overlayState) }, appWindow];
  }

  bringToFront(LAUNCHER);
  return {
    apps: launchable,
    windows,
    foreground: (): string => (system.locked ? SYSTEM_UI : front().app.package),
    launch,
    resolve,
    start,
    press,
    setOverlay,
    unlock(): void {
      Object.assign(system, { screenOn: true, locked: false });
      emit('window_state_changed', front().app.package);
    },
    emit,
  };
}
