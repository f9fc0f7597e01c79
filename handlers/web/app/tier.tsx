import { useSignal } from '@preact/signals';
import type { Pairing } from '../../../lib/companion/link/settings.ts';
import { Button, inPage, Notice } from '../shared/components.tsx';
import { useT } from '../shared/i18n.ts';
import { useApp } from './context.ts';

const REASONS = [
  ['lan_only', 'I am at home, in my own network'],
  ['tailscale_vpn', 'I am connected through a VPN'],
  ['local_dev', 'I am testing on this machine'],
] as const;

/** Asked once before a page over plain http pairs: the risk, and why it is acceptable here. */
export function PlainHttp() {
  const t = useT();
  const { settings } = useApp();
  const reason = useSignal(settings.values.insecure_reason.value || likelyReason(location.hostname));
  return (
    <form
      class="card"
      onSubmit={inPage(() => {
        if (reason.value === '') return;
        settings.set('insecure_reason', reason.value);
        settings.set('insecure_ack_seen', true);
        settings.set('all_insecure_pair_ack_seen', true);
      })}
    >
      <h2>{t('This page is not encrypted')}</h2>
      <p>
        {t(
          'It was loaded over plain http. Anybody between this device and the relay can read and change what you send, including the pairing.',
        )}
      </p>
      <fieldset>
        <legend>{t('Why is that in order here?')}</legend>
        {REASONS.map(([value, text]) => (
          <label key={value} class="item">
            <input
              type="radio"
              name="reason"
              value={value}
              checked={reason.value === value}
              onChange={() => {
                reason.value = value;
              }}
            />
            <span class="text">{t(text)}</span>
          </label>
        ))}
      </fieldset>
      <Button type="submit" kind="primary" disabled={reason.value === ''}>
        {t('Continue without encryption')}
      </Button>
    </form>
  );
}

/** The reason that the address of the relay suggests. */
function likelyReason(host: string): string {
  if (/\.ts\.net$|^100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.[\d.]+$|^\[fd7a:115c:a1e0:/.test(host))
    return 'tailscale_vpn';
  if (/\.(?:local|lan|home\.arpa)$|^(?:10|192\.168|169\.254|172\.(?:1[6-9]|2\d|3[01]))\.[\d.]+$|^\[f[cde]/.test(host)) {
    return 'lan_only';
  }
  return '';
}

/** Names the tier of this page (contract 09 §5), and the one step to the better one. */
export function TierNotice() {
  const t = useT();
  const { session } = useApp();
  const key = session.pairing.value && t(aboutKey(session.pairing.value));
  if (isSecureContext)
    return (
      <p class="small soft">
        {t('Secure page: installing, offline start, camera, microphone and notifications are available.')} {key}
      </p>
    );
  return (
    <Notice tone="warn">
      {t(
        'Plain http: installing, offline start, camera, microphone and notifications need https. One step gives you that: open the relay by its https address, with Tailscale Serve or a certificate (RELAY_SSL_CERT).',
      )}{' '}
      {key}
    </Notice>
  );
}

/** A sentence on whether a copied token works elsewhere. */
function aboutKey({ bound, shared }: Pairing): string {
  if (bound) return 'This session is bound to a key of this browser: a copy of its token is of no use elsewhere.';
  if (shared) {
    return 'A backup holds this session too, so it is not bound to this browser: a copy of its token works elsewhere. Pair again to bind it.';
  }
  return 'This session is not bound to a key of this browser: a copy of its token works elsewhere.';
}
