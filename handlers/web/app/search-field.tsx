import type { Signal } from '@preact/signals';

interface SearchFieldProps {
  of: Signal<string>;
  label: string;
  maxLength?: number;
}

/** The search above a list, for the text of a signal. */
export const SearchField = ({ of, label, maxLength }: SearchFieldProps) => (
  <input
    class="input"
    type="search"
    aria-label={label}
    placeholder={label}
    maxLength={maxLength}
    value={of.value}
    onInput={({ currentTarget }) => {
      of.value = currentTarget.value;
    }}
  />
);
