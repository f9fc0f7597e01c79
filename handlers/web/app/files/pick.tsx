import { useId } from 'preact/hooks';
import { Icon, type IconName } from '../../shared/icons.tsx';

interface PickProps {
  icon: IconName;
  /** Shown beside the icon. */
  text?: string;
  /** Name of a button that shows only its icon. */
  label?: string;
  accept?: string;
  isMultiple?: boolean;
  /** Opens the camera, if there is one. */
  capture?: boolean;
  onFiles(files: readonly File[]): void;
}

/** A button that chooses files. */
export function Pick({ icon, text, label, accept, isMultiple = false, capture, onFiles }: PickProps) {
  const id = useId();
  return (
    <span class="pick">
      <input
        id={id}
        class="off-screen"
        type="file"
        multiple={isMultiple}
        accept={accept}
        capture={capture ? 'environment' : undefined}
        onChange={({ currentTarget }) => {
          onFiles([...(currentTarget.files ?? [])]);
          // Allows the same file to be chosen again.
          currentTarget.value = '';
        }}
      />
      <label for={id} class={text === undefined ? 'button icon-only' : 'button primary'} title={label}>
        <Icon name={icon} /> {text ?? <span class="off-screen">{label}</span>}
      </label>
    </span>
  );
}
