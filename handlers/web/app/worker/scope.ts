/** The used parts of `ServiceWorkerGlobalScope`, whose own types would replace those of the page. */
export interface WorkerScope {
  readonly registration: ServiceWorkerRegistration;
  readonly clients: {
    get(id: string): Promise<WindowClient | undefined>;
    matchAll(options?: { type: 'window'; includeUncontrolled: boolean }): Promise<WindowClient[]>;
    openWindow(url: string): Promise<WindowClient | null>;
    claim(): Promise<void>;
  };
  skipWaiting(): Promise<void>;
  addEventListener(type: 'install' | 'activate', listener: (event: Extendable) => void): void;
  addEventListener(type: 'fetch', listener: (event: FetchEvent) => void): void;
  addEventListener(type: 'message', listener: (event: PageMessage) => void): void;
  addEventListener(type: 'push', listener: (event: PushEvent) => void): void;
  addEventListener(type: 'notificationclick', listener: (event: NotificationEvent) => void): void;
  addEventListener(type: 'sync', listener: (event: Extendable & { readonly tag: string }) => void): void;
  addEventListener(type: 'pushsubscriptionchange', listener: (event: ChangeEvent) => void): void;
}

export interface Extendable {
  waitUntil(work: Promise<unknown>): void;
}

export interface FetchEvent extends Extendable {
  readonly request: Request;
  /** The requesting page; empty for a navigation. */
  readonly clientId: string;
  respondWith(response: Promise<Response>): void;
}

/** A message of a page. */
export interface PageMessage extends Extendable {
  readonly data: { readonly name?: unknown } | null;
  readonly source: WindowClient;
  readonly ports: readonly MessagePort[];
}

export interface PushEvent extends Extendable {
  readonly data: { json(): unknown } | null;
}

export interface NotificationEvent extends Extendable {
  readonly action: string;
  readonly notification: Notification;
}

export interface ChangeEvent extends Extendable {
  readonly oldSubscription?: PushSubscription | null;
}

export interface WindowClient {
  readonly url: string;
  focus(): Promise<WindowClient>;
  navigate(url: string): Promise<unknown>;
  postMessage(message: unknown, ports?: MessagePort[]): void;
}

/** Options of a notification that not every browser supports. */
export interface FullNotificationOptions extends NotificationOptions {
  actions?: { action: string; title: string }[];
  renotify?: boolean;
  timestamp?: number;
}
