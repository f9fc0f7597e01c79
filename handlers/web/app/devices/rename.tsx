import { useSignal } from '@preact/signals';
import { Dialog, Field, TextField } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { MAX_NAME } from './max-name.ts';
import type { OwnName } from './names.ts';

interface RenameProps {
  /** The device's own name. */
  device: string;
  own: OwnName;
  isCurrent: boolean;
  /** Persons that already have a device. */
  persons: readonly string[];
  onClose(): void;
  onSave(own: OwnName): void;
}

/** Asks for the name of a device, and for its owner. */
export function RenameDialog({ device, own, isCurrent, persons, onClose, onSave }: RenameProps) {
  const t = useT();
  const name = useSignal(own.name);
  const person = useSignal(own.person);
  return (
    <Dialog
      title={t('Rename {name}', { name: own.name || device })}
      onClose={onClose}
      onSubmit={() => {
        onSave({ name: name.value, person: person.value });
        onClose();
      }}
      submit={t('Save')}
    >
      <TextField
        label={t('Name')}
        hint={
          isCurrent
            ? t('The relay and your other devices see it too.')
            : t('In this browser only: on its machine, the relay takes a name from svc devices rename.')
        }
        of={name}
        maxLength={MAX_NAME}
        placeholder={device}
      />
      <Field label={t('Whose is it?')} hint={t('Devices can be shown by person.')}>
        {(control) => (
          <>
            <input
              {...control}
              class="input"
              maxLength={MAX_NAME}
              list={`${control.id}-persons`}
              value={person.value}
              onInput={({ currentTarget }) => {
                person.value = currentTarget.value;
              }}
            />
            <datalist id={`${control.id}-persons`}>
              {persons.map((one) => (
                <option key={one} value={one} />
              ))}
            </datalist>
          </>
        )}
      </Field>
    </Dialog>
  );
}
