import { signal } from '@preact/signals';
import type { Api } from '../../shared/api.ts';
import type { I18n } from '../../shared/i18n.ts';
import type { PageStore } from '../page-store.ts';
import type { NoticeData, OpenPlace, Place } from '../worker/notices.ts';
import { NOTICE_WORDS, noticeWords } from '../worker/words.ts';

/** State of notifications in this browser, or the missing requirement. */
export type NoticeState =
  /** The page was loaded over plain http. */
  | 'insecure'
  /** On an iPhone or iPad, only an app on the home screen gets notifications. */
  | 'not-installed'
  | 'unsupported'
  /** The person has denied them. */
  | 'blocked'
  | 'off'
  | 'on';

export interface NoticesDeps {
  api: Api;
  pageStore: PageStore;
  /** The service worker of the app, if the browser has one. */
  worker: Promise<ServiceWorkerRegistration | undefined>;
  /** Shows the screen of a tapped notification. */
  open(place: Place): void;
}

export type Notices = ReturnType<typeof createNotices>;

/** Web push in this browser: its service worker, and the subscription at the relay (contract 09 §6). */
export function createNotices({ api, pageStore, worker, open }: NoticesDeps) {
  const state = signal<NoticeState>(found());
  const hasContent = signal(false);
  const container = 'serviceWorker' in navigator ? navigator.serviceWorker : undefined;
  container?.addEventListener('message', ({ data }: MessageEvent<OpenPlace | undefined>) => {
    if (data?.name === 'open') open(data.place);
  });

  function found(): NoticeState {
    if (!isSecureContext) return 'insecure';
    if (!('serviceWorker' in navigator) || !('PushManager' in window) || !('Notification' in window)) {
      return isApple() && !isInstalled() ? 'not-installed' : 'unsupported';
    }
    return Notification.permission === 'denied' ? 'blocked' : 'off';
  }

  /** True if the person has switched notifications on. */
  async function isWanted(): Promise<boolean> {
    hasContent.value = (await pageStore.read<boolean>('knock-content')) === true;
    return (await pageStore.read<boolean>('knock')) === true && Notification.permission === 'granted';
  }

  /** Shows what this browser has, before the relay answers. If its storage fails, the state stays: off, or as it was. */
  const restore = (): Promise<void> => readState().catch(() => {});

  async function readState(): Promise<void> {
    if ((state.value !== 'off' && state.value !== 'on') || !(await isWanted())) return;
    // The worker of the last visit: this one's is registered late.
    const registration = await container?.getRegistration();
    state.value = (await registration?.pushManager.getSubscription()) ? 'on' : 'off';
  }

  void restore();

  async function closeWhere(isOver: (notification: Notification) => boolean): Promise<void> {
    const notifications = (await (await worker)?.getNotifications()) ?? [];
    for (const notification of notifications.filter(isOver)) notification.close();
  }

  const ready = async (): Promise<ServiceWorkerRegistration> => {
    if (!(await worker)) throw new Error('The service worker could not be started. Reload the page.');
    return (container as ServiceWorkerContainer).ready;
  };

  async function subscribe(): Promise<void> {
    const { pushManager } = await ready();
    // Loaded late: the start of the app is limited.
    await (await import('./subscribe.ts')).subscribe({ api, pushManager, content: hasContent.value });
    state.value = 'on';
  }

  return {
    state,
    /** True if notifications contain title and text. */
    hasContent,

    /** Runs after every connection, so that a relay that has lost this subscription gets it again. */
    async renew(): Promise<void> {
      if (state.value === 'insecure' || state.value === 'unsupported' || state.value === 'not-installed') return;
      // Without the relay, the subscription stays; one that was given up for another relay's key is gone.
      if (await isWanted()) await subscribe().catch(restore);
    },

    /** Must be called from a tap. @throws Error or ApiError worded for people. */
    async turnOn(): Promise<void> {
      const permission = await Notification.requestPermission();
      state.value = permission === 'denied' ? 'blocked' : state.value;
      if (permission !== 'granted') throw new Error('This browser was not allowed to show notifications.');
      await subscribe();
      await pageStore.change('knock', () => true);
    },

    /** @throws ApiError */
    async turnOff(): Promise<void> {
      await pageStore.change('knock', () => false);
      const subscription = await (await ready()).pushManager.getSubscription();
      state.value = 'off';
      if (!subscription) return;
      const { endpoint } = subscription;
      await subscription.unsubscribe();
      await api.call('push/subscribe', { method: 'DELETE', body: { endpoint } });
    },

    async setContent(wanted: boolean): Promise<void> {
      hasContent.value = await pageStore.change('knock-content', () => wanted);
      if (state.value === 'on') await subscribe();
    },

    /** Stores the texts of notifications in the language of the page. */
    speak: (t: I18n['t']): Promise<unknown> => pageStore.change(NOTICE_WORDS, () => noticeWords(t)),

    /** Removes the notifications of messages that were seen. */
    close: (messageIds: readonly string[]): Promise<void> =>
      closeWhere((notification) => messageIds.includes((notification.data as NoticeData | null)?.messageId ?? '')),

    /** The pairing has ended: removes every notification and the subscription, which the relay has already forgotten. */
    async clear(): Promise<void> {
      state.value = found();
      hasContent.value = false;
      await closeWhere(() => true);
      const subscription = await (await worker)?.pushManager?.getSubscription();
      await subscription?.unsubscribe();
    },
  };
}

const isApple = (): boolean =>
  /iphone|ipad|ipod/i.test(navigator.userAgent) || (/mac/i.test(navigator.userAgent) && navigator.maxTouchPoints > 1);

const isInstalled = (): boolean => matchMedia('(display-mode: standalone)').matches;
