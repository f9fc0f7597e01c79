import { useSignal, useSignalEffect } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { Choice, Field, SwitchRow } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { useApp } from '../context.ts';
import { DEFAULTS, RANGES, type SettingValues } from '../settings.ts';

type KeyOf<Value> = {
  [Key in keyof SettingValues]: SettingValues[Key] extends Value ? Key : never;
}[keyof SettingValues];

interface FieldProps<Key> {
  of: Key;
  label: string;
  /** Its meaning, unless the label explains it. */
  hint?: string;
}

/** The meaning of a setting, and with the details, its key, range and default. */
function useAbout(hint: string | undefined, key: string, facts: string[]): ComponentChildren {
  const { settings } = useApp();
  if (!settings.values.settings_details.value) return hint;
  return (
    <>
      {hint !== undefined && <>{hint} </>}
      <code>{key}</code> · {facts.join(' · ')}
    </>
  );
}

/** A setting that is on or off. */
export function SettingSwitch({ of, label, hint }: FieldProps<KeyOf<boolean>>) {
  const t = useT();
  const { settings } = useApp();
  const fallback = t('default: {value}', { value: DEFAULTS[of] ? t('on') : t('off') });
  return (
    <SwitchRow
      label={label}
      hint={useAbout(hint, of, [fallback])}
      checked={settings.values[of].value}
      onChange={(value) => settings.set(of, value)}
    />
  );
}

interface ChoiceProps<Key extends keyof SettingValues> extends FieldProps<Key> {
  options: readonly (readonly [value: SettingValues[Key], text: string])[];
}

/** A setting with fixed choices. */
export function SettingChoice<Key extends KeyOf<string> | KeyOf<number>>(props: ChoiceProps<Key>) {
  const t = useT();
  const { settings } = useApp();
  const { of, label, hint, options } = props;
  const named = options.find(([value]) => value === DEFAULTS[of])?.[1] ?? '';
  return (
    <Choice
      label={label}
      hint={useAbout(hint, of, [t('default: {value}', { value: named })])}
      value={String(settings.values[of].value)}
      options={options.map(([value, text]) => [String(value), text])}
      onChange={(chosen) => {
        const found = options.find(([value]) => String(value) === chosen);
        if (found) settings.set(of, found[0]);
      }}
    />
  );
}

/** A whole number within its range. Any other is shown as invalid and not stored. */
export function SettingNumber({ of, label, hint }: FieldProps<keyof typeof RANGES>) {
  const t = useT();
  const { settings } = useApp();
  const [min, max] = RANGES[of];
  const typed = useSignal(String(settings.values[of].value));
  // A backup may replace it.
  useSignalEffect(() => {
    const { value } = settings.values[of];
    if (Number(typed.peek()) !== value) typed.value = String(value);
  });
  const isValid = (text: string) => /^\d{1,4}$/.test(text) && Number(text) >= min && Number(text) <= max;
  const facts = [t('{min} to {max}', { min, max }), t('default: {value}', { value: DEFAULTS[of] })];
  return (
    <Field
      label={label}
      hint={useAbout(hint, of, facts)}
      error={isValid(typed.value) ? undefined : t('A whole number from {min} to {max}.', { min, max })}
    >
      {(control) => (
        <input
          {...control}
          class="input"
          inputMode="numeric"
          value={typed.value}
          onInput={(event) => {
            typed.value = event.currentTarget.value;
            if (isValid(typed.value)) settings.set(of, Number(typed.value));
          }}
        />
      )}
    </Field>
  );
}
