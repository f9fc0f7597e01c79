import { type Signal, useSignal } from '@preact/signals';
import { applyPolicy, DAY } from '../../../lib/sessions/grants.ts';
import { Choice } from '../shared/components.tsx';
import { expandGrant, GRANT_NAMES, GrantChoice, useDurationText } from '../shared/devices.tsx';
import { useT } from '../shared/i18n.ts';
import type { PairingPolicy } from './stores/pairing.ts';

/** Lifetimes of a session to choose from, in seconds; 0 is forever. */
const LIFETIMES = [DAY, 7 * DAY, 30 * DAY, 90 * DAY, 365 * DAY, 0] as const;
/** Durations of a grant to choose from, in seconds. */
const DURATIONS = [3600, 12 * 3600, DAY, 7 * DAY, 30 * DAY, 90 * DAY] as const;
const DEFAULT_LIFETIME = 30 * DAY;

/** The operator's choice of a device's rights. */
export interface Policy {
  /** Seconds, 0 for forever. */
  ttl: Signal<number>;
  /** Grants that the device does not get. */
  without: Signal<ReadonlySet<string>>;
  /** Seconds by grant, 0 for as long as the session; missing grants get the relay's default. */
  durations: Signal<Readonly<Record<string, number>>>;
}

export const usePolicy = (): Policy => ({
  ttl: useSignal(DEFAULT_LIFETIME),
  without: useSignal<ReadonlySet<string>>(new Set()),
  durations: useSignal<Readonly<Record<string, number>>>({}),
});

/** The policy in the form for the relay. */
export function chosenOf({ ttl, without, durations }: Policy): PairingPolicy {
  const named = Object.entries(durations.value).filter(([name]) => !without.value.has(name));
  const grants = named.flatMap(([name, seconds]) => expandGrant(name).map((grant) => [grant, seconds] as const));
  return {
    ttl: ttl.value,
    without: [...without.value].flatMap((name) => expandGrant(name)),
    ...(grants.length > 0 && { grants: Object.fromEntries(grants) }),
  };
}

/** Fields for a device's lifetime, its grants, and the duration of each. */
export function PolicyFields({ policy: { ttl, without, durations } }: { policy: Policy }) {
  const t = useT();
  const text = useDurationText();
  const all = GRANT_NAMES.length;

  function choices(name: string): [string, string][] {
    const whole = t('as long as the session');
    const byDefault = applyPolicy({ ttlSeconds: ttl.value }, 0).grants[expandGrant(name)[0] ?? name] ?? ttl.value;
    const isShorter = (seconds: number) => ttl.value === 0 || seconds < ttl.value;
    return [
      ['', isShorter(byDefault) && byDefault > 0 ? text(byDefault) : whole],
      ...DURATIONS.filter((seconds) => isShorter(seconds) && seconds !== byDefault).map((seconds): [string, string] => [
        String(seconds),
        text(seconds),
      ]),
      ...(isShorter(byDefault) && byDefault > 0 ? [['0', whole] as [string, string]] : []),
    ];
  }

  return (
    <>
      <Choice
        label={t('Good for')}
        hint={t('After that the device has to be paired again.')}
        value={String(ttl.value)}
        options={LIFETIMES.map((seconds) => [String(seconds), text(seconds)] as const)}
        onChange={(chosen) => {
          ttl.value = Number(chosen);
          // A grant cannot outlive its session.
          const shorter = Object.entries(durations.value).filter(
            ([, seconds]) => ttl.value === 0 || seconds < ttl.value,
          );
          durations.value = Object.fromEntries(shorter);
        }}
      />
      <details>
        <summary>{t('What it may do: {n} of {all}', { n: all - without.value.size, all })}</summary>
        <GrantChoice
          legend={t('Grants')}
          names={GRANT_NAMES}
          without={without}
          durations={durations}
          choices={choices}
        />
      </details>
    </>
  );
}
