interface TrustedTypes {
  createPolicy(name: string, rules: { createScriptURL(url: string): string }): { createScriptURL(url: string): string };
}

const WORKER = 'sw.js';

/**
 * Registers the service worker, where the page is secure. The browser asks for its script again with each start of the
 * app, which is how a bad one is replaced. With another mailbox it is another one: its own policy, and that of the document
 * that it stores, name the mailbox.
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
  // A browser may refuse, as in a private window; the app then starts with a network only.
  try {
    return await navigator.serviceWorker.register(url, { updateViaCache: 'none' });
  } catch {
    // While home is off, the one that there is goes on.
    return navigator.serviceWorker.getRegistration().catch(() => undefined);
  }
}
