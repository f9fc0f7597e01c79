import { type Signal, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { Choice, Notice, TextField } from '../shared/components.tsx';
import { useT } from '../shared/i18n.ts';
import { useConsole } from './context.ts';
import type { PairingChoice, PairingKind } from './stores/pairing.ts';

/** Names of the ways to a relay, by their role. */
export const ROLES: Readonly<Record<string, string>> = {
  lan: 'Local network',
  tailscale: 'Tailnet',
  public: 'Public address',
  plugin_proxy: 'Secure Link',
  outbound_broker: 'Reach',
};

const PUBLISHED = 'published';

/** The operator's choice of a device's route to the relay. */
export interface Way {
  /** A role, `PUBLISHED`, or empty for every route. */
  chosen: Signal<string>;
  publicUrl: Signal<string>;
}

export const useWay = (): Way => ({ chosen: useSignal(''), publicUrl: useSignal('') });

export function wayOf({ chosen: { value: chosen }, publicUrl }: Way): Pick<PairingChoice, 'role' | 'publicUrl'> {
  if (chosen === PUBLISHED) return { publicUrl: publicUrl.value.trim() };
  return chosen === '' ? {} : { role: chosen };
}

/** The choice of `svc pair --mode` and `--public-url`. A relay at the edge has a single address, so this is hidden. */
export function WayFields({ kind, way: { chosen, publicUrl } }: { kind: PairingKind; way: Way }) {
  const t = useT();
  const { relay } = useConsole();
  const { routes, health } = relay;
  useEffect(() => routes.watch(), [routes]);
  const { endpoints = [], local = false } = routes.state.value.value ?? {};
  const link = health.state.value.value?.secure_link;
  if (endpoints.length === 0 && !local) return null;
  return (
    <>
      <Choice
        label={t('Way to the relay')}
        hint={
          kind === 'app' && link?.status === 'available'
            ? t('Secure Link, and Reach where it is connected, come with every code for the app.')
            : undefined
        }
        value={chosen.value}
        options={[
          ['', kind === 'web' ? t('The best one') : t('Every way, the best first')],
          ...endpoints.map(({ role, relay }): [string, string] => [
            role,
            t('{way} only: {address}', { way: t(ROLES[role] ?? role), address: relay?.url ?? '' }),
          ]),
          [PUBLISHED, t('Under another address')],
        ]}
        onChange={(value) => {
          chosen.value = value;
        }}
      />
      {chosen.value === PUBLISHED && (
        <TextField
          label={t('Address')}
          hint={
            kind === 'web'
              ? t('Where you publish this relay, such as https://relay.example.com')
              : t(
                  'Where you publish this relay, such as https://home.example.com/relay. Without a path, with its own port.',
                )
          }
          of={publicUrl}
          type="url"
          required
          autocomplete="off"
        />
      )}
      {local && (
        <Notice tone="warn">
          {t('The relay listens for its own machine alone (RELAY_HOST): no phone reaches it over the local network.')}
        </Notice>
      )}
    </>
  );
}
