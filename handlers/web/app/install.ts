import type { RenewBearer } from './worker/media.ts';

interface TrustedTypes {
  createPolicy(name: string, rules: { createScriptURL(url: string): string }): { createScriptURL(url: string): string };
}

const WORKER = 'sw.js';

/**
 * Registers the service worker, if the page is secure. The browser requests its script at each start of the app, so that a
 * bad one is replaced. Each mailbox has a different worker, since its own policy, and that of the document that it stores,
 * name the mailbox.
 */
export async function registerWorker(mailbox: string | undefined): Promise<ServiceWorkerRegistration | undefined> {
  if (!isSecureContext || !('serviceWorker' in navigator)) return undefined;
  const script = mailbox === undefined ? WORKER : `${WORKER}?mailbox=${encodeURIComponent(new URL(mailbox).host)}`;
  const { trustedTypes } = globalThis as { trustedTypes?: TrustedTypes };
  const policy = trustedTypes?.createPolicy('svc', {
    createScriptURL(url) {
      if (url !== script) throw new TypeError('only the service worker is a script that this page names');
      return url;
    },
  });
  const url = policy ? policy.createScriptURL(script) : script;
  // A browser may refuse, as in a private window; the app then needs a network to start.
  try {
    return await navigator.serviceWorker.register(url, { updateViaCache: 'none' });
  } catch {
    // While home is off, the present one continues.
    return navigator.serviceWorker.getRegistration().catch(() => undefined);
  }
}

/** Gets a new bearer for the service worker when the relay does not accept the stored one. */
export function renewForWorker(renew: (used: string) => Promise<boolean>): void {
  if (!('serviceWorker' in navigator)) return;
  navigator.serviceWorker.addEventListener('message', ({ data, ports }: MessageEvent<RenewBearer | undefined>) => {
    if (data?.name !== 'renew-bearer') return;
    void renew(data.used).then((isRenewed) => ports[0]?.postMessage(isRenewed));
  });
}
